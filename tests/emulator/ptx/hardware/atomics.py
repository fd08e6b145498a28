"""Atomics on vectors and 16-bit floats, with orders and scopes, and through generic addresses."""

from __future__ import annotations

from collections.abc import Iterator

from tests.emulator.ptx.hardware.cases import LANES, REGISTER, Case, operand, threads_case

_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f16x2": 4, "bf16x2": 4, "b16": 2, "u32": 4, "s32": 4, "b32": 4, "u64": 8}


def cases() -> Iterator[Case]:
    """Every case of these atomics."""
    for width in (2, 4):
        for form in ("atom", "red"):
            yield _vector(form, "add", "f32", width)
    for t in ("f16", "bf16"):
        for op in ("add", "min", "max"):
            for width in (2, 4, 8):
                yield _vector("atom", f"{op}.noftz", t, width)
            for width in (2, 4):
                yield _vector("atom", f"{op}.noftz", f"{t}x2", width)
        yield _vector("red", "add.noftz", t, 8)
        yield _vector("red", "max.noftz", f"{t}x2", 4)
    for space in ("global", "shared"):
        for t in ("f16", "bf16"):
            yield _single(space, "add.noftz", t, "relaxed.gpu" if space == "global" else "relaxed.cta")
        for order in ("relaxed.cta", "acquire.gpu", "release.sys", "acq_rel.gpu", "relaxed.cluster"):
            yield _single(space, "add", "u32", order)
        yield _single(space, "max", "s32", "acq_rel.cta")
        yield _single(space, "exch", "b32", "relaxed.cta")
        yield _generic(space, "add", "u32")
        yield _generic(space, "xor", "b32")
        yield _generic(space, "min", "u64")


def _vector(form: str, op: str, t: str, width: int) -> Case:
    """``.v2`` and wider: each lane has its own vector, in global memory."""
    label = f"{form}.global.{op}.v{width}.{t}"
    size = _BYTES[t] * width
    old, value = (operand(t, label, i, LANES * width) for i in range(2))
    names = {n: [f"{n}{i}" for i in range(width)] for n in ("old", "value", "got")}
    register = REGISTER[t]
    body = [f".reg .{register} {', '.join(name for each in names.values() for name in each)};"]
    body += [f"ld.global.b{8 * _BYTES[t]} old{i}, [at_a + {_BYTES[t] * i}];" for i in range(width)]
    body += [f"ld.global.b{8 * _BYTES[t]} value{i}, [at_b + {_BYTES[t] * i}];" for i in range(width)]
    body += [f"st.global.b{8 * _BYTES[t]} [out + {_BYTES[t] * i}], old{i};" for i in range(width)]
    lists = {n: "{" + ", ".join(each) + "}" for n, each in names.items()}
    parts = op.split(".")
    mnemonic = ".".join([form, "global", parts[0], *parts[1:], f"v{width}", t])
    if form == "red":
        body.append(f"{mnemonic} [out], {lists['value']};")
    else:
        body.append(f"{mnemonic} {lists['got']}, [out], {lists['value']};")
        body += [f"st.global.b{8 * _BYTES[t]} [out + {size + _BYTES[t] * i}], got{i};" for i in range(width)]
    return threads_case("atomic", label, body, 2 * size, {"a": old, "b": value})


def _single(space: str, op: str, t: str, order: str) -> Case:
    label = f"atom.{order}.{space}.{op}.{t}"
    return _own_word(label, space, f"atom.{order}.{space}.{op}.{t}", t, "[out]" if space == "global" else "[s]")


def _generic(space: str, op: str, t: str) -> Case:
    label = f"atom.{op}.{t} at a generic address in {space} memory"
    return _own_word(label, space, f"atom.{op}.{t}", t, "[p]")


def _own_word(label: str, space: str, instruction: str, t: str, place: str) -> Case:
    """Each lane's own word starts as operand a and is combined with operand b."""
    size = _BYTES[t]
    bits = 8 * size
    register = REGISTER[t]
    body = [
        f".reg .{register} old, value, got; .reg .b64 p; mov.b64 p, out; mad.lo.u32 s, tid, {size}, s;",
        f"ld.global.b{bits} old, [at_a]; ld.global.b{bits} value, [at_b];",
    ]
    if space == "shared":
        body.append(f"st.shared.b{bits} [s], old; cvt.u64.u32 p, s; cvta.shared.u64 p, p;")
    else:
        body.append(f"st.global.b{bits} [out], old;")
    body.append(f"{instruction} got, {place}, value; st.global.b{bits} [out + {size}], got;")
    if space == "shared":
        body.append(f"ld.shared.b{bits} got, [s]; st.global.b{bits} [out], got;")
    arrays = {name: operand(t, label, i) for i, name in enumerate("ab")}
    return threads_case("atomic", label, body, 2 * size, arrays, shared_bytes=LANES * size)
