"""Conversions of vector registers."""

from __future__ import annotations

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.ops.table import begin_vector, op, vector

_I, _U = "-2147483648, 2147483647", "0, 4294967295"
_ALL = {
    "v_cvt_f32_f16": ("f32", "f16", "{0}.astype(f4)"),
    "v_cvt_f16_f32": ("f16", "f32", "{0}.astype(f2)"),
    "v_cvt_f32_bf16": ("f32", "u16", "bf16_to_f32({0})"),
    "v_cvt_f64_f32": ("f64", "f32", "{0}.astype(f8)"),
    "v_cvt_f32_f64": ("f32", "f64", "{0}.astype(f4)"),
    "v_cvt_f32_i32": ("f32", "i32", "{0}.astype(f4)"),
    "v_cvt_f32_u32": ("f32", "u32", "{0}.astype(f4)"),
    "v_cvt_f64_i32": ("f64", "i32", "{0}.astype(f8)"),
    "v_cvt_f64_u32": ("f64", "u32", "{0}.astype(f8)"),
    "v_cvt_f16_i16": ("f16", "i16", "{0}.astype(f2)"),
    "v_cvt_f16_u16": ("f16", "u16", "{0}.astype(f2)"),
    "v_cvt_i16_f16": ("i16", "f16", "to_integer({0}, -32768, 32767).astype(i2)"),
    "v_cvt_u16_f16": ("u16", "f16", "to_integer({0}, 0, 65535).astype(u2)"),
    "v_cvt_i32_f32": ("i32", "f32", f"to_integer({{0}}, {_I}).astype(i4)"),
    "v_cvt_u32_f32": ("u32", "f32", f"to_integer({{0}}, {_U}).astype(u4)"),
    "v_cvt_i32_f64": ("i32", "f64", f"to_integer({{0}}, {_I}).astype(i4)"),
    "v_cvt_u32_f64": ("u32", "f64", f"to_integer({{0}}, {_U}).astype(u4)"),
    "v_cvt_rpi_i32_f32": ("i32", "f32", f"to_integer(nearest_integer({{0}}), {_I}).astype(i4)"),
    "v_cvt_flr_i32_f32": ("i32", "f32", f"to_integer(floor({{0}}), {_I}).astype(i4)"),
    "v_cvt_pk_bf16_f32": ("u32", "f32 f32", "to_bf16_pair({0}, {1})"),
    "v_cvt_pk_f16_f32": ("u32", "f32 f32", "to_half_pair({0}, {1})"),
    "v_cvt_pkrtz_f16_f32": ("u32", "f32 f32", "to_half_pair_toward_zero({0}, {1})"),
    "v_cvt_pknorm_i16_f32": ("u32", "f32 f32", "normalised({0}, True) | normalised({1}, True) << 16"),
    "v_cvt_pknorm_u16_f32": ("u32", "f32 f32", "normalised({0}, False) | normalised({1}, False) << 16"),
    "v_cvt_pknorm_i16_f16": (
        "u32", "f16 f16", "normalised({0}.astype(f4), True) | normalised({1}.astype(f4), True) << 16"
    ),
    "v_cvt_pknorm_u16_f16": (
        "u32", "f16 f16", "normalised({0}.astype(f4), False) | normalised({1}.astype(f4), False) << 16"
    ),
    "v_cvt_norm_i16_f16": ("u16", "f16", "normalised({0}.astype(f4), True).astype(u2)"),
    "v_cvt_norm_u16_f16": ("u16", "f16", "normalised({0}.astype(f4), False).astype(u2)"),
    "v_cvt_off_f32_i4": ("f32", "u32", "sign_extend({0} & 15, 4).view(i4).astype(f4) / f4(16)"),
    "v_pack_b32_f16": ("u32", "b16 b16", "{0}.astype(u4) | {1}.astype(u4) << 16"),
    **{f"v_cvt_f32_ubyte{n}": ("f32", "u32", f"({{0}} >> {8 * n} & 255).astype(f4)") for n in range(4)},
}  # fmt: skip
for _name, (_result, _sources, _expression) in _ALL.items():
    vector(_name, _result, _sources, _expression)


