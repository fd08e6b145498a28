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
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.im2col import Places, declare
from tilekit.tile_io.cp_async import PIECE, WARPS, WORD, CopyPlan
from tilekit.tiles.cluster import Multicast
from tilekit.tiles.stage import Stage

NO_LINE = 1 << 30
"""A line that no image has."""


@dataclass(frozen=True)
class GatherPlan(CopyPlan):
    """Which thread copies what: whole rows, in pieces of `width` bytes."""

    shifts = False
    unit = 1

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
    writer = None
    """A thread has written a stage when it goes on."""

    def __init__(self, w: Writer, plan: CopyPlan, *, batched: bool) -> None:
        self.tile, self.width, self.batched, name = plan.tile, plan.width, batched, plan.tile.name
        self.address = w.parameter(name, GMEM, lambda call: call.address(name))
        self.n = declare(w, self.tile, "extent_y", "extent_x", "count", "image_pitch", "line_pitch", "pixel_pitch")

    def prefetch(self, w: Writer) -> None:
        """There is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundGather:
        """Which rows a thread has; once a role."""
        assert multicast is None, "threads write to their own CTA's shared memory"
        return BoundGather(w, self, stages)


class BoundGather:
    """A `GatherLoader` in a role of four warps."""

    writer = None

    def __init__(self, w: Writer, loader: GatherLoader, stages: SharedArray) -> None:
        self.loader, self.stages = loader, stages
        first = (w.warp() % WARPS) * w.lanes + w.lane()
        self.lines = [first + line for line in range(0, loader.tile.rows, WARPS * w.lanes)]

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> GatheredRows:
        """Turn to the rows of a tile."""
        return GatheredRows(w, self, row, batch, k)


class GatheredRows:
    """The rows of a thread in one tile: where the filter's first place reads, and where that lies in memory."""

    def __init__(self, w: Writer, bound: BoundGather, row: Value, batch: Operand, k: Operand) -> None:
        self._bound, self._loader = bound, bound.loader
        self._size = self._loader.tile.bits // 8
        self._at = Places(w, self._loader.n, k, self._loader.width // self._size)
        self._pixels = [self._pixel(w, row + line, batch) for line in bound.lines]

    def _pixel(self, w: Writer, row: Value, batch: Operand) -> tuple[Value, Value, Value]:
        n = self._loader.n
        image = row // (n["out_y"] * n["out_x"])
        within = row - image * (n["out_y"] * n["out_x"])
        line = within // n["out_x"]
        y, x = line * n["step_y"], (within - line * n["out_x"]) * n["step_x"]
        start = w.widen_multiply(image, n["image_pitch"])
        if isinstance(batch, Value):
            start = start + w.widen_multiply(batch, n["group_pitch"])
        for axis, index, pitch in (("y", y, n["line_pitch"]), ("x", x, n["pixel_pitch"])):
            start = start + w.widen_multiply(index, pitch) - w.widen_multiply(n[f"pad_{axis}"], pitch)
        below = w.select(image < n["count"], y - n["pad_y"], NO_LINE)
        return self._loader.address + start * self._size, below, x - n["pad_x"]

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Load, pack and store this thread's rows, 16 bytes at a time."""
        tile, image = self._loader.tile, self._bound.stages.at(w, stage.index)
        for piece in w.range(tile.row_bytes // PIECE, name="piece"):
            places = [self._next(w) for _ in range(PIECE // self._loader.width)]
            for line, pixel in zip(self._bound.lines, self._pixels, strict=True):
                with nullcontext() if tile.rows % (WARPS * w.lanes) == 0 else w.when(line < tile.rows):
                    values = [value for place in places for value in self._load(w, pixel, place)]
                    target = image + line * tile.row_bytes + tile.swizzled(piece * PIECE, line)
                    w.isa.memory.store_shared_b32x4(address=target, values=RegisterTile(self._packed(values)))

    def _next(self, w: Writer) -> tuple[Value, Value, Value, Value]:
        """Where a place lies from the first one, in bytes and pixels, and whether it is one; go on to the next."""
        at, n = self._at, self._loader.n
        apart = w.widen_multiply(at.down, n["line_pitch"]) + w.widen_multiply(at.right, n["pixel_pitch"])
        bytes_apart = (apart + w.widen_multiply(at.channel, 1)) * self._size
        found = bytes_apart, w.constant(U32, at.down), w.constant(U32, at.right), at.down < n["end_y"]
        at.advance(w)
        return found

    def _load(self, w: Writer, pixel: tuple[Value, Value, Value], place: tuple[Value, ...]) -> list[Value]:
        (start, y, x), (bytes_apart, down, right, there) = pixel, place
        inside = there & (y + down < self._loader.n["extent_y"]) & (x + right < self._loader.n["extent_x"])
        address = (start + bytes_apart).retyped(GMEM)
        if self._loader.width > WORD:
            return list(w.isa.memory.load_global_u32x2(address=address, valid=inside))
        return [getattr(w.isa.memory, f"load_global_u{8 * self._loader.width}")(address=address, valid=inside)]

    def _packed(self, values: list[Value]) -> list[Value]:
        """Four words of narrower values."""
        each = max(1, WORD // self._loader.width)
        words = [values[first : first + each] for first in range(0, len(values), each)]
        shift = 8 * self._loader.width
        return [reduce(lambda word, narrow: (word << shift) | narrow, reversed(one)) for one in words]
