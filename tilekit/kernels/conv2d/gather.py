"""TileIO of convolutions by threads, for what the copy engine refuses: few channels, large strides and dilations.

A thread has a row of the tile, an output pixel or a filter. All threads of a warp are at the same place of the filter,
which they count together; each loads what lies there for its own pixel, 1 to 8 bytes at once, and zeros outside of the
image. K has no gaps: channels of one place of the filter follow those of the place before it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce

from tilekit.assembly.shared import SharedArray, SharedDeclaration
from tilekit.assembly.types import GMEM
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.im2col import Places
from tilekit.kernels.conv2d.images import corner, declare
from tilekit.tile_io.copy_plan import PIECE, WORD, CopyPlan
from tilekit.tiles.cluster import Multicast
from tilekit.tiles.stage import AsyncWriter, Stage

NO_LINE = 1 << 30
"""A line that no image has."""

COUNTING, LOADING = 19, 11
"""Instructions at a place of the filter, and for each row there; a count of the text, not timed."""


@dataclass(frozen=True)
class GatherPlan(CopyPlan):
    """Which thread copies what: whole rows, in pieces of `width` bytes."""

    shifts = False
    unit = 1

    @property
    def clocks(self) -> int:
        """Instructions of a warp for a stage: at each place some that count, and some for each of a thread's rows."""
        lines = -(-self.tile.rows // (self.warps * 32))
        return self.tile.row_bytes // self.width * (COUNTING + lines * LOADING)

    def declared(self, name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """Nothing beside the image."""
        return ()


class GatherLoader:
    """Loads tiles of an operand of a convolution by the threads of the load role.

    Parameters
    ----------
    w
        The writer; the operand's address and numbers become kernel parameters.
    plan
        The image, and how many bytes are loaded at once.
    batched
        Whether there are groups.
    """

    prefetches = False
    writer: AsyncWriter | None = None
    """None where a thread has written a stage when it goes on, and waits for nothing else."""

    def __init__(self, w: Writer, plan: CopyPlan, *, batched: bool) -> None:
        self.plan, self.tile, self.width, self.batched, name = plan, plan.tile, plan.width, batched, plan.tile.name
        self.address = w.parameter(name, GMEM, lambda call: call.address(name))
        self.rows: type[GatheredRows] = GatheredRows
        self.n = declare(w, self.tile, "extent_y", "extent_x", "count", "image_pitch", "line_pitch", "pixel_pitch")

    def prefetch(self, w: Writer) -> None:
        """There is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundGather:
        """Which rows a thread has; once a role."""
        assert multicast is None, "threads write to their own CTA's shared memory"
        return BoundGather(w, self, stages)


class BoundGather:
    """A `GatherLoader` in a role of as many warps as its plan has."""

    def __init__(self, w: Writer, loader: GatherLoader, stages: SharedArray) -> None:
        self.loader, self.stages, self.writer = loader, stages, loader.writer
        first = (w.warp() % loader.plan.warps) * w.lanes + w.lane()
        self.lines = [first + line for line in range(0, loader.tile.rows, loader.plan.warps * w.lanes)]

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> GatheredRows:
        """Turn to the rows of a tile."""
        return self.loader.rows(w, self, row, batch, k)


class GatheredRows:
    """The rows of a thread in one tile: where the filter's first place reads, and where that lies in memory."""

    def __init__(self, w: Writer, bound: BoundGather, row: Value, batch: Operand, k: Operand) -> None:
        self._bound, self._loader = bound, bound.loader
        self._size = self._loader.tile.bits // 8
        self._at = self._first_place(w, k)
        self._pixels = [self._pixel(w, line, row + line, batch) for line in bound.lines]

    def _first_place(self, w: Writer, k: Operand) -> Places:
        """Where in the filter element `k` of K is."""
        return Places(w, self._loader.n, k, self._loader.width // self._size)

    def _pixel(self, w: Writer, line: Value, row: Value, batch: Operand) -> tuple[Value, Value, Value]:
        n, rows = self._loader.n, self._loader.tile.rows
        image, y, x = corner(n, row)
        start = w.widen_multiply(image, n["image_pitch"])
        if isinstance(batch, Value):
            start = start + w.widen_multiply(batch, n["group_pitch"])
        for axis, index, pitch in (("y", y, n["line_pitch"]), ("x", x, n["pixel_pitch"])):
            start = start + w.widen_multiply(index, pitch) - w.widen_multiply(n[f"pad_{axis}"], pitch)
        below = w.select((image < n["count"]) & (line < rows), y - n["pad_y"], NO_LINE)
        return self._loader.address + start * self._size, below, x - n["pad_x"]

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Load, pack and store this thread's rows, 16 bytes at a time."""
        image, width = self._bound.stages.at(w, stage.index), self._loader.width
        for piece in w.range(self._loader.tile.row_bytes // PIECE, name="piece"):
            words: list[list[Value]] = [[] for _ in self._pixels]
            for _ in range(PIECE // max(width, WORD)):
                narrow = [self._place(w) for _ in range(max(1, WORD // width))]
                for row, values in enumerate(zip(*narrow, strict=True)):
                    words[row] += [self._packed(one) for one in zip(*values, strict=True)]
            self._store(w, image, piece, words)

    def _store(self, w: Writer, image: Value, piece: Value, words: list[list[Value]]) -> None:
        """Write a piece of each of this thread's rows."""
        tile = self._loader.tile
        for line, row_words in zip(self._bound.lines, words, strict=True):
            with nullcontext() if tile.rows % (self._loader.plan.warps * w.lanes) == 0 else w.when(line < tile.rows):
                target = image + line * tile.row_bytes + tile.swizzled(piece * PIECE, line)
                w.isa.memory.store_shared_b32x4(address=target, values=RegisterTile(row_words))

    def _place(self, w: Writer) -> list[list[Value]]:
        """Load what lies at the place for each of this thread's pixels, and go on to the next place."""
        at, n = self._at, self._loader.n
        apart = w.widen_multiply(at.down, n["line_pitch"]) + w.widen_multiply(at.right, n["pixel_pitch"])
        bytes_apart, there = (apart + w.widen_multiply(at.channel, 1)) * self._size, at.down < n["end_y"]
        found = []
        for start, y, x in self._pixels:
            inside = there & (y + at.down < n["extent_y"]) & (x + at.right < n["extent_x"])
            found.append(self._load(w, (start + bytes_apart).retyped(GMEM), inside))
        at.advance(w)
        return found

    def _load(self, w: Writer, address: Value, valid: Value) -> list[Value]:
        if self._loader.width > WORD:
            return list(w.isa.memory.load_global_u32x2(address=address, valid=valid))
        return [getattr(w.isa.memory, f"load_global_u{8 * self._loader.width}")(address=address, valid=valid)]

    def _packed(self, values: tuple[Value, ...]) -> Value:
        """A word of narrower values, the first of them lowest."""
        return reduce(lambda word, narrow: (word << 8 * self._loader.width) | narrow, reversed(values))