@op("v_cvt_pk_u8_f32")
def insert_byte(e: Emitter, i: Instruction) -> None:
    """Round to a byte and put it into a word."""
    begin_vector(e, i, i.operands[1:], 3)
    value, place, word = e.source(0, "f32"), e.source(1, "u32"), e.source(2, "u32")
    e.add(f"t = ({place} & 3) * 8")
    e.put(i.operands[0], f"({word} & ~(K255 << t)) | (unsigned_byte({value}) << t)", "u32")


def _type(i: Instruction) -> str:
    return "fp8" if "fp8" in i.name else "bf8"


@op("v_cvt_f32_fp8", "v_cvt_f32_bf8")
def from_byte(e: Emitter, i: Instruction) -> None:
    """An 8-bit float, one of the four bytes by ``src0_sel`` or ``op_sel``, as float32."""
    begin_vector(e, i, i.operands[1:], 1)
    chosen = i.modifiers.get("op_sel", [0, 0])
    shift = 8 * (chosen[1] if len(chosen) > 1 else 0) + 16 * chosen[0] if "op_sel" in i.modifiers else 0
    raw = e.source(0, "u32")
    e.put(i.operands[0], f"from_byte({raw} >> {shift}, B.byte_type({_type(i)!r}))", "f32")


@op("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
def from_bytes(e: Emitter, i: Instruction) -> None:
    """Two 8-bit floats, from the low or the high half, as two float32."""
    number = e.vector(i.operands[0], 2)
    begin_vector(e, i, i.operands[1:], 1)
    high = bool(i.modifiers.get("op_sel", [0])[0])
    e.add(f"t = {e.source(0, 'u32')}" + (" >> 16" if high else ""))
    kind = f"B.byte_type({_type(i)!r})"
    e.add(f"x, y = from_byte(t, {kind}), from_byte(t >> 8, {kind})")
    e.row(number, "x", "F")
    e.row(number + 1, "y", "F")


@op("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
def to_bytes(e: Emitter, i: Instruction) -> None:
    """Two float32 as 8-bit floats in one half of a register; the other half stays."""
    number = e.vector(i.operands[0], 1)
    begin_vector(e, i, i.operands[1:], 2)
    kind = f"B.byte_type({_type(i)!r})"
    parts = [f"byte_bits({e.source(n, 'f32')}, {kind}, B.saturates)" for n in range(2)]
    _half(e, i, number, f"{parts[0]} | {parts[1]} << 8", bool(i.modifiers.get("op_sel", [0])[-1]))


def _half(e: Emitter, i: Instruction, number: int, bits: str, high: bool) -> None:
    if high:
        e.row(number, f"(U[{number}] & 0xFFFF) | (({bits}) << 16)")
    else:
        e.row(number, f"(U[{number}] & 0xFFFF0000) | ({bits})")


_NAMES = ("fp8", "bf8", "fp4")


@op(*(f"v_cvt_scalef32_pk_{narrow}_{wide}" for narrow in _NAMES for wide in ("f32", "f16", "bf16")))
def to_scaled(e: Emitter, i: Instruction) -> None:
    """Two numbers, divided by a power of two, as 8-bit or 4-bit floats in one part of a register."""
    narrow, wide = i.name.removeprefix("v_cvt_scalef32_pk_").split("_")
    number = e.vector(i.operands[0], 1)
    count = 3 if wide == "f32" else 2
    begin_vector(e, i, i.operands[1:], count)
    if wide == "f32":
        a, b = e.source(0, "f32"), e.source(1, "f32")
    else:
        raw = _whole(e, i)
        load = "halves_as_f32({0}, {1})" if wide == "f16" else "bf16_to_f32({0} >> {2})"
        a, b = (load.format(raw, high, 16 * high) for high in (0, 1))
    scale = f"scale_exponent({e.source(count - 1, 'f32')}.view(u4))"
    chosen = i.modifiers.get("op_sel", [0, 0, 0, 0])
    e.add(f"s = {scale}")
    e.add(f"x, y = ({a} / s).astype(f4), ({b} / s).astype(f4)")
    if narrow == "fp4":
        place = 8 * (chosen[2] + 2 * chosen[3]) if len(chosen) == 4 else 0
        e.add("t = byte_bits(x, FP4) | byte_bits(y, FP4) << 4")
        e.row(number, f"(U[{number}] & {0xFFFFFFFF ^ (0xFF << place)}) | (t << {place})")
        return
    kind = f"B.byte_type({narrow!r})"
    e.add(f"t = byte_bits(x, {kind}) | byte_bits(y, {kind}) << 8")
    _half(e, i, number, "t", bool(chosen[-1]))


@op(*(f"v_cvt_scalef32_pk_{wide}_{narrow}" for narrow in _NAMES for wide in ("f32", "f16", "bf16")))
def from_scaled(e: Emitter, i: Instruction) -> None:
    """Two 8-bit or 4-bit floats times a power of two."""
    wide, narrow = i.name.removeprefix("v_cvt_scalef32_pk_").split("_")
    begin_vector(e, i, i.operands[1:], 2)
    chosen = i.modifiers.get("op_sel", [0, 0])
    e.add(f"s = scale_exponent({e.source(1, 'f32')}.view(u4))")
    if narrow == "fp4":
        place = 8 * (chosen[0] + 2 * (chosen[1] if len(chosen) > 1 else 0))
        e.add(f"t = {e.source(0, 'u32')} >> {place}")
        e.add("x, y = from_narrow(t & 15, FP4, 4) * s, from_narrow(t >> 4 & 15, FP4, 4) * s")
    else:
        raw = _whole(e, i)
        e.add(f"t = {raw} >> {16 * chosen[0]}")
        kind = f"B.byte_type({narrow!r})"
        e.add(f"x, y = from_byte(t, {kind}) * s, from_byte(t >> 8, {kind}) * s")
    if wide == "f32":
        number = e.vector(i.operands[0], 2)
        e.row(number, "x.astype(f4)", "F")
        e.row(number + 1, "y.astype(f4)", "F")
        return
    pack = "to_half_pair" if wide == "f16" else "to_bf16_pair"
    e.row(e.vector(i.operands[0], 1), f"{pack}(x.astype(f4), y.astype(f4))" if wide == "bf16" else f"{pack}(x, y)")


@op(*(f"v_cvt_scalef32_{wide}_{narrow}" for narrow in ("fp8", "bf8") for wide in ("f32", "f16")))
def from_scaled_byte(e: Emitter, i: Instruction) -> None:
    """One byte of a register, by ``op_sel``, as an 8-bit float times a power of two."""
    wide, narrow = i.name.removeprefix("v_cvt_scalef32_").split("_")
    number = e.vector(i.operands[0], 1)
    begin_vector(e, i, i.operands[1:], 2)
    e.only_on("gfx950")
    chosen = i.modifiers.get("op_sel", [0, 0, 0])
    e.add(f"s = scale_exponent({e.source(1, 'f32')}.view(u4))")
    e.add(f"x = from_byte({_whole(e, i)} >> {8 * (chosen[0] + 2 * chosen[1])}, B.byte_type({narrow!r})) * s")
    if wide == "f32":
        e.row(number, "x.astype(f4)", "F")
    else:
        _half(e, i, number, "half_bits(x)", bool(chosen[2]))


def _whole(e: Emitter, i: Instruction) -> str:
    """The first source's bits, whatever ``op_sel`` says of them."""
    if i.encoding == "dpp":
        raise unsupported(i, "with DPP is not executed")
    return e.source(0, "u32")
