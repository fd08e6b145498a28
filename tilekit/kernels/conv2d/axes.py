"""How filters go over images: stride, padding and dilation read, and what filters of a size leave of an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isqrt
from numbers import Real
from operator import index
from typing import Any

from tilekit.arrays import ArrayView, is_array
from tilekit.errors import ArgumentError
from tilekit.kernels.conv2d.images import Axis

_LEAST = {"stride": 1, "padding": 0, "dilation": 1}
"""The least number that each may be, and the usual one."""

_MOST_COUNTED = (1 << 32) - 1
"""The largest number of a kernel's counters."""

_MOST_PIXELS = (1 << 31) - 1
"""Of an image's result: kernels count rows of the product in 32 bits."""

_MOST_NAMED = 1 << 14
"""Of padding that an error names: filters that need more are too large, and not the padding too small."""


def read_axes(x: ArrayView, w: ArrayView, given: dict[str, Any], *, images: str = "x") -> list[Axis]:
    """How filters go over images, with at least one output pixel; `images` is what gives their extents.

    Raises
    ------
    ArgumentError
        ``TK-CONV-003`` for a stride, padding or dilation that is none, or filters larger than the padded images;
        ``TK-CONV-004`` for images whose result has too many pixels.
    """
    ways = read_ways(given, w.shape[1:3])
    axes = [Axis(*of) for of in zip(("height", "width"), x.shape[1:3], w.shape[1:3], *ways, strict=True)]
    if any(axis.out < 1 for axis in axes):
        raise _too_large(axes)
    if axes[0].out * axes[1].out > _MOST_PIXELS:
        raise _too_many(axes, images)
    return axes


