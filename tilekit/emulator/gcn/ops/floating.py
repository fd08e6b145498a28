"""Vector instructions on floating-point numbers."""

from __future__ import annotations

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Constant, Instruction, Register
from tilekit.emulator.gcn.ops.table import begin_vector, op, vector

_ONE = {
    "rcp": "reciprocal({0})", "rsq": "reciprocal_root({0})", "sqrt": "root({0})", "floor": "floor({0})",
    "ceil": "ceil({0})", "trunc": "trunc({0})", "rndne": "rint({0})", "fract": "fraction({0})",
    "frexp_mant": "mantissa({0})",
}  # fmt: skip
_TWO = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "subrev": "{1} - {0}", "mul": "{0} * {1}",
    "max": "maximum({0}, {1})", "min": "minimum({0}, {1})",
}  # fmt: skip
for _kind in ("f16", "f32", "f64"):
    for _name, _expression in _ONE.items():
        vector(f"v_{_name}_{_kind}", _kind, _kind, _expression)
    for _name, _expression in _TWO.items():
        if _kind != "f64" or not _name.startswith("sub"):
            vector(f"v_{_name}_{_kind}", _kind, f"{_kind} {_kind}", _expression)
    vector(f"v_fma_{_kind}", _kind, f"{_kind} {_kind} {_kind}", f"fma{_kind[1:]}({{0}}, {{1}}, {{2}})")
for _kind in ("f16", "f32"):
    for _name, _expression in {"exp": "power_of_two({0})", "log": "logarithm({0})", "sin": "sine({0})",
                               "cos": "cosine({0})"}.items():  # fmt: skip
        vector(f"v_{_name}_{_kind}", _kind, _kind, _expression)
    for _name, _expression in {
        "max3": "maximum(maximum({0}, {1}), {2})", "min3": "minimum(minimum({0}, {1}), {2})",
        "med3": "median({0}, {1}, {2})",
    }.items():  # fmt: skip
        vector(f"v_{_name}_{_kind}", _kind, f"{_kind} {_kind} {_kind}", _expression)
vector("v_maximum3_f32", "f32", "f32 f32 f32", "npmaximum(npmaximum({0}, {1}), {2})")
vector("v_minimum3_f32", "f32", "f32 f32 f32", "npminimum(npminimum({0}, {1}), {2})")
vector("v_rcp_iflag_f32", "f32", "f32", "reciprocal({0})")
vector("v_mul_legacy_f32", "f32", "f32 f32", "where(({0} == 0) | ({1} == 0), K0F, {0} * {1})")
vector("v_ldexp_f32", "f32", "f32 i32", "scale_by_power({0}, {1})")
vector("v_ldexp_f64", "f64", "f64 i32", "scale_by_power({0}, {1})")
vector("v_ldexp_f16", "f16", "f16 i16", "scale_by_power({0}, {1})")
vector("v_frexp_exp_i32_f32", "i32", "f32", "exponent({0})")
vector("v_frexp_exp_i32_f64", "i32", "f64", "exponent({0})")
vector("v_frexp_exp_i16_f16", "i16", "f16", "exponent({0}).astype(i2)")
for _name, _expression in (("mad_f16", "{0} * {1} + {2}"), ("mad_legacy_f16", "{0} * {1} + {2}"),
                           ("fma_legacy_f16", "fma16({0}, {1}, {2})"),
                           ("div_fixup_legacy_f16", "division_fix({0}, {1}, {2})")):  # fmt: skip
    vector(f"v_{_name}", "f16", "f16 f16 f16", _expression)
vector("v_exp_legacy_f32", "f32", "f32", "power_of_two({0})")
vector("v_log_legacy_f32", "f32", "f32", "logarithm({0})")
vector("v_div_fixup_f32", "f32", "f32 f32 f32", "division_fix({0}, {1}, {2})")
vector("v_div_fixup_f64", "f64", "f64 f64 f64", "division_fix({0}, {1}, {2})")
vector("v_div_fixup_f16", "f16", "f16 f16 f16", "division_fix({0}, {1}, {2})")


