"""Which bytes an access touches, as bit masks by page: the shapes that the race shadow works on.

A footprint is a tuple of pieces, one a page of 8 KiB, each with the coarsest unit (16, 4 or 1 bytes) that expresses it
and a mask with a bit a unit. It is relative to the page of its first byte, and every shape is computed once: kernels
touch the same shapes again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = [
    "FULL",
    "GRANULE",
    "IN_PAGE",
    "PAGE_BITS",
    "Pieces",
    "expand",
    "extents",
    "granules",
    "lanes",
    "rows",
    "span",
]

PAGE_BITS = 13
IN_PAGE = (1 << PAGE_BITS) - 1
GRANULE = 4
"""Log2 of the coarsest unit in bytes."""
FULL = {shift: (1 << (1 << PAGE_BITS >> shift)) - 1 for shift in (0, 2, GRANULE)}
"""The mask of a whole page in each unit."""

Pieces = tuple[tuple[int, int, int], ...]
"""(page, log2 of the unit in bytes, mask of units), relative to the page of the first byte."""

_PAGE = 1 << PAGE_BITS
_PATTERNS = 8192


@lru_cache(_PATTERNS)
def expand(mask: int, by: int) -> int:
    """Return `mask` with every bit repeated `1 << by` times."""
    if by == 0 or mask == 0:
        return mask
    data = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), np.uint8)
    bits = np.repeat(np.unpackbits(data, bitorder="little"), 1 << by)
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _unit(bits: int) -> int:
    """Return the coarsest unit that addresses with these low bits are multiples of, as a shift."""
    return GRANULE if not bits & 15 else 2 if not bits & 3 else 0


@lru_cache(_PATTERNS)
def span(start: int, size: int) -> Pieces:
    """Return the footprint of `size` bytes from `start` bytes into a page."""
    pieces = []
    end = start + size
    page = 0
    while start < end:
        stop = min(end, _PAGE)
        shift = _unit(start | stop)
        pieces.append((page, shift, ((1 << ((stop - start) >> shift)) - 1) << (start >> shift)))
        start, end, page = 0, end - _PAGE, page + 1
    return tuple(pieces)


@lru_cache(_PATTERNS)
def granules(start: int, mask: int) -> Pieces:
    """Return the footprint of the granules of `mask`, bit 0 being granule `start` of a page."""
    pieces = []
    mask <<= start
    page = 0
    while mask:
        if here := mask & FULL[GRANULE]:
            pieces.append((page, GRANULE, here))
        mask >>= _PAGE >> GRANULE
        page += 1
    return tuple(pieces)


@lru_cache(_PATTERNS)
def rows(start: int, count: int, row_bytes: int, pitch: int) -> Pieces:
    """Return the footprint of `count` rows of `row_bytes`, `pitch` bytes apart, from `start` bytes into a page."""
    return _union((start + i * pitch, start + i * pitch + row_bytes) for i in range(count))


@lru_cache(_PATTERNS)
def extents(start: int, relative: bytes) -> Pieces:
    """Return the footprint of spans given as the bytes of an int64 array of (lo, hi), `start` to be added to each."""
    spans = (np.frombuffer(relative, np.int64) + start).reshape(-1, 2).tolist()
    return _union((lo, hi) for lo, hi in spans)


def _union(spans: Iterable[tuple[int, int]]) -> Pieces:
    masks: dict[tuple[int, int], int] = {}
    for lo, hi in spans:
        for page, shift, mask in span(lo & IN_PAGE, hi - lo):
            key = ((lo >> PAGE_BITS) + page, shift)
            masks[key] = masks.get(key, 0) | mask
    return _one_unit_a_page(masks)


@lru_cache(_PATTERNS)
def lanes(start: int, relative: bytes, width: int) -> Pieces:
    """Return the footprint of `width` bytes at `start` plus each of the offsets (the bytes of an int64 array)."""
    offsets = np.frombuffer(relative, np.int64) + start
    touched = (offsets[:, None] + np.arange(width)).ravel()
    numbers = touched >> PAGE_BITS
    pieces = []
    for page in np.unique(numbers).tolist():
        flags = np.zeros(_PAGE, np.uint8)
        flags[touched[numbers == page] & IN_PAGE] = 1
        pieces.append((page, *_coarsest(flags)))
    return tuple(pieces)


def _coarsest(flags: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Return the bytes flagged in one page as a mask of the coarsest unit that expresses them: (shift, mask)."""
    for shift in (GRANULE, 2):
        units = flags.reshape(-1, 1 << shift)
        first = units[:, 0]
        if (units == first[:, None]).all():
            return shift, int.from_bytes(np.packbits(first, bitorder="little").tobytes(), "little")
    return 0, int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def _one_unit_a_page(masks: dict[tuple[int, int], int]) -> Pieces:
    pieces: dict[int, tuple[int, int]] = {}
    for (page, shift), mask in masks.items():
        known_shift, known = pieces.get(page, (shift, 0))
        finest = min(shift, known_shift)
        pieces[page] = (finest, expand(mask, shift - finest) | expand(known, known_shift - finest))
    return tuple((page, shift, mask) for page, (shift, mask) in sorted(pieces.items()))
