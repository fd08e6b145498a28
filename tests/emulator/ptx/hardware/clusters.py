"""Clusters: ranks and addresses, and every way to reach another CTA's shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.emulator.ptx.hardware.cases import REGISTER, Case, generator, operand, threads_case

_BLOCK = 64
_MEET = "barrier.cluster.arrive; barrier.cluster.wait;"  # Not .aligned: warps may come out of divergent waits.
_PEER = ".reg .b32 rank, peer, far; mov.u32 rank, %cluster_ctarank;"
_BYTES = {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f16x2": 4, "bf16x2": 4, "b16": 2}


def cases() -> Iterator[Case]:
    """Every cluster case."""
    for size in (1, 2, 4):
        yield _registers(size)
        yield _ranks(size, "u32")
        yield _ranks(size, "u64")
        yield _isspacep(size)
    for size in (2, 4):
        for t in ("b32", "b64", "f32"):
            yield _load(size, t, 1)
        yield _load(size, "b32", 4)
        yield _load(size, "b64", 2)
        yield _store(size, "b32", "shared::cluster")
        yield _store(size, "b16", "shared::cluster")
        yield _store(size, "b64", "generic")
    for op, t in (("add", "u32"), ("min", "s32"), ("max", "u32"), ("and", "b32"), ("xor", "b32"), ("exch", "b32"),
                  ("inc", "u32"), ("add", "u64"), ("max", "s64"), ("or", "b64"), ("cas", "b32"), ("add", "f32"),
                  ("add.noftz", "f16x2"), ("add.noftz", "bf16x2")):  # fmt: skip
        yield _atomic("atom", op, t)
        if op not in ("exch", "cas"):
            yield _atomic("red", op, t)
    for t, width in (("b32", 1), ("b64", 1), ("u32", 2), ("f32", 2), ("b32", 4), ("b64", 2), ("f32", 4)):
        yield _store_async(t, width)
    for size in (2, 4):
        yield _remote_arrive(size, "")
        yield _remote_arrive(size, ".release.cluster")
        yield _copy_to_peer(size)
        for mask in (1, 2, 3) if size == 2 else (0b1111, 0b1010, 0b0100):
            yield _multicast(size, mask)
    yield _barrier_chain()


def _case(label: str, body: list[str], out: int, inputs: dict[str, np.ndarray], size: int, shared: int) -> Case:
    return threads_case(
        "cluster", label, [*body, _MEET], out, inputs, block=_BLOCK, cluster=size, shared_bytes=max(shared, 16)
    )


def _registers(size: int) -> Case:
    body = [".reg .b32 r; .reg .pred p;"]
    names = ("cluster_ctarank", "cluster_nctarank", "cluster_ctaid.x", "cluster_nctaid.x", "cluster_nctaid.y",
             "clusterid.x", "nclusterid.x", "ctaid.x", "nctaid.x")  # fmt: skip
    body += [f"mov.u32 r, %{name}; st.global.b32 [out + {4 * i}], r;" for i, name in enumerate(names)]
    return _case(f"special registers in a cluster of {size}", body, 4 * len(names), {}, size, 0)


def _ranks(size: int, width: str) -> Case:
    """Rank of the address mapped to each CTA, and whether mapping to oneself changes it."""
    body = [_PEER, f".reg .b{width[1:]} a, b; .reg .b32 r; .reg .pred p;"]
    if width == "u32":
        body.append("add.u32 a, s, 12;")
        space = ".shared::cluster"
    else:
        body.append("cvt.u64.u32 a, s; cvta.shared.u64 a, a; add.u64 a, a, 12;")
        space = ""
    for target in range(size):
        body.append(
            f"mapa{space}.{width} b, a, {target}; getctarank{space}.{width} r, b; "
            f"st.global.b32 [out + {8 * target}], r; setp.eq.{width} p, a, b; selp.u32 r, 1, 0, p; "
            f"setp.eq.u32 p, rank, {target}; selp.u32 r, r, 2, p; st.global.b32 [out + {8 * target + 4}], r;"
        )
    return _case(f"mapa and getctarank {width} in a cluster of {size}", body, 8 * size, {}, size, 16)


def _isspacep(size: int) -> Case:
    """Of an address of this CTA and of its neighbour."""
    body = [
        _PEER,
        f".reg .b64 a; .reg .b32 bits, bit; .reg .pred p; add.u32 peer, rank, 1; rem.u32 peer, peer, {size};",
    ]
    body.append("mov.u32 bits, 0; cvt.u64.u32 a, s; cvta.shared.u64 a, a;")
    for turn in range(2):
        for number, space in enumerate(("shared", "shared::cta", "shared::cluster", "global")):
            body.append(
                f"isspacep.{space} p, a; selp.u32 bit, {1 << (4 * turn + number)}, 0, p; or.b32 bits, bits, bit;"
            )
        body.append("mapa.u64 a, a, peer;")
    return _case(f"isspacep in a cluster of {size}", [*body, "st.global.b32 [out], bits;"], 4, {}, size, 16)


def _neighbour(size: int) -> str:
    return f"add.u32 peer, rank, 1; rem.u32 peer, peer, {size};"


def _load(size: int, t: str, width: int) -> Case:
    """Every CTA publishes its part; every CTA reads the neighbour's, in reverse order of threads."""
    label = f"ld.shared::cluster.{f'v{width}.' if width > 1 else ''}{t} in a cluster of {size}"
    each = _BYTES[t] * width
    data = generator(label).integers(0, 256, _BLOCK * size * each, dtype=np.uint8)
    names = ", ".join(f"v{i}" for i in range(width))
    listed, vector = (f"{{{names}}}", f".v{width}") if width > 1 else (names, "")
    body = [
        _PEER,
        f".reg .{REGISTER[t]} {names}; .reg .b32 mine; mad.lo.u32 mine, tid, {each}, s;",
        f"xor.b32 far, tid, {_BLOCK - 1};",
        f"ld.global{vector}.{t} {listed}, [at_a]; st.shared{vector}.{t} [mine], {listed}; {_MEET}",
        f"{_neighbour(size)} mad.lo.u32 far, far, {each}, s; mapa.shared::cluster.u32 far, far, peer;",
        f"ld.shared::cluster{vector}.{t} {listed}, [far]; st.global{vector}.{t} [out], {listed};",
    ]
    return _case(label, body, each, {"a": data}, size, _BLOCK * each)


