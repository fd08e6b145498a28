"""Asynchronous copies: cp.async of every size with zero fill, bulk copies, bulk reductions of every type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.emulator.ptx.hardware.cases import LANES, MODERATE, REGISTER, Case, generator, operand, threads_case

_REDUCTIONS = {
    "add": ("f16", "bf16", "f32", "f64", "u32", "s32", "u64"),
    "min": ("f16", "bf16", "u32", "s32", "u64", "s64"),
    "max": ("f16", "bf16", "u32", "s32", "u64", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
}


def cases() -> Iterator[Case]:
    """Every case of asynchronous copies."""
    for level, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        yield _cp_async(level, size, "")
        yield _cp_async(level, size, "source size")
        yield _cp_async(level, size, "ignored")
    for how in ("wait_group 0", "wait_group 1", "wait_all", "mbarrier noinc", "mbarrier"):
        yield _groups(how)
    for size in (16, 48, 256, 1024, 4096):
        yield _bulk(size)
    for op, types in _REDUCTIONS.items():
        for t in types:
            yield _reduction(op, t, "every pattern")
            if t in MODERATE:
                yield _reduction(op, t, "ordinary values")


def _cp_async(level: str, size: int, how: str) -> Case:
    """Each lane copies its bytes over a pattern; a source size or a predicate leaves zeros."""
    label = f"cp.async.{level} {size}{' with ' + how if how else ''}"
    data = generator(label).integers(0, 256, LANES * size, dtype=np.uint8)
    words = size // 4
    extra = {"": "", "source size": ", n", "ignored": ", p"}[how]
    body = [
        f".reg .b32 n, w; .reg .pred p; mad.lo.u32 s, tid, {size}, s; rem.u32 n, tid, {size + 1};",
        "and.b32 w, tid, 3; setp.eq.u32 p, w, 1;",
        *(f"st.shared.b32 [s + {4 * i}], 0xa5a5a5a5;" for i in range(words)),
        f"cp.async.{level}.shared.global [s], [at_a], {size}{extra}; cp.async.commit_group; cp.async.wait_group 0;",
        *(f"ld.shared.b32 w, [s + {4 * i}]; st.global.b32 [out + {4 * i}], w;" for i in range(words)),
    ]
    return threads_case("copy", label, body, size, {"a": data}, shared_bytes=LANES * size)


def _groups(how: str) -> Case:
    """Three groups of 16 bytes a lane, and what is there after the wait, read by the neighbour."""
    label = f"cp.async groups, {how}"
    data = generator(label).integers(0, 256, LANES * 48, dtype=np.uint8)
    body = [
        ".reg .b32 at, other, w, sum; .reg .pred p; .reg .b64 state; mov.b32 sum, 0;",
        "add.u32 at, s, 16; xor.b32 other, tid, 32; mad.lo.u32 other, other, 48, at; mad.lo.u32 at, tid, 48, at;",
    ]
    by_barrier = how.startswith("mbarrier")
    if by_barrier:
        # With .noinc the arrival is one of those counted; without, it adds itself to the count first.
        arrivals = 2 * LANES if how.endswith("noinc") else LANES
        body.append(f"setp.eq.u32 p, tid, 0; @p mbarrier.init.shared.b64 [s], {arrivals}; bar.sync 0;")
    for group in range(3):
        body.append(f"cp.async.cg.shared.global [at + {16 * group}], [at_a + {16 * group}], 16;")
        if not by_barrier:
            body.append("cp.async.commit_group;")
    if by_barrier:
        body.append(f"cp.async.mbarrier.arrive{'.noinc' if how.endswith('noinc') else ''}.shared.b64 [s];")
        body.append("mbarrier.arrive.shared.b64 state, [s]; waiting: mbarrier.test_wait.shared.b64 p, [s], state;")
        body.append("@!p bra waiting;")
    else:
        body.append(f"cp.async.{how}; bar.sync 0;" if how != "wait_all" else "cp.async.wait_all; bar.sync 0;")
    for word in range(8 if how == "wait_group 1" else 12):
        body.append(f"ld.shared.b32 w, [other + {4 * word}]; mad.lo.u32 sum, sum, 3, w;")
    body.append("st.global.b32 [out], sum;" + (" cp.async.wait_all;" if how == "wait_group 1" else ""))
    return threads_case("copy", label, body, 4, {"a": data}, shared_bytes=16 + LANES * 48)


def _load(size: int) -> list[str]:
    """Thread 0 brings all of input a to shared memory at s + 128; every thread waits on the mbarrier at s."""
    return [
        ".reg .b32 at; .reg .pred p, first; setp.eq.u32 first, tid, 0; add.u32 at, s, 128;",
        "@first mbarrier.init.shared.b64 [s], 1; fence.mbarrier_init.release.cluster; bar.sync 0; @!first bra waiting;",
        f"{{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [s], {size}; }}",
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [at], [at_a], {size}, [s];",
        "waiting: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @!p bra waiting;",
    ]


def _bulk(size: int) -> Case:
    label = f"cp.async.bulk of {size} bytes there and back"
    data = generator(label).integers(0, 256, size, dtype=np.uint8)
    threads = min(size // 16, 32)
    body = [
        *_load(size),
        "@!first bra done;",
        f"cp.async.bulk.global.shared::cta.bulk_group [out], [at], {size};",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; done:",
    ]
    return threads_case("copy", label, body, size // threads, {"a": data}, block=threads, shared_bytes=128 + size)


def _reduction(op: str, t: str, values: str) -> Case:
    """The output starts as input b; input a goes through shared memory and is combined with it."""
    noftz = ".noftz" if t in ("f16", "bf16") and op == "add" else ""
    label = f"cp.reduce.async.bulk.{op}{noftz}.{t} of {values}"
    arrays = [operand(t, label, position) for position in range(2)]
    if values == "ordinary values":
        arrays = [MODERATE[t](generator(f"{label}{i}"), LANES).astype(arrays[0].dtype) for i in range(2)]
    element = arrays[0].itemsize
    size = LANES * element
    threads = 32
    each = size // threads
    register = REGISTER[t]
    body = [
        f".reg .{register} v;",
        *(
            f"ld.global.b{8 * element} v, [at_b + {i}]; st.global.b{8 * element} [out + {i}], v;"
            for i in range(0, each, element)
        ),
        "fence.proxy.async;",
        *_load(size),
        "@!first bra done;",
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}{noftz}.{t} [out], [at], {size};",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; done:",
    ]
    inputs = {"a": arrays[0], "b": arrays[1]}
    return threads_case("copy", label, body, each, inputs, block=threads, shared_bytes=128 + size)