def read_ways(given: Mapping[str, Any], taps: Sequence[int]) -> list[tuple[int, int]]:
    """Stride, padding and dilation, down and along, of filters with so many taps (``TK-CONV-003``)."""
    steps, aparts = (read_pair(given.get(name, 1), name) for name in ("stride", "dilation"))
    kept = tuple(apart * (count - 1) // 2 for apart, count in zip(aparts, taps, strict=True))
    return [steps, read_pair(given.get("padding", 0), "padding", {"valid": 0, "same": kept}), aparts]


def read_pair(given: Any, name: str, words: Mapping[str, Any] | None = None) -> tuple[int, int]:
    """Read a stride, padding or dilation: a number for both axes, or one for each: down and along.

    Parameters
    ----------
    words
        What other libraries' words for it mean, which are no legal values.

    Raises
    ------
    ArgumentError
        ``TK-CONV-003`` with the nearest legal value.
    """
    least = _LEAST[name]
    found = _two(given if _is_sequence(given) else (given, given), least)
    if found is None or max(found) > _MOST_COUNTED:
        legal_words = f"a whole number from {least} to {_MOST_COUNTED}, as kernels count, or two (down, along)"
        raise ArgumentError.of(
            name, given, legal=legal_words, nearest=_meant(given, least, words or {}), code="TK-CONV-003"
        )
    return found


def read_extents(given: Any, name: str) -> tuple[int, int]:
    """Read the extents of images or of filters, down and along (``TK-CONV-001``, with the nearest)."""
    found = _two(given, 1) if _is_sequence(given) else None
    if found is None:
        meant = _meant(given, 1, {})
        nearest = (meant, meant) if isinstance(meant, int) else meant
        legal = "two whole numbers from 1 on, down and along"
        raise ArgumentError.of(name, given, legal=legal, nearest=nearest, code="TK-CONV-001")
    return found


def _two(parts: Any, least: int) -> tuple[int, int] | None:
    """Two whole numbers from the least on; None where that is not what was given."""
    try:
        down, along = (index(number) for number in parts)
        legal = not any(isinstance(number, bool) for number in parts) and least <= min(down, along)
    except Exception:  # whatever the numbers' own methods do
        return None
    return (down, along) if legal else None


def _is_sequence(given: Any) -> bool:
    """Whether something has parts in an order: a list, a range, an array of one dimension."""
    if is_array(given):
        return len(given.shape) == 1
    return isinstance(given, Sequence) and not isinstance(given, str | bytes)


def _meant(given: Any, least: int, words: Mapping[str, Any]) -> int | tuple[int, int] | None:
    """The legal value nearest to what was given: None where that cannot be told."""
    try:
        if isinstance(given, str) and given in words:
            found: list[int | None] = list(words[given]) if isinstance(words[given], tuple) else [words[given]]
        elif not _is_sequence(given):
            found = [_number(given, least)]
        elif len(given) == 2:
            found = [_number(max(part) if _is_sequence(part) else part, least) for part in given]
        else:  # of four ends of an image, or of three dimensions
            found = [_number(part, least) for part in given[:4]] if len(given) <= 4 else [None]
            found = found if len(set(found)) == 1 else [None]
    except Exception:  # whatever the numbers' own methods do
        return None
    numbers = [number for number in found if number is not None]
    if not numbers or len(numbers) < len(found):
        return None
    return numbers[0] if len(set(numbers)) == 1 else (numbers[0], numbers[1])


def _number(given: Any, least: int) -> int | None:
    """The legal number nearest to something that is one, or the text of one."""
    if isinstance(given, str) and given.isdecimal() and len(given) < 19:
        given = int(given)
    number = index(round(given) if isinstance(given, Real) else given)
    return min(max(number, least), _MOST_COUNTED)


def _too_large(axes: Sequence[Axis]) -> ArgumentError:
    """The error for filters larger than the padded images: the padding that is enough on both axes, or the filters."""
    said, enough, taps = [], [], []
    for axis in axes:
        reach = axis.end - axis.apart + 1
        far = f" ({reach} with dilation {axis.apart})" if axis.apart > 1 else ""
        if axis.out < 1:
            said.append(f"of {axis.name} {axis.taps}{far}, larger than images of {axis.extent} with padding {axis.pad}")
        enough.append(max(axis.pad, -((axis.extent - reach) // 2)))
        taps.append(min(axis.taps, (axis.extent + 2 * axis.pad - 1) // axis.apart + 1))
    padded = [replace(axis, pad=pad) for axis, pad in zip(axes, enough, strict=True)]
    near = f"padding={_short(enough)}"
    if max(enough) > _MOST_NAMED or _pixels(padded) > _MOST_PIXELS:
        near = f"filters of {taps[0]} x {taps[1]}"
    return ArgumentError(f"filters are {', and '.join(said)}; nearest: {near}", code="TK-CONV-003")


def _too_many(axes: Sequence[Axis], images: str) -> ArgumentError:
    """The error for a result with too many pixels: of the padding that was given, or of the images."""
    down, along = axes
    facts = (
        f"images of {down.extent} x {along.extent} pixels with padding {_short([down.pad, along.pad])} have a result "
        f"of {down.out} x {along.out}; legal: up to {_MOST_PIXELS} pixels in all"
    )

    def padded(most: int) -> list[Axis]:
        return [replace(axis, pad=min(axis.pad, most)) for axis in axes]

    bare = padded(0)
    if min(axis.out for axis in bare) > 0 and _pixels(bare) <= _MOST_PIXELS:
        most = _largest(max(down.pad, along.pad), lambda most: _pixels(padded(most)) <= _MOST_PIXELS)
        near = [axis.pad for axis in padded(most)]
        return ArgumentError(f"padding: {facts}; nearest: padding={_short(near)}", code="TK-CONV-003")
    least = min(down.out, along.out)
    most = _MOST_PIXELS // least if least <= isqrt(_MOST_PIXELS) else isqrt(_MOST_PIXELS)
    cut = [axis.extent - (axis.out - min(axis.out, most)) * axis.step for axis in axes]
    return ArgumentError(f"{images}: {facts}; nearest: images of {cut[0]} x {cut[1]} pixels", code="TK-CONV-004")


def _pixels(axes: Sequence[Axis]) -> int:
    return axes[0].out * axes[1].out


def _largest(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `high` that fits, where 0 does and smaller ones do if larger ones do."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _short(pair: Sequence[int]) -> str:
    """Two numbers as an argument is written: one where they are the same."""
    return str(pair[0]) if pair[0] == pair[1] else f"({pair[0]}, {pair[1]})"