def _store(size: int, t: str, space: str) -> Case:
    """Every CTA writes to the neighbour; each reads its own."""
    label = f"st.{space}.{t} in a cluster of {size}"
    each = _BYTES[t]
    data = generator(label).integers(0, 256, _BLOCK * size * each, dtype=np.uint8)
    body = [
        _PEER,
        f".reg .{REGISTER[t]} v; .reg .b32 mine; .reg .b64 wide; mad.lo.u32 mine, tid, {each}, s; {_neighbour(size)}",
        f"ld.global.{t} v, [at_a]; {_MEET}",
    ]
    if space == "generic":
        body.append(f"cvt.u64.u32 wide, mine; cvta.shared.u64 wide, wide; mapa.u64 wide, wide, peer; st.{t} [wide], v;")
    else:
        body.append(f"mapa.shared::cluster.u32 far, mine, peer; st.{space}.{t} [far], v;")
    body.append(f"{_MEET} ld.shared.{t} v, [mine]; st.global.{t} [out], v;")
    return _case(label, body, each, {"a": data}, size, _BLOCK * each)


def _atomic(form: str, op: str, t: str) -> Case:
    """Each CTA's words start as operand a; the peer combines operand b with them."""
    label = f"{form}.shared::cluster.{op}.{t}"
    each = _BYTES[t]
    bits = 8 * each
    arrays = {n: operand(t, label, i, 2 * _BLOCK) for i, n in enumerate("ab")}
    body = [
        _PEER,
        f".reg .{REGISTER[t]} old, value, other; .reg .b32 mine; mad.lo.u32 mine, tid, {each}, s;",
        "xor.b32 peer, rank, 1;",
        f"ld.global.b{bits} old, [at_a]; ld.global.b{bits} value, [at_b]; st.shared.b{bits} [mine], old;",
        f"mapa.shared::cluster.u32 far, mine, peer; {_MEET}",
    ]
    operands = "value"
    if op == "cas":  # A quarter of the lanes compare with what is there.
        body.append("ld.shared::cluster.b32 other, [far]; and.b32 peer, tid, 3; .reg .pred p; setp.eq.u32 p, peer, 0;")
        body.append(f"@!p mov.b32 other, 7; {_MEET}")
        operands = "other, value"
    if form == "atom":
        body.append(f"atom.shared::cluster.{op}.{t} old, [far], {operands}; st.global.b{bits} [out + {each}], old;")
    else:
        body.append(f"red.shared::cluster.{op}.{t} [far], {operands};")
    body.append(f"{_MEET} ld.shared.b{bits} old, [mine]; st.global.b{bits} [out], old;")
    return _case(label, body, 2 * each, arrays, 2, _BLOCK * each)


