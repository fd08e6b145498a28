"""Which modifiers go together and in which order, where the table of forms does not say it.

Source: PTX ISA, sections 9.7.3, 9.7.9 and the tables of ``cvt``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilekit.emulator.ptx.language.forms import Form

_STRONG = ("relaxed", "acquire", "release")
_CACHE = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")
_PATTERNS = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}
_ARITHMETIC = ("add", "sub", "mul", "fma", "mad", "min", "max", "div", "abs", "neg", "sqrt", "set", "setp")
_FLOATS = {"f16": 1, "bf16": 1, "f32": 2, "f64": 3}
"""Floating-point types by how much they hold."""
_TO_FLOAT = ("rn", "rz", "rm", "rp", "rna", "rs")
_TO_INTEGER = ("rni", "rzi", "rmi", "rpi")


_LEADING = {
    **dict.fromkeys(("mul", "mad", "madc", "mul24", "mad24"), "half"),
    **dict.fromkeys(("bar", "barrier"), "cta level op"), **dict.fromkeys(("fence", "membar"), "kind"),
    **dict.fromkeys(("mbarrier", "wgmma", "tensormap"), "op"), "tcgen05": "op ws", "cvta": "to", "shf": "direction",
    "cp": "reduce async bulk prefetch tensor commit_group wait_group wait_all object",
}  # fmt: skip
"""Groups of modifiers that belong to the name of the instruction: they come first, in this order."""
_SEQUENCES = (("dst", "src"), ("rows", "columns"), ("bits", "popc"))
"""Groups of modifiers of which the one is read before the other."""

Fields = tuple[tuple[str, str], ...]


@lru_cache(4096)
def modifier_problem(form: Form, modifiers: tuple[str, ...], fields: Fields) -> str:
    """What is wrong with the modifiers of an instruction; empty when nothing is."""
    opcode, by_group = form.opcode, dict(fields)
    found = _order(opcode, modifiers, by_group)
    if found:
        return found
    if opcode in ("ld", "st"):
        return _access(modifiers, by_group)
    if opcode == "cvt":
        return _conversion(modifiers)
    if opcode == "cvta" and by_group.get("type") == "u32":
        return "an address has 64 bits"
    if any(group.name == "cc" for group in form.groups):
        return _carry(opcode, by_group)
    last = modifiers[-1] if modifiers else ""
    if opcode == "mov" and last in _PATTERNS:
        return f"mov takes .{last} as bits: mov.{_PATTERNS[last]}"
    if opcode in ("atom", "red") and "add" in modifiers and last in _PATTERNS and "noftz" not in modifiers:
        return f"an addition of .{last} in memory is .add.noftz.{last}"
    if last == "f64":
        if opcode in _ARITHMETIC:
            return next((f".{name} does not go with .f64" for name in ("ftz", "sat") if name in modifiers), "")
        if opcode == "rcp" and "approx" in modifiers and "ftz" not in modifiers:
            return f"an approximation of .f64 is {opcode}.approx.ftz.f64"
    return ""


def _order(opcode: str, modifiers: tuple[str, ...], fields: dict[str, str]) -> str:
    """Modifiers that are part of the name, and those that are read one after the other."""
    if opcode in ("mul", "mad") and fields.get("half") == "wide" and fields["type"][1:] == "64":
        return "a product of 64 bits is not widened: the type has 16 or 32 bits"
    names = [fields[name] for name in _LEADING.get(opcode, "").split() if name in fields]
    names = [name for name in names if not name.startswith("L2::")]  # what cp.async prefetches is no part of the name
    if opcode == "div" and "full" in modifiers:
        names = ["full"]
    if names != list(modifiers[: len(names)]):
        return f".{'.'.join(names)} comes first: {'.'.join([opcode, *names])}"
    for earlier, later in _SEQUENCES:
        one, other = fields.get(earlier), fields.get(later)
        if one is not None and other is not None and modifiers.index(one) > modifiers.index(other):
            return f".{one} comes before .{other}"
    return ""


def _carry(opcode: str, fields: dict[str, str]) -> str:
    """A carry chain: integers with or without sign; ``mad`` says which half of the product it adds."""
    if fields["type"][0] == "b":
        return f"the type is .u{fields['type'][1:]} or .s{fields['type'][1:]}"
    if ("half" in fields) != (opcode in ("mad", "madc")):
        return f"{opcode} takes no .{fields['half']}" if "half" in fields else f"write {opcode}.lo or {opcode}.hi"
    return ""


def _access(modifiers: tuple[str, ...], fields: dict[str, str]) -> str:
    if "async" in fields or "bulk" in fields:
        return ""
    order, scope, space = (fields.get(name, "") for name in ("order", "scope", "space"))
    if scope and order not in _STRONG:
        return f".{scope} needs an order, for example .relaxed.{scope}"
    if order in _STRONG and not scope:
        return f".{order} needs a scope, for example .{order}.gpu"
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