@op("v_fmac_f32", "v_fmac_f64", "v_mac_f16")
def accumulate(e: Emitter, i: Instruction) -> None:
    """Multiply and add to the destination."""
    kind = i.name[-3:]
    begin_vector(e, i, (*i.operands[1:], i.operands[0]), 3)
    parts = [e.source(n, kind) for n in range(3)]
    rounded_twice = i.name == "v_mac_f16"
    e.put(i.operands[0], "{} * {} + {}".format(*parts) if rounded_twice else f"fma{kind[1:]}({', '.join(parts)})", kind)


@op("v_fmamk_f32", "v_fmaak_f32")
def with_literal(e: Emitter, i: Instruction) -> None:
    """Multiply and add with a literal, whose place is that of the text."""
    kind = i.name[-3:]
    begin_vector(e, i, i.operands[1:], 3)
    parts = [e.source(n, kind) for n in range(3)]
    e.put(i.operands[0], f"fma{kind[1:]}({', '.join(parts)})", kind)


@op("v_div_scale_f32", "v_div_scale_f64")
def division_scale(e: Emitter, i: Instruction) -> None:
    """Scale one side of a division."""
    if len(i.operands) != 5:
        raise unsupported(i, "takes 5 operands")
    kind = i.name[-3:]
    begin_vector(e, i, i.operands[2:], 3)
    e.add(f"r, o = division_scale({', '.join(e.source(n, kind) for n in range(3))})")
    e.put(i.operands[0], "r", kind)
    e.put_mask(i.operands[1], "o")


@op("v_div_fmas_f32", "v_div_fmas_f64")
def division_step(e: Emitter, i: Instruction) -> None:
    """The last step of a division, which undoes the scaling that VCC tells of."""
    kind = i.name[-3:]
    begin_vector(e, i, i.operands[1:], 3)
    parts = ", ".join(e.source(n, kind) for n in range(3))
    e.put(i.operands[0], f"division_step({parts}, {e.mask(e.vcc())})", kind)


def _mixed(e: Emitter, i: Instruction) -> str:
    """A product and a sum whose sources are float32, or halves of registers as float16."""
    begin_vector(e, i, i.operands[1:], 3)
    high = i.modifiers.get("op_sel", [0, 0, 0])
    half = i.modifiers.get("op_sel_hi", [0, 0, 0])
    written = [operand if isinstance(operand, Register) else None for operand in e.sources]
    negate, absolute = (
        [chosen or bool(operand and getattr(operand, how)) for chosen, operand in
         zip(i.modifiers.get(name, [0, 0, 0]), written, strict=True)]
        for name, how in (("neg_lo", "negate"), ("neg_hi", "absolute"))
    )  # fmt: skip
    parts = []
    for n in range(3):
        if half[n]:
            operand = e.plain(n)
            raw = e.half_constant(operand) if isinstance(operand, Constant) else e.source(n, "u32")
            part = f"halves_as_f32({raw}, {int(high[n] and not isinstance(operand, Constant))})"
        else:
            e.plain(n)
            part = e.source(n, "f32")
        if absolute[n]:
            part = f"abs_f32({part})"
        if negate[n]:
            part = f"neg_f32({part})"
        parts.append(part)
    return f"fma32({', '.join(parts)})"


@op("v_fma_mix_f32")
def mix(e: Emitter, i: Instruction) -> None:
    """Multiply and add of mixed precisions, to float32."""
    e.put(i.operands[0], _mixed(e, i), "f32")


@op("v_fma_mixlo_f16", "v_fma_mixhi_f16")
def mix_half(e: Emitter, i: Instruction) -> None:
    """Multiply and add of mixed precisions, to one half of a register."""
    number = e.vector(i.operands[0], 1)
    value = _mixed(e, i)
    if i.modifiers.get("clamp"):
        value = f"clamped({value})"
    bits = f"spread_rows(({value}).astype(f2).view(u2).astype(u4), W)"
    if i.name == "v_fma_mixlo_f16":
        e.row(number, f"(U[{number}] & 0xFFFF0000) | {bits}")
    else:
        e.row(number, f"(U[{number}] & 0xFFFF) | ({bits} << 16)")
