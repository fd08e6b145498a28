"""Which modifiers go together, where the table of forms does not say it: memory order and caches, rounding, ``.f64``.

Source: PTX ISA, sections 9.7.3, 9.7.9 and the tables of ``cvt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilekit.emulator.ptx.language.forms import Decoded

_STRONG = ("relaxed", "acquire", "release")
_CACHE = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")
_PATTERNS = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}
_ARITHMETIC = ("add", "sub", "mul", "fma", "mad", "min", "max", "div", "abs", "neg", "sqrt", "set", "setp")
_FLOATS = {"f16": 1, "bf16": 1, "f32": 2, "f64": 3}
"""Floating-point types by how much they hold."""
_TO_FLOAT = ("rn", "rz", "rm", "rp", "rna", "rs")
_TO_INTEGER = ("rni", "rzi", "rmi", "rpi")


def modifier_problem(decoded: Decoded) -> str:
    """What is wrong with the modifiers of an instruction; empty when nothing is."""
    opcode = decoded.form.opcode
    if opcode in ("ld", "st"):
        return _access(decoded)
    if opcode == "cvt":
        return _conversion(decoded.instruction.modifiers)
    modifiers = decoded.instruction.modifiers
    if opcode == "mov" and modifiers and modifiers[-1] in _PATTERNS:
        return f"mov takes .{modifiers[-1]} as bits: mov.{_PATTERNS[modifiers[-1]]}"
    if modifiers and modifiers[-1] == "f64":
        if opcode in _ARITHMETIC:
            return next((f".{name} does not go with .f64" for name in ("ftz", "sat") if name in modifiers), "")
        if opcode in ("rcp", "rsqrt") and "approx" in modifiers and opcode == "rcp" and "ftz" not in modifiers:
            return f"an approximation of .f64 is {opcode}.approx.ftz.f64"
    return ""


def _access(decoded: Decoded) -> str:
    if decoded.has("async") or decoded.has("bulk"):
        return ""
    order, scope, space = decoded.get("order"), decoded.get("scope"), decoded.get("space")
    if scope and order not in _STRONG:
        return f".{scope} needs an order, for example .relaxed.{scope}"
    if order in _STRONG and not scope:
        return f".{order} needs a scope, for example .{order}.gpu"
    modifiers = decoded.instruction.modifiers
    if "nc" in modifiers and (space != "global" or order not in ("", "weak")):
        return ".nc is for weak loads from .global"
    if order == "volatile" and (space == "const" or any(name in modifiers for name in _CACHE)):
        return ".volatile goes neither with .const nor with a cache operator"
    return ""


def _conversion(modifiers: tuple[str, ...]) -> str:
    kinds = [name for name in modifiers if name in _FLOATS or (name[0] in "us" and name[1:] in ("8", "16", "32", "64"))]
    if len(kinds) != 2:
        return ""  # packed formats: each form says what it takes
    to, of = kinds
    rounding = next((name for name in modifiers if name in _TO_FLOAT or name in _TO_INTEGER), "")
    if to in _FLOATS and of in _FLOATS:
        if _FLOATS[to] < _FLOATS[of] and rounding not in _TO_FLOAT:
            return f"cvt to a narrower type needs a rounding: cvt.rn.{to}.{of}"
        if _FLOATS[to] > _FLOATS[of] and rounding:
            return f"cvt.{to}.{of} is exact and takes no .{rounding}"
        if to == of and rounding in _TO_FLOAT:
            return f"cvt.{to}.{of} rounds to an integer, as with .{rounding}i, or not at all"
        return ""
    if to not in _FLOATS and of in _FLOATS:
        return "" if rounding in _TO_INTEGER else f"cvt to an integer rounds to one: cvt.rzi.{to}.{of}"
    if to not in _FLOATS and "sat" in modifiers:
        wider = int(to[1:]) - int(of[1:])
        if (to[0] == of[0] and wider >= 0) or (to[0] == "s" and of[0] == "u" and wider > 0):
            return f"every .{of} is a .{to}: .sat has nothing to do"
    return ""
