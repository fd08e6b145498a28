"""Loads and stores with extension and vectors; atomics and reductions whose outcome does not depend on an order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.emulator.ptx.hardware.cases import BYTES, LANES, REGISTER, Case, entry, operand


def cases() -> Iterator[Case]:
    """Every memory case."""
    for t in ("u8", "s8", "u16", "s16", "u32", "s32"):
        yield _extending_load(t)
    for width, t in ((2, "b32"), (4, "b32"), (2, "b64"), (2, "f32"), (4, "b16"), (2, "b8"), (4, "u8")):
        yield _vector(width, t)
    for space in ("global", "shared"):
        for t, ops in (
            ("u32", ("add", "min", "max", "inc", "dec")),
            ("s32", ("add", "min", "max")),
            ("b32", ("and", "or", "xor", "exch", "cas")),
            ("u64", ("add", "min", "max")),
            ("s64", ("min", "max")),
            ("b64", ("and", "or", "xor", "exch", "cas")),
        ):
            for op in ops:
                yield _atomic(space, op, t, contended=False)
                if op not in ("exch", "cas"):
                    yield _reduction(space, op, t)
        yield _atomic(space, "add", "f32", contended=False)
        yield _atomic(space, "add", "f64", contended=False)
        yield _atomic(space, "cas", "b16", contended=False)
        yield _atomic(space, "add.noftz", "f16x2", contended=False)
        yield _atomic(space, "add.noftz", "bf16x2", contended=False)
        yield _atomic(space, "add", "u32", contended=True)
        yield _atomic(space, "max", "s32", contended=True)
        yield _atomic(space, "xor", "b64", contended=True)


def _extending_load(t: str) -> Case:
    name = f"memory: ld.{t} widens to 64 bits"
    data = operand(t, name, 0)
    body = [
        ".reg .b32 t; .reg .b64 base, at, d, out;",
        "mov.u32 t, %tid.x; ld.param.u64 base, [a_in];",
        f"mad.wide.u32 at, t, {data.itemsize}, base;",
        f"ld.global.{t} d, [at];",
        "ld.param.u64 out, [d_out]; mad.wide.u32 at, t, 8, out; st.global.b64 [at], d; ret;",
    ]
    return Case(name, "memory", entry(name, "a", body), (data,), LANES * 8)


def _vector(width: int, t: str) -> Case:
    name = f"memory: ld and st v{width}.{t}, reversed"
    size = BYTES.get(t) or BYTES[REGISTER[t]]
    data = operand("b8", name, 0, LANES * width * size)
    names = [f"v{i}" for i in range(width)]
    body = [
        f".reg .b32 t; .reg .b64 base, at; .reg .{REGISTER[t]} {', '.join(names)};",
        "mov.u32 t, %tid.x; ld.param.u64 base, [a_in];",
        f"mad.wide.u32 at, t, {width * size}, base;",
        f"ld.global.v{width}.{t} {{{', '.join(names)}}}, [at];",
        f"ld.param.u64 base, [d_out]; mad.wide.u32 at, t, {width * size}, base;",
        f"st.global.v{width}.{t} [at], {{{', '.join(reversed(names))}}}; ret;",
    ]
    return Case(name, "memory", entry(name, "a", body), (data,), LANES * width * size)


def _setup(space: str, t: str, size: int, contended: bool) -> list[str]:
    """Each lane's word (or one for all) in the output buffer or in shared memory, holding the first operand."""
    index = "mov.u32 slot, 0;" if contended else "mov.u32 slot, t;"
    lines = [
        f".reg .b32 t, slot; .reg .b64 base, at, out; .reg .{REGISTER[t]} old, value, other;",
        f"mov.u32 t, %tid.x; {index}",
        f"ld.param.u64 base, [a_in]; mad.wide.u32 at, slot, {size}, base; ld.global.b{8 * size} old, [at];",
        f"ld.param.u64 base, [b_in]; mad.wide.u32 at, t, {size}, base; ld.global.b{8 * size} value, [at];",
        f"ld.param.u64 base, [c_in]; mad.wide.u32 at, t, {size}, base; ld.global.b{8 * size} other, [at];",
        f"ld.param.u64 out, [d_out]; mad.wide.u32 out, slot, {size}, out;",
    ]
    if space == "shared":
        lines += [".reg .b32 word; mov.u32 word, dynamic;", f"mad.lo.u32 word, slot, {size}, word;"]
        lines += [f"st.shared.b{8 * size} [word], old; bar.sync 0;"]
    else:
        lines += [f"st.global.b{8 * size} [out], old; bar.sync 0;"]
    return lines


def _finish(space: str, size: int, returned: bool) -> list[str]:
    lines = ["bar.sync 0;"]
    if space == "shared":
        lines += [f".reg .b{8 * size} final; ld.shared.b{8 * size} final, [word]; st.global.b{8 * size} [out], final;"]
    if returned:
        lines += [f"st.global.b{8 * size} [out+{LANES * size}], old;"]
    return [*lines, "ret;"]


def _atomic(space: str, op: str, t: str, *, contended: bool) -> Case:
    name = f"memory: atom.{space}.{op}.{t}{' by all lanes' if contended else ''}"
    size = BYTES[REGISTER[t]]
    place = "[out]" if space == "global" else "[word]"
    operands = "old, value" if op == "cas" else "value"
    arrays = tuple(operand(t, name, i) for i in range(3))
    if op == "cas":
        # Half of the lanes compare with what is there.
        arrays = (arrays[0], np.where(np.arange(LANES) % 2, arrays[0], arrays[1]).astype(arrays[0].dtype), arrays[2])
        operands = "value, other"
    body = [
        *_setup(space, t, size, contended),
        f"atom.{space}.{op}.{t} old, {place}, {operands};",
        *_finish(space, size, not contended),
    ]
    return Case(name, "memory", entry(name, "abc", body), arrays, 2 * LANES * size, shared_bytes=LANES * 8)


def _reduction(space: str, op: str, t: str) -> Case:
    name = f"memory: red.{space}.{op}.{t}"
    size = BYTES[REGISTER[t]]
    place = "[out]" if space == "global" else "[word]"
    arrays = tuple(operand(t, name, i) for i in range(3))
    body = [*_setup(space, t, size, True), f"red.{space}.{op}.{t} {place}, value;", *_finish(space, size, False)]
    if op in ("inc", "dec"):
        arrays = (arrays[0], np.full_like(arrays[1], 1000), arrays[2])
    return Case(name, "memory", entry(name, "abc", body), arrays, size, shared_bytes=LANES * 8)
