"""Packed instructions: the same operation on two halves of registers, or on two registers."""

from __future__ import annotations

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Constant, Instruction, Register
from tilekit.emulator.gcn.ops.table import op

_HALVES = {
    "v_pk_add_f16": ("f16", "{0} + {1}"), "v_pk_mul_f16": ("f16", "{0} * {1}"),
    "v_pk_fma_f16": ("f16", "fma16({0}, {1}, {2})"), "v_pk_max_f16": ("f16", "maximum({0}, {1})"),
    "v_pk_min_f16": ("f16", "minimum({0}, {1})"),
    "v_pk_maximum3_f16": ("f16", "npmaximum(npmaximum({0}, {1}), {2})"),
    "v_pk_minimum3_f16": ("f16", "npminimum(npminimum({0}, {1}), {2})"),
    "v_pk_add_u16": ("u16", "{0} + {1}"), "v_pk_sub_u16": ("u16", "{0} - {1}"),
    "v_pk_add_i16": ("u16", "{0} + {1}"), "v_pk_sub_i16": ("u16", "{0} - {1}"),
    "v_pk_mul_lo_u16": ("u16", "{0} * {1}"), "v_pk_mad_u16": ("u16", "{0} * {1} + {2}"),
    "v_pk_mad_i16": ("i16", "{0} * {1} + {2}"),
    "v_pk_lshlrev_b16": ("u16", "{1} << ({0} & 15)"), "v_pk_lshrrev_b16": ("u16", "{1} >> ({0} & 15)"),
    "v_pk_ashrrev_i16": ("i16", "{1} >> ({0} & 15)"),
    "v_pk_max_u16": ("u16", "maximum_of({0}, {1})"), "v_pk_min_u16": ("u16", "minimum_of({0}, {1})"),
    "v_pk_max_i16": ("i16", "maximum_of({0}, {1})"), "v_pk_min_i16": ("i16", "minimum_of({0}, {1})"),
}  # fmt: skip
_WORDS = {
    "v_pk_add_f32": "{0} + {1}", "v_pk_mul_f32": "{0} * {1}", "v_pk_fma_f32": "fma32({0}, {1}, {2})",
    "v_pk_mov_b32": "",
}  # fmt: skip


def _choices(i: Instruction, count: int) -> list[list[int]]:
    defaults = {"op_sel": 0, "op_sel_hi": 1, "neg_lo": 0, "neg_hi": 0}
    return [(list(i.modifiers.get(name, [])) + [value] * count)[:count] for name, value in defaults.items()]


@op(*_HALVES)
def halves(e: Emitter, i: Instruction) -> None:
    """Two halves of 16 bits."""
    kind, expression = _HALVES[i.name]
    count = len(i.operands) - 1
    if count != 1 + max(int(digit) for digit in "012" if f"{{{digit}}}" in expression):
        raise unsupported(i, f"does not take {count} sources")
    low, high, negate_low, negate_high = _choices(i, count)
    e.begin(i, i.operands[1:])
    results = []
    for choice, negate in ((low, negate_low), (high, negate_high)):
        parts = [_half(e, n, kind, bool(choice[n]), bool(negate[n])) for n in range(count)]
        text = expression.format(*parts)
        if i.modifiers.get("clamp"):
            text = _clamped(i, text, parts)
        results.append(f"({text}).view(u2).astype(u4)")
    e.row(e.vector(i.operands[0], 1), f"{results[0]} | ({results[1]} << 16)")


def _clamped(i: Instruction, text: str, parts: list[str]) -> str:
    """A half held to 0 … 1, or to the range of its integer type."""
    _, _, name, kind = i.name.split("_", 3) if i.name.count("_") == 3 else ("", "", "", "")
    if kind == "f16" or i.name.endswith("f16"):
        return f"clamped({text})"
    if name not in ("add", "sub"):
        raise unsupported(i, "with clamp is not executed")
    sign = "+" if name == "add" else "-"
    if kind == "u16":
        return f"held({parts[0]}.astype(i8) {sign} {parts[1]}.astype(i8), 0, 65535).astype(u2)"
    wide = [f"{part}.view(i2).astype(i8)" for part in parts]
    return f"held({wide[0]} {sign} {wide[1]}, -32768, 32767).astype(i2)"


def _half(e: Emitter, n: int, kind: str, high: bool, negate: bool) -> str:
    operand = e.sources[n]
    view = {"f16": ".astype(u2).view(f2)", "u16": ".astype(u2)", "i16": ".astype(u2).view(i2)"}[kind]
    if isinstance(operand, Constant):
        raw = e.half_constant(operand) if kind == "f16" else e.source(n, "u32")
        text = f"({raw} >> 16){view}" if high else f"{raw}{view}"
    else:
        raw = e.source(n, "u32")
        text = f"({raw} >> 16){view}" if high else f"{raw}{view}"
    return f"neg_f16({text})" if negate else text


@op(*_WORDS)
def words(e: Emitter, i: Instruction) -> None:
    """Two registers of 32 bits."""
    expression = _WORDS[i.name]
    number = e.vector(i.operands[0], 2)
    count = len(i.operands) - 1
    low, high, negate_low, negate_high = _choices(i, count)
    e.begin(i, i.operands[1:])
    kind = "f32" if expression else "u32"
    if not expression:  # one word comes from each source, both chosen by op_sel
        e.add(f"x, y = {_word(e, 0, kind, low[0], False)}, {_word(e, 1, kind, low[1], False)}")
    else:
        parts = [[_word(e, n, kind, choice[n], bool(negate[n])) for n in range(count)]
                 for choice, negate in ((low, negate_low), (high, negate_high))]  # fmt: skip
        e.add(f"x, y = {expression.format(*parts[0])}, {expression.format(*parts[1])}")
    if e.flush and expression:
        e.add("x, y = flushed(x), flushed(y)")
    if i.modifiers.get("clamp"):
        e.add("x, y = clamped(x), clamped(y)")
    file = "F" if expression else "U"
    if not expression:
        e.add("x, y = x + 0, y + 0")  # they may lie where the first is written
    e.row(number, "x", file)
    e.row(number + 1, "y", file)


def _word(e: Emitter, n: int, kind: str, high: int, negate: bool) -> str:
    operand = e.sources[n]
    if isinstance(operand, Register) and operand.count == 2:
        one = Register(operand.file, operand.first + int(bool(high)), 1)
        kept, e.sources = e.sources, tuple(one if place == n else other for place, other in enumerate(e.sources))
        text = e.source(n, kind)
        e.sources = kept
    else:
        text = e.source(n, kind)
    return f"neg_f32({text})" if negate else text