def _store_async(t: str, width: int) -> Case:
    """Every CTA sends its part to the peer, whose mbarrier counts the bytes."""
    vector = f".v{width}" if width > 1 else ""
    label = f"st.async{vector}.{t}"
    each = _BYTES[t] * width
    data = generator(label).integers(0, 256, 2 * _BLOCK * each, dtype=np.uint8)
    names = ", ".join(f"v{i}" for i in range(width))
    listed = f"{{{names}}}" if width > 1 else names
    body = [
        _PEER,
        f".reg .{REGISTER[t]} {names}; .reg .b32 mine, bar; .reg .pred p, first; xor.b32 peer, rank, 1;",
        f"setp.eq.u32 first, tid, 0; add.u32 mine, s, 16; mad.lo.u32 mine, tid, {each}, mine;",
        "@first mbarrier.init.shared.b64 [s], 1; @first fence.mbarrier_init.release.cluster;",
        f"@first mbarrier.arrive.expect_tx.shared.b64 _, [s], {_BLOCK * each}; {_MEET}",
        "mapa.shared::cluster.u32 far, mine, peer; mapa.shared::cluster.u32 bar, s, peer;",
        f"ld.global{vector}.{t} {listed}, [at_a];",
        f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.{t} [far], {listed}, [bar];",
        "waiting: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @!p bra waiting;",
        f"ld.shared{vector}.{t} {listed}, [mine]; st.global{vector}.{t} [out], {listed};",
    ]
    return _case(label, body, each, {"a": data}, 2, 16 + _BLOCK * each)


def _remote_arrive(size: int, how: str) -> Case:
    """Every CTA writes and arrives on the neighbour's barrier, then reads.

    With a release of the cluster's scope it writes to the neighbour; otherwise it reads what it wrote itself.
    """
    label = f"mbarrier.arrive{how} on the neighbour's barrier in a cluster of {size}"
    data = operand("b32", label, 0, _BLOCK * size)
    target = "st.shared::cluster.b32 [far]" if how else "st.shared.b32 [mine]"
    body = [
        _PEER,
        f".reg .b32 v, mine, bar; .reg .pred p, first; setp.eq.u32 first, tid, 0; {_neighbour(size)}",
        f"@first mbarrier.init.shared.b64 [s], {_BLOCK}; @first fence.mbarrier_init.release.cluster; {_MEET}",
        "add.u32 mine, s, 16; mad.lo.u32 mine, tid, 4, mine; ld.global.b32 v, [at_a];",
        "mapa.shared::cluster.u32 far, mine, peer; mapa.shared::cluster.u32 bar, s, peer;",
        f"{target}, v; mbarrier.arrive{how}.shared::cluster.b64 _, [bar];",
        "waiting: mbarrier.try_wait.parity.acquire.cluster.shared.b64 p, [s], 0; @!p bra waiting;",
        "ld.shared.b32 v, [mine]; st.global.b32 [out], v;",
    ]
    return _case(label, body, 4, {"a": data}, size, 16 + 4 * _BLOCK)


