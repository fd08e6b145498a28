"""Video instructions: integers on parts of registers (PTX ISA 9.7.18)."""

from __future__ import annotations

import re
from dataclasses import replace

from tilekit.emulator.ptx.arithmetic.video import Scalar, Vector, multiply_add_parts, scalar_video, vector_video
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import Operand, RegisterOperand

_KINDS = "dtype=u32|s32 atype=u32|s32 btype=u32|s32"
_COMPARE = "atype=u32|s32 btype=u32|s32 how=eq|ne|lt|le|gt|ge"
_SECOND = "second=add|min|max?"
_PART = re.compile(r"b[0-3]|h[01]")


def _part(g: BlockCompiler, operand: Operand, legal: re.Pattern[str]) -> str:
    """The part of a register that an operand names; empty for all of it."""
    part = operand.part if isinstance(operand, RegisterOperand) else ""
    if part and not legal.fullmatch(part):
        raise g.fail(f".{part} is no part that this instruction takes")
    return part


def _whole(g: BlockCompiler, operand: Operand) -> str:
    """Expression of the whole register, or of a constant."""
    plain = replace(operand, part="", minus=False) if isinstance(operand, RegisterOperand) else operand
    return g.array(plain, "b32")


def _result(g: BlockCompiler, i: Decoded, text: str) -> None:
    d = i.operands[0]
    g.write(replace(d, part="") if isinstance(d, RegisterOperand) else d, "b32", text)


def _kinds(i: Decoded) -> tuple[str, str, str]:
    return i.get("dtype", "u32"), i["atype"], i.get("btype", "u32")


@form("vadd vsub vabsdiff vmin vmax", f"{_KINDS} sat? {_SECOND}", "ds s s s?", uniform=never)
@form("vshl vshr", f"dtype=u32|s32 atype=u32|s32 btype=u32 sat? how=clamp|wrap {_SECOND}", "ds s s s?", uniform=never)
@form("vset", f"{_COMPARE} {_SECOND}", "ds s s s?", uniform=never)
def scalar(g: BlockCompiler, i: Decoded) -> None:
    """Scalar video instructions: one result, with a second operation or merged into c."""
    d, a, b, *rest = i.operands
    parts = (_part(g, d, _PART), _part(g, a, _PART), _part(g, b, _PART))
    if bool(parts[0] or i.has("second")) != bool(rest) or (parts[0] and i.has("second")):
        raise g.fail("a third source goes with a second operation or a part of the result, and with one of the two")
    shape = Scalar(i.form.opcode, _kinds(i), parts, i.get("how"), i.has("sat"), i.get("second"))
    sources = ", ".join(_whole(g, operand) for operand in (a, b, rest[0] if rest else a))
    _result(g, i, f"{g.helper(scalar_video)}({g.constant(shape)}, {sources})")


@form("vmad", f"{_KINDS} plus_one=po? sat? scale=shr7|shr15?", "d s s s", uniform=never)
def multiply_add(g: BlockCompiler, i: Decoded) -> None:
    """``vmad``: the product of two parts, plus c."""
    a, b, c = i.operands[1:]
    minus = [isinstance(operand, RegisterOperand) and operand.minus for operand in (a, b, c)]
    if (sum(minus[:2]) % 2 and minus[2]) or (any(minus) and i.has("plus_one")):
        raise g.fail("the product or c may be negated, not both, and neither with .po")
    parts = (_part(g, a, _PART), _part(g, b, _PART))
    what = f"{_kinds(i)!r}, {parts!r}, {(minus[0] != minus[1], minus[2])!r}, {i.has('plus_one')}, {i.get('scale')!r}"
    sources = ", ".join(_whole(g, operand) for operand in (a, b, c))
    _result(g, i, f"{g.helper(multiply_add_parts)}({what}, {i.has('sat')}, {sources})")


@form("vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2", f"{_KINDS} sat? add?", "ds s s s", uniform=never)
@form("vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4", f"{_KINDS} sat? add?", "ds s s s", uniform=never)
@form("vset2 vset4", f"{_COMPARE} add?", "ds s s s", uniform=never)
def vector(g: BlockCompiler, i: Decoded) -> None:
    """Video instructions on two half words or four bytes, merged into c or added to it."""
    name, count = i.form.opcode[:-1], int(i.form.opcode[-1])
    d, a, b, c = i.operands
    letter, last = ("h", 3) if count == 2 else ("b", 7)
    mask = re.compile("h10?|h0" if count == 2 else "b(?=.)3?2?1?0?")
    selection = re.compile(f"{letter}[0-{last}]{{{count}}}")
    parts = (_part(g, d, mask), _part(g, a, selection), _part(g, b, selection))
    shape = Vector(name, count, _kinds(i), parts, i.get("how"), i.has("sat"), i.has("add"))
    sources = ", ".join(_whole(g, operand) for operand in (a, b, c))
    _result(g, i, f"{g.helper(vector_video)}({g.constant(shape)}, {sources})")
