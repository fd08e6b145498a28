"""Arithmetic of the video instructions (PTX ISA 9.7.18): parts of registers, saturation, a second operation or a merge.

Values are int64 arrays of 32 lanes, wide enough for every intermediate result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Scalar", "Vector", "multiply_add_parts", "scalar_video", "vector_video"]

Words = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "vadd": operator.add,
    "vsub": operator.sub,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_SECOND: dict[str, Callable[[Any, Any], Any]] = {"add": operator.add, "min": np.minimum, "max": np.maximum}
_SCALES = {"": 0, "shr7": 7, "shr15": 15}


@dataclass(frozen=True)
class Scalar:
    """One form of a scalar video instruction.

    Attributes
    ----------
    name
        Opcode; ``vset`` with a comparison, ``vshl`` and ``vshr`` with a mode, ``clamp`` or ``wrap``.
    kinds
        ``u32`` or ``s32``, of the result, of a and of b.
    parts
        Of the result, of a and of b: ``b0`` to ``b3``, ``h0``, ``h1``, or empty for all of it.
    how
        The comparison or the mode.
    saturate
        ``.sat``.
    second
        ``add``, ``min`` or ``max`` with the third operand, or empty.
    """

    name: str
    kinds: tuple[str, str, str]
    parts: tuple[str, str, str]
    how: str = ""
    saturate: bool = False
    second: str = ""


@dataclass(frozen=True)
class Vector:
    """One form of a video instruction on two half words or four bytes; attributes as for `Scalar`.

    ``parts`` are the mask of the result and the selections of a and b; ``accumulate`` is ``.add``.
    """

    name: str
    count: int
    kinds: tuple[str, str, str]
    parts: tuple[str, str, str]
    how: str = ""
    saturate: bool = False
    accumulate: bool = False


def _number(words: Words, signed: bool) -> Numbers:
    return words.view(np.int32).astype(np.int64) if signed else words.astype(np.int64)


def _part(words: Words, signed: bool, part: str) -> Numbers:
    """A byte, a half word or the whole, sign- or zero-extended."""
    if not part:
        return _number(words, signed)
    bits = 8 if part[0] == "b" else 16
    field = words.astype(np.int64) >> bits * int(part[1]) & (1 << bits) - 1
    return np.where(field >> bits - 1 == 1, field - (1 << bits), field) if signed else field


def _clamp(values: Numbers, signed: bool, bits: int) -> Numbers:
    return np.clip(values, -(1 << bits - 1), (1 << bits - 1) - 1) if signed else np.clip(values, 0, (1 << bits) - 1)


def _width(part: str) -> int:
    return {"b": 8, "h": 16}.get(part[:1], 32)


def scalar_video(form: Scalar, a: Words, b: Words, c: Words) -> Words:
    """Return the result of ``vadd``, ``vsub``, ``vabsdiff``, ``vmin``, ``vmax``, ``vshl``, ``vshr`` or ``vset``."""
    signed, a_signed, b_signed = (kind == "s32" for kind in form.kinds)
    left, right = _part(a, a_signed, form.parts[1]), _part(b, b_signed, form.parts[2])
    if form.name == "vset":
        result = _COMPARISONS[form.how](left, right).astype(np.int64)
    elif form.name in ("vshl", "vshr"):
        count = np.minimum(right, 32) if form.how == "clamp" else right & 31
        # Python integers: 32 bits shifted by as many do not fit 64 bits with a sign.
        result = left.astype(object) << count if form.name == "vshl" else left >> count
    else:
        result = _OPERATIONS[form.name](left, right)
    part = form.parts[0]
    if form.saturate:
        result = _clamp(result, signed, _width(part))
    if form.second:
        result = _SECOND[form.second](result, _number(c, signed))
    elif part:
        shift, ones = _width(part) * int(part[1]), (1 << _width(part)) - 1
        result = (result & ones) << shift | c.astype(np.int64) & ~(ones << shift)
    return np.asarray(result & 0xFFFFFFFF, np.uint32)


def multiply_add_parts(
    kinds: tuple[str, str, str],
    parts: tuple[str, str],
    minus: tuple[bool, bool],
    plus_one: bool,
    scale: str,
    saturate: bool,
    a: Words,
    b: Words,
    c: Words,
) -> Words:
    """Return the result of ``vmad``: a product of parts, negated or not, plus c, shifted and saturated.

    Parameters
    ----------
    minus
        Whether the product is negated, and whether c is.
    """
    a_signed, b_signed = kinds[1] == "s32", kinds[2] == "s32"
    signed = a_signed or b_signed or any(minus)
    # Python integers: the product of two unsigned words does not fit 64 bits with a sign.
    product = _part(a, a_signed, parts[0]).astype(object) * _part(b, b_signed, parts[1]).astype(object)
    addend = _number(c, signed).astype(object)
    total = (-product if minus[0] else product) + (-addend if minus[1] else addend) + int(plus_one)
    total = total >> _SCALES[scale]
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
    values = [min(max(value, low), high) if saturate else value for value in total.tolist()]
    return np.array([value & 0xFFFFFFFF for value in values], np.uint32)


def vector_video(form: Vector, a: Words, b: Words, c: Words) -> Words:
    """Return the result of an instruction such as ``vadd2`` or ``vset4``."""
    count, bits = form.count, 32 // form.count
    signed, a_signed, b_signed = (kind == "s32" for kind in form.kinds)
    mask, a_places, b_places = form.parts
    sources = [*_fields(a, bits), *_fields(b, bits)]
    chosen = a_places[1:] or ("10" if count == 2 else "3210"), b_places[1:] or ("32" if count == 2 else "7654")
    kept = {int(place) for place in mask[1:]} if mask else set(range(count))
    thirds = _fields(c, bits)
    total = _number(c, signed) if form.accumulate else np.zeros(len(c), np.int64)
    for i in range(count):
        # Selections are written from the highest element down.
        left, right = (
            _extended(sources[int(places[count - 1 - i])], bits, extend)
            for places, extend in zip(chosen, (a_signed, b_signed), strict=True)
        )
        if form.name == "vset":
            result = _COMPARISONS[form.how](left, right).astype(np.int64)
        else:
            result = _OPERATIONS[form.name](left, right)
        if form.saturate:
            result = _clamp(result, signed, bits)
        if form.accumulate:
            total = total + result if i in kept else total
        else:
            total |= ((result if i in kept else thirds[i]) & (1 << bits) - 1) << bits * i
    return (total & 0xFFFFFFFF).astype(np.uint32)


def _fields(words: Words, bits: int) -> list[Numbers]:
    return [words.astype(np.int64) >> bits * n & (1 << bits) - 1 for n in range(32 // bits)]


def _extended(field: Numbers, bits: int, signed: bool) -> Numbers:
    return np.where(field >> bits - 1 == 1, field - (1 << bits), field) if signed else field
