"""The kernel that copies elements in another order: dimensions exchanged, turned round, or filled up with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

from tilekit.arrays import ArrayView, view_of
from tilekit.assembly.types import B32, GMEM
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.kernels.plain import CTAS, PlainKernel
from tilekit.targets import Target
from tilekit.tiles.call import fits

DIMENSIONS = 5
WIDE = 16
"""Bytes that a thread copies at once, where it can."""


@dataclass(frozen=True)
class Dimension:
    """One dimension of a copy.

    Attributes
    ----------
    extent
        Elements that are written along it.
    source, out
        Elements of memory from one to the next, where they are read and where they are written.
    count
        How many there are to read, by default all; behind them zeros are written.
    turned
        Whether they are read from the last to the first.
    """

    extent: int
    source: int
    out: int
    count: int | None = None
    turned: bool = False


class RearrangeKernel(PlainKernel):
    """Copies elements of 1, 2, 4 or 16 bytes, one a thread; neighbours of the last dimension are written together."""

    def __init__(self, size: int, target: Target) -> None:
        self.size = size
        super().__init__(target)

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return f"rearrange_{8 * self.size}"

    def described(self) -> str:
        """What a thread does."""
        return f"{self.name} for {self.target.name}: a thread copies an element, of {DIMENSIONS} dimensions"

    def _trace(self, w: Writer) -> None:
        source, out, total = self._pointer(w, "source"), self._pointer(w, "out"), self._number(w, "total")
        first = w.cta() * self.threads + w.thread()
        rest, inside = first, first < total
        start, end = (
            pointer + w.widen_multiply(self._number(w, name), self.size)
            for pointer, name in ((source, "read_from"), (out, "write_from"))
        )
        valid = inside
        for i in reversed(range(DIMENSIONS)):
            extent, count, turned = (self._number(w, f"{name}_{i}") for name in ("extent", "count", "turned"))
            index = rest
            if i:
                others = rest // extent
                index, rest = rest - others * extent, others
            valid = valid & (index < count)
            read = w.select(turned > 0, count - 1 - index, index)
            start = start + w.widen_multiply(read, self._number(w, f"source_{i}")) * self.size
            end = end + w.widen_multiply(index, self._number(w, f"out_{i}")) * self.size
        memory, bits = w.isa.memory, 8 * self.size
        if self.size == WIDE:
            words = [w.variable(B32, w.constant(B32, 0), "word") for _ in range(4)]
            with w.when(valid):
                for word, read in zip(words, memory.load_global_b32x4(address=start.retyped(GMEM)), strict=True):
                    word.assign(read)
            memory.store_global_b32x4(address=end.retyped(GMEM), values=RegisterTile(words), valid=inside)
            return
        value = getattr(memory, f"load_global_u{bits}")(address=start.retyped(GMEM), valid=valid)
        place: Value = end.retyped(GMEM)
        if bits < 32:
            narrow = w.isa.convert.narrow_u16(wide=value)
            getattr(memory, f"store_global_b{bits}")(address=place, value=narrow, valid=inside)
        else:
            with w.when(inside):
                memory.store_global_b32(address=place, value=value)


_kernel = cache(RearrangeKernel)


def _wider(own: list[Dimension], numbers: Sequence[int], size: int) -> list[Dimension] | None:
    """The same copy by elements of 16 bytes, where all begin at multiples of them; `numbers` of bytes must be too."""
    per, last = WIDE // size, own[-1]
    whole = (last.source, last.out, last.extent % per, last.turned) == (1, 1, 0, False) and last.count is None
    apart = [pitch * size for one in own[:-1] for pitch in (one.source, one.out)]
    if not whole or any(number % WIDE for number in (*numbers, *apart)):
        return None
    return [
        *(replace(one, source=one.source // per, out=one.out // per) for one in own[:-1]),
        replace(last, extent=last.extent // per),
    ]


def rearrange(
    source: ArrayView,
    out: Any,
    dimensions: Sequence[Dimension],
    *,
    target: Target,
    device: str | None,
    stream: Any = None,
    read_from: int = 0,
    write_from: int = 0,
) -> None:
    """Copy elements of ``source`` to ``out``, from an element of each on; up to 5 dimensions.

    ``source`` is read as memory, whose own strides do not count. `device` and `stream` are those of a call.
    """
    own = [Dimension(1, 0, 0)] * (DIMENSIONS - len(dimensions)) + list(dimensions)
    total = prod(dimension.extent for dimension in own)
    if not total:
        return
    view = view_of(out, "out")
    size = view.dtype.bytes
    places = source.address, view.address, read_from * size, write_from * size
    if (wide := _wider(own, places, size)) is not None:
        read_from, write_from = (place * size // WIDE for place in (read_from, write_from))
        own, size, total = wide, WIDE, total * size // WIDE
    kernel = _kernel(size, target)
    numbers = {"total": fits("elements to copy", total), CTAS: -(-total // kernel.threads)}
    for i, d in enumerate(own):
        count = d.extent if d.count is None else d.count
        for name, number in (("extent", d.extent), ("count", count), ("turned", d.turned), ("source", d.source)):
            numbers[f"{name}_{i}"] = fits(name, int(number))
        numbers[f"out_{i}"] = fits("out", d.out)
    numbers |= {"read_from": fits("where to read", read_from), "write_from": fits("where to write", write_from)}
    kernel.bound(source, view, numbers, device)(stream)
