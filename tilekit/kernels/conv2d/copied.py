"""TileIO of convolutions by asynchronous copies, for chips without an engine that goes over images.

A thread copies one piece of a line of the tile's image, and of every line that `CopyPlan` gives it the same piece. What
lies there is at a place of the filter, and at channels there, that the thread counts as it goes: a number of mixed
radix, to which that of a whole k-block is added. Where the filter of each line begins in memory, and in its image, a
warp notes in shared memory once a tile: a line is shared by the lanes that copy its pieces, and registers are few.

Each copy ignores its source where the image, or the filter, ends, and fills its piece with zeros.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

from tilekit.assembly.shared import SharedArray, SharedDeclaration
from tilekit.assembly.types import B32, GMEM, U32
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.gather import GatheredRows, GatherLoader
from tilekit.kernels.conv2d.im2col import Places
from tilekit.kernels.conv2d.images import images_of
from tilekit.tile_io.copy_plan import SWIZZLE_LINES, CopyPlan
from tilekit.tile_io.cp_async import CopyWriter
from tilekit.tiles.call import Call
from tilekit.tiles.cluster import Multicast, require_alone
from tilekit.tiles.stage import Stage

NOTE_BYTES = 16
"""What is noted of a line: where its filter begins in memory (two words), and down and along in its image."""

WORD_BITS = 32


COUNTING, COPYING = 30, 13
"""Instructions of a thread for a stage, and for each of its pieces there; a count of the machine code, not timed."""


class PixelPlan(CopyPlan):
    """Which thread copies what: as of a matrix, in pieces of 16, 8 or 4 bytes."""

    @property
    def clocks(self) -> int:
        """Instructions of a warp for a stage."""
        return COUNTING + self.classes * (self.lines // self.unit) * COPYING

    def kept(self, name: str) -> tuple[SharedDeclaration, ...]:
        """The notes of all lines."""
        return (SharedDeclaration(f"{name}.{self.tile.name}_pixels", NOTE_BYTES, self.lines),)


class PixelLoader(GatherLoader):
    """Loads tiles of an operand of a convolution by asynchronous copies of threads that do other work, too.

    Parameters
    ----------
    w, plan, batched
        As of a `GatherLoader`.
    """

    def __init__(self, w: Writer, plan: PixelPlan, *, batched: bool) -> None:
        super().__init__(w, plan, batched=batched)
        plan.check()
        name = plan.tile.name
        (kept,) = plan.kept("inputs")
        self.notes = w.shared.place(kept)
        digits = ("channel", "right", "down")
        self.block = {digit: w.parameter(f"{name}_block_{digit}", U32, partial(self._digit, digit)) for digit in digits}

    def _digit(self, which: str, call: Call) -> int:
        """A k-block as channels, and as pixels to the right and down: one of the three."""
        images = images_of(call, self.tile.name)
        places, channel = divmod(self.tile.k, images.channels)
        lines, right = divmod(places, images.x.taps)
        return {"channel": channel, "right": right * images.x.apart, "down": lines * images.y.apart}[which]

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundPixelLoader:  # type: ignore[override]
        """Which pieces a thread has; once a role."""
        require_alone(self, self.tile.name, multicast)
        return BoundPixelLoader(w, self, stages)


class BoundPixelLoader:
    """A `PixelLoader` in a role of as many warps as its plan has.

    Attributes
    ----------
    offset
        The first byte of this thread's pieces in their lines.
    first, line
        First line of the warp's first class, and of this thread's in it; the next class begins a line on.
    lines, noted
        Lines that the thread makes notes of, and where.
    """

    completes = False

    def __init__(self, w: Writer, loader: PixelLoader, stages: SharedArray) -> None:
        self.loader, self.stages, plan = loader, stages, loader.plan
        lane, copies = w.lane(), plan.tile.row_bytes // plan.copied
        self.offset = (lane % copies) * plan.copied
        self.first = (w.warp() % plan.warps) * plan.classes
        self.line = self.first + (lane // copies) * SWIZZLE_LINES
        self.writer = CopyWriter((self,))
        notes = loader.notes.at(w, w.constant(U32, 0)) + self.first * (plan.lines // SWIZZLE_LINES) * NOTE_BYTES
        self.notes = notes + (lane // copies) * NOTE_BYTES
        each = plan.lines // SWIZZLE_LINES
        own = [lane + more for more in range(0, each * plan.classes, w.lanes)]
        self.lines = [self.first + index // each + index % each * SWIZZLE_LINES for index in own]
        self.noted = [notes + index * NOTE_BYTES for index in own]
        self.exists = [index < each * plan.classes for index in own]

    def complete(self, w: Writer, stage: Value) -> None:
        """Nothing: pieces land where they belong."""

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> PixelRows:
        """Turn to the rows of a tile."""
        return PixelRows(w, self, row, batch, k)


class PixelRows(GatheredRows):
    """The copies of one tile: the notes of its lines, and the place of the filter that this thread's pieces are at."""

    _bound: BoundPixelLoader  # type: ignore[assignment]
    _loader: PixelLoader

    def __init__(self, w: Writer, bound: Any, row: Value, batch: Operand, k: Operand) -> None:
        super().__init__(w, bound, row, batch, k)
        loader = bound.loader
        w.warp_sync()  # every lane has read what was noted of the tile before
        whole = loader.plan.lines // loader.plan.warps % w.lanes == 0
        for address, exists, (start, y, x) in zip(bound.noted, bound.exists, self._pixels, strict=True):
            words = [w.isa.convert.low_word(wide=word) for word in (start, start >> WORD_BITS)]
            with nullcontext() if whole else w.when(exists):
                values = RegisterTile([word.retyped(B32) for word in (*words, y, x)])
                w.isa.memory.store_shared_b32x4(address=address, values=values)
        w.warp_sync()

    def _first_place(self, w: Writer, k: Operand) -> Places:
        return Digits(w, self._loader, self._bound.offset // self._size + k)

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this thread's copies to `stage`, and go on to the next k-block; they are in its open group."""
        bound, plan, n, at = self._bound, self._loader.plan, self._loader.n, self._at
        image, row_bytes = bound.stages.at(w, stage.index), plan.tile.row_bytes
        apart = w.widen_multiply(at.down, n["line_pitch"]) + w.widen_multiply(at.right, n["pixel_pitch"])
        bytes_apart, there = (apart + w.widen_multiply(at.channel, 1)) * self._size, at.down < n["end_y"]
        copy = getattr(w.ptx.cp_async, f"copy_{plan.copied}_unless")
        for index in range(plan.classes):
            line = bound.line + index
            target = image + line * row_bytes + plan.tile.swizzled(bound.offset, line)
            for turn in range(0, plan.lines, plan.unit):
                noted = bound.notes + (index * plan.lines + turn) // SWIZZLE_LINES * NOTE_BYTES
                low, high, *corner = (word.retyped(U32) for word in w.isa.memory.load_shared_b32x4(address=noted))
                start = (w.widen_multiply(high, 1) << WORD_BITS) + w.widen_multiply(low, 1)
                y, x = corner
                inside = there & (y + at.down < n["extent_y"]) & (x + at.right < n["extent_x"])
                copy(dst=target + turn * row_bytes, src=(start + bytes_apart).retyped(GMEM), ignored=~inside)
        at.advance(w)


class Digits(Places):
    """Where in the filter a thread's pieces are: their channel, and so many pixels right of its first place and below.

    Parameters
    ----------
    w, loader
        The writer, and the loader, which has the numbers.
    k
        The pieces' first element of K.
    """

    def __init__(self, w: Writer, loader: PixelLoader, k: Value) -> None:
        super().__init__(w, loader.n, k, 1)
        self._block = loader.block

    def advance(self, w: Writer) -> None:
        """Add a k-block: no digit is carried over twice, since both numbers' are below the radix."""
        n, block = self._n, self._block
        channel = self.channel + block["channel"]
        over = channel >= n["channels"]
        self.channel.assign(channel - w.select(over, n["channels"], 0))
        right = self.right + block["right"] + w.select(over, n["apart_x"], 0)
        over = right >= n["end_x"]
        self.right.assign(right - w.select(over, n["end_x"], 0))
        self.down.assign(self.down + block["down"] + w.select(over, n["apart_y"], 0))
