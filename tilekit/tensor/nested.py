"""Nested integer tuples: the shapes, strides and coordinates of hierarchical layouts.

An ``IntTuple`` is an integer or a tuple of ``IntTuple``. Order is colexicographic throughout: the leftmost entry
varies fastest.
"""

import operator
from collections.abc import Iterable, Iterator
from math import prod
from typing import TypeAlias, Union

IntTuple: TypeAlias = Union[int, "tuple[IntTuple, ...]"]


class LayoutError(ValueError):
    """A layout, swizzle or tile was asked for something that does not exist; the message says what would."""


class CoordinateError(LayoutError, IndexError):
    """A coordinate does not fit the shape that it indexes."""


def normalised(value: object, name: str, least: int) -> IntTuple:
    """Return `value` with tuples for lists and plain integers for anything integral.

    Parameters
    ----------
    value : object
        An integer or a nested sequence of integers.
    name : str
        What to call the value in an error.
    least : int
        The smallest legal integer.

    Raises
    ------
    LayoutError
        If a leaf is not an integer, is less than `least`, or a tuple is empty.
    """
    if isinstance(value, tuple | list):
        if not value:
            raise LayoutError(f"{name} holds an empty tuple; every mode needs at least one entry (1 is the smallest)")
        return tuple(normalised(entry, name, least) for entry in value)
    try:
        integer = operator.index(value)  # type: ignore[arg-type]  # the TypeError is the check
    except TypeError:
        raise LayoutError(f"{name} holds {value!r}; it must be an integer or a nested tuple of integers") from None
    if integer < least:
        raise LayoutError(f"{name} holds {integer}; the smallest legal value is {least}")
    return integer


def flat(value: IntTuple) -> tuple[int, ...]:
    """Return the integers of `value` from left to right."""
    return tuple(_leaves(value))


def _leaves(value: IntTuple) -> Iterator[int]:
    if isinstance(value, tuple):
        for entry in value:
            yield from _leaves(entry)
    else:
        yield value


def size(value: IntTuple) -> int:
    """Return the product of all integers of `value`: the number of coordinates of a shape."""
    return prod(_leaves(value))


def depth(value: IntTuple) -> int:
    """Return how deeply `value` nests: 0 for an integer, 1 for a flat tuple."""
    return 1 + max(map(depth, value)) if isinstance(value, tuple) else 0


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Return whether `a` and `b` nest in the same way."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(congruent, a, b))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def refilled(profile: IntTuple, leaves: Iterable[IntTuple]) -> IntTuple:
    """Return the nesting of `profile` with its integers replaced, from left to right, by `leaves`."""
    source = iter(leaves)

    def fill(part: IntTuple) -> IntTuple:
        return tuple(map(fill, part)) if isinstance(part, tuple) else next(source)

    return fill(profile)


def compact_strides(shape: IntTuple, *, leftmost_fastest: bool) -> IntTuple:
    """Return the strides that pack `shape` without gaps, the leftmost or the rightmost integer varying fastest."""
    extents = flat(shape)
    strides = [0] * len(extents)
    running = 1
    for leaf in range(len(extents)) if leftmost_fastest else reversed(range(len(extents))):
        strides[leaf] = running
        running *= extents[leaf]
    return refilled(shape, strides)


def coordinate_of(index: int, shape: IntTuple) -> IntTuple:
    """Return the natural coordinate, congruent with `shape`, of the colexicographic `index`."""
    coordinate = []
    for extent in flat(shape):
        index, within = divmod(index, extent)
        coordinate.append(within)
    return refilled(shape, coordinate)


def offset_of(coordinate: IntTuple, shape: IntTuple, stride: IntTuple) -> int:
    """Return the sum of coordinate times stride; an integer may stand for any nested part of the coordinate.

    Raises
    ------
    CoordinateError
        If the coordinate does not nest like `shape` as far as it nests, or lies outside.
    """
    if isinstance(coordinate, tuple):
        if not isinstance(shape, tuple) or not isinstance(stride, tuple) or len(coordinate) != len(shape):
            raise CoordinateError(f"coordinate {text(coordinate)} does not fit shape {text(shape)}")
        return sum(map(offset_of, coordinate, shape, stride))
    extent = size(shape)
    if not 0 <= coordinate < extent:
        raise CoordinateError(f"coordinate {coordinate} lies outside shape {text(shape)}: 0 to {extent - 1}")
    offset = 0
    for leaf, step in zip(flat(shape), flat(stride), strict=True):
        coordinate, within = divmod(coordinate, leaf)
        offset += within * step
    return offset


def text(value: object) -> str:
    """Return `value` as CuTe prints it: no spaces, and a trailing comma only in a tuple of one."""
    if isinstance(value, tuple):
        return f"({','.join(map(text, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def nearest_divisors(number: int, wanted: int) -> str:
    """Return, in words, the divisors of `number` next to `wanted`, for error messages."""
    below = next((d for d in range(min(wanted, number + 1) - 1, 0, -1) if number % d == 0), None)
    above = next((d for d in range(wanted + 1, number + 1) if number % d == 0), None)
    return " or ".join(str(d) for d in (below, above) if d is not None)