def _copy_to_peer(size: int) -> Case:
    label = f"cp.async.bulk to the neighbour in a cluster of {size}"
    data = operand("b32", label, 0, _BLOCK * size)
    body = [
        _PEER,
        f".reg .b32 v, mine, bar, from; .reg .pred p, first; setp.eq.u32 first, tid, 0; {_neighbour(size)}",
        "@first mbarrier.init.shared.b64 [s], 1; @first fence.mbarrier_init.release.cluster;",
        f"@first mbarrier.arrive.expect_tx.shared.b64 _, [s], {4 * _BLOCK}; add.u32 from, s, 128;",
        "mad.lo.u32 mine, tid, 4, from; ld.global.b32 v, [at_a]; st.shared.b32 [mine], v; fence.proxy.async;",
        f"{_MEET} add.u32 far, from, {4 * _BLOCK}; mapa.shared::cluster.u32 far, far, peer;",
        "mapa.shared::cluster.u32 bar, s, peer; @!first bra waiting;",
        f"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [far], [from], {4 * _BLOCK}, [bar];",
        "waiting: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @!p bra waiting;",
        f"ld.shared.b32 v, [mine + {4 * _BLOCK}]; st.global.b32 [out], v;",
    ]
    return _case(label, body, 4, {"a": data}, size, 128 + 8 * _BLOCK)


def _multicast(size: int, mask: int) -> Case:
    """Rank 0 copies its part of the input to the CTAs of the mask; the others keep what they had."""
    label = f"multicast to {mask:#b} in a cluster of {size}"
    data = operand("b32", label, 0, _BLOCK * size)
    body = [
        _PEER,
        ".reg .b32 v, mine, to, mask; .reg .b16 ctas; .reg .pred p, first, sender; setp.eq.u32 first, t, 0;",
        "setp.eq.u32 sender, tid, 0; add.u32 to, s, 128; mad.lo.u32 mine, tid, 4, to; st.shared.b32 [mine], t;",
        f"shr.u32 mask, {mask}, rank; and.b32 mask, mask, 1; mov.u16 ctas, {mask};",
        "@sender mbarrier.init.shared.b64 [s], 1; @sender fence.mbarrier_init.release.cluster; fence.proxy.async;",
        f"@sender mbarrier.arrive.expect_tx.shared.b64 _, [s], {4 * _BLOCK}; {_MEET} @!first bra check;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        f"[to], [at_a], {4 * _BLOCK}, [s], ctas;",
        "check: setp.eq.u32 p, mask, 0; @p bra done;",
        "waiting: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @!p bra waiting;",
        "done: ld.shared.b32 v, [mine]; st.global.b32 [out], v;",
    ]
    return _case(label, body, 4, {"a": data}, size, 128 + 4 * _BLOCK)


def _barrier_chain() -> Case:
    """Eight rounds in which a word goes round four CTAs."""
    label = "a word goes round a cluster of 4"
    data = operand("b32", label, 0, _BLOCK * 4)
    body = [
        _PEER,
        f".reg .b32 v, mine; mad.lo.u32 mine, tid, 4, s; ld.global.b32 v, [at_a]; {_neighbour(4)}",
        f"mapa.shared::cluster.u32 far, mine, peer; {_MEET}",
    ]
    for turn in range(8):
        body.append(f"st.shared::cluster.b32 [far], v; {_MEET} ld.shared.b32 v, [mine]; mad.lo.u32 v, v, 3, {turn};")
        body.append(_MEET)
    return _case(label, [*body, "st.global.b32 [out], v;"], 4, {"a": data}, 4, 4 * _BLOCK)
