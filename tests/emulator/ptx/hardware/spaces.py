"""State spaces: addresses that go around through generic space, loads and stores of every width, order and space."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.emulator.ptx.hardware.cases import LANES, REGISTER, Case, generator, operand, symbol_of, threads_case


def cases() -> Iterator[Case]:
    """Every case of addresses and plain accesses."""
    yield from _addresses()
    for t in ("s8", "u8", "s16", "u16", "b8", "b16"):
        yield _narrow_load(t)
        yield _narrow_store(t)
    for t, register in (("u8", "b32"), ("b8", "b64"), ("u16", "b32"), ("s16", "b64"), ("u32", "b64"), ("s32", "b64")):
        yield _truncating_store(t, register)
    for width, t in (
        (2, "s8"),
        (4, "s8"),
        (2, "u16"),
        (2, "s16"),
        (4, "s16"),
        (4, "f32"),
        (2, "u64"),
        (2, "s32"),
        (2, "f64"),
    ):
        for space in ("global", "shared", "local"):
            yield _vector(space, width, t)
    for order in ("volatile", "relaxed.cta", "relaxed.gpu", "acquire.sys", "weak"):
        yield _ordered(order)
    for how in ("nc.", "nc.L1::no_allocate.", "L1::evict_last.", "L2::128B.", "ca.", "cg.", "cs.", "cv."):
        yield _cached(how)
    yield _local()
    yield _constant()
    yield _wide()


def _addresses() -> Iterator[Case]:
    """What space a generic address lies in, and that conversions undo each other."""
    places = {
        "global": "mov.b64 p, out;",
        "shared": "cvt.u64.u32 p, s; cvta.shared.u64 p, p;",
        "local": ".local .align 8 .b8 mine[16]; mov.u64 p, mine; cvta.local.u64 p, p;",
        "const": "mov.u64 p, {constant}; cvta.const.u64 p, p;",
    }
    for place, text in places.items():
        label = f"isspacep of an address in {place} memory"
        constant = symbol_of(label)
        before = f".const .align 8 .b8 {constant}[16] = {{1, 2, 3, 4}};\n" if place == "const" else ""
        body = [".reg .b64 p; .reg .pred q; .reg .b32 bits, bit; mov.u32 bits, 0;", text.format(constant=constant)]
        for number, space in enumerate(("global", "shared", "local", "const", "shared::cta", "shared::cluster")):
            body.append(f"isspacep.{space} q, p; selp.b32 bit, {1 << number}, 0, q; or.b32 bits, bits, bit;")
        body.append("st.global.b32 [out], bits;")
        yield threads_case("space", label, body, 4, shared_bytes=16, before=before)
    for place, text in places.items():
        label = f"cvta of an address in {place} memory and back"
        constant = symbol_of(label)
        before = f".const .align 8 .b8 {constant}[16] = {{1, 2, 3, 4}};\n" if place == "const" else ""
        body = [
            ".reg .b64 p, q, r;",
            text.format(constant=constant),
            f"cvta.to.{place}.u64 q, p; cvta.{place}.u64 r, q; sub.u64 r, r, p; st.global.b64 [out], r;",
        ]
        yield threads_case("space", label, body, 8, shared_bytes=16, before=before)
    body = [
        ".reg .b64 p, q; .reg .b32 value; cvt.u64.u32 q, s; cvta.shared.u64 p, q;",
        "mad.wide.u32 p, tid, 4, p; ld.global.b32 value, [at_a]; st.b32 [p], value; bar.sync 0;",
        "mad.lo.u32 s, tid, 4, s; ld.shared.b32 value, [s]; st.b32 [out], value;",
    ]
    data = operand("b32", "space: generic store", 0)
    yield threads_case("space", "generic store, shared load", body, 4, {"a": data}, shared_bytes=4 * LANES)


def _narrow_load(t: str) -> Case:
    label = f"ld.{t} into 16, 32 and 64 bits"
    data = operand(t, label, 0)
    registers = ((16, "h"), (32, "w"), (64, "d")) if t[0] != "b" else ((16, "h"),)
    body = [f".reg .b{bits} {name}; ld.global.{t} {name}, [at_a];" for bits, name in registers]
    body += [f"st.global.b{bits} [out + {bits // 8}], {name};" for bits, name in registers]
    return threads_case("space", label, body, 16, {"a": data})


def _narrow_store(t: str) -> Case:
    label = f"st.{t} from 16 bits"
    data = operand("b16", label, 0)
    body = [".reg .b16 h; ld.global.b16 h, [at_a];", f"st.global.{t} [out + 2], h; st.global.{t} [out + 6], h;"]
    return threads_case("space", label, body, 8, {"a": data})


def _truncating_store(t: str, register: str) -> Case:
    label = f"st.{t} from {register}"
    data = operand(register, label, 0)
    body = [f".reg .{register} v; ld.global.{register} v, [at_a];", f"st.global.{t} [out + 4], v;"]
    return threads_case("space", label, body, 8, {"a": data})


def _vector(space: str, width: int, t: str) -> Case:
    label = f"v{width}.{t} through {space} memory"
    size = int(t[1:]) // 8
    data = generator(label).integers(0, 256, LANES * width * size, dtype=np.uint8)
    names = [f"v{i}" for i in range(width)]
    listed, turned = ", ".join(names), ", ".join(reversed(names))
    body = [f".reg .{REGISTER[t]} {listed};", f"ld.global.v{width}.{t} {{{listed}}}, [at_a];"]
    if space == "shared":
        body.append(f"mad.lo.u32 s, tid, {width * size}, s;")
        body.append(f"st.shared.v{width}.{t} [s], {{{turned}}}; ld.shared.v{width}.{t} {{{turned}}}, [s];")
    elif space == "local":
        body.append(f".local .align 16 .b8 mine[64]; st.local.v{width}.{t} [mine + 32], {{{turned}}};")
        body.append(f"ld.local.v{width}.{t} {{{listed}}}, [mine + 32];")
    body.append(f"st.global.v{width}.{t} [out], {{{turned}}};")
    return threads_case("space", label, body, width * size, {"a": data}, shared_bytes=LANES * width * size)


def _ordered(order: str) -> Case:
    label = f"ld.{order} and st"
    data = operand("b32", label, 0)
    store = order.replace("acquire", "release")
    body = [
        f".reg .b32 v; ld.{order}.global.b32 v, [at_a];",
        "mad.lo.u32 s, tid, 4, s;",
        f"st.{store}.shared.b32 [s], v; ld.{order}.shared.b32 v, [s]; st.{store}.global.b32 [out], v;",
    ]
    return threads_case("space", label, body, 4, {"a": data}, shared_bytes=4 * LANES)


def _cached(how: str) -> Case:
    label = f"ld.global.{how}v4.b32"
    data = generator(label).integers(0, 256, LANES * 16, dtype=np.uint8)
    body = [
        f".reg .b32 v0, v1, v2, v3; ld.global.{how}v4.b32 {{v0, v1, v2, v3}}, [at_a];",
        "st.global.v4.b32 [out], {v0, v1, v2, v3};",
    ]
    return threads_case("space", label, body, 16, {"a": data})


def _local() -> Case:
    label = "local memory at an index of each lane"
    data = operand("b32", label, 0)
    body = [
        ".local .align 4 .b8 mine[64]; .reg .b64 p, q; .reg .b32 v, i; ld.global.b32 v, [at_a]; mov.u64 p, mine;",
        *(f"st.local.b32 [mine + {4 * i}], {i * 0x01010101};" for i in range(16)),
        "and.b32 i, v, 15; mad.wide.u32 q, i, 4, p; st.local.b32 [q], v; xor.b32 i, i, 5; mad.wide.u32 q, i, 4, p;",
        "ld.local.b32 i, [q]; add.u32 v, v, i; st.global.b32 [out], v;",
    ]
    return threads_case("space", label, body, 4, {"a": data})


def _constant() -> Case:
    label = "constant memory at an index of each lane"
    name = symbol_of(label) + "_table"
    data = operand("b32", label, 0)
    before = f".const .align 4 .b32 {name}[8] = {{3, 1, 4, 1, 5, 9, 2, 0xffffffff}};\n"
    body = [
        f".reg .b64 p; .reg .b32 v, i; ld.global.b32 v, [at_a]; and.b32 i, v, 7; mov.u64 p, {name};",
        "mad.wide.u32 p, i, 4, p; ld.const.b32 i, [p]; st.global.b32 [out], i;",
    ]
    return threads_case("space", label, body, 4, {"a": data}, before=before)


def _wide() -> Case:
    label = "ld and st of 128 bits"
    data = generator(label).integers(0, 256, LANES * 16, dtype=np.uint8)
    body = [
        ".reg .b128 q; .reg .b64 low, high; ld.global.b128 q, [at_a]; mov.b128 {low, high}, q;",
        "xor.b64 low, low, high; mov.b128 q, {high, low}; st.global.b128 [out], q;",
    ]
    return threads_case("space", label, body, 16, {"a": data})
