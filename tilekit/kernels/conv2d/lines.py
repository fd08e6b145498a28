"""TileIO of convolutions by threads, a line of the filter at a time: for stems, whose channels are fewer than a word.

What a filter covers of a line of an image lies behind each other, pixels and channels alike. Seen in elements instead
of pixels it is one run, of 21 for 7 pixels of 3 channels, and K goes over runs, each filled up with zeros to whole
pieces of 16 bytes. A run begins at any element: a thread loads the words that it lies in, five for a piece, and shifts
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tilekit.assembly.types import GMEM
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.gather import GatheredRows, GatherLoader, GatherPlan
from tilekit.kernels.conv2d.im2col import Places
from tilekit.tile_io.copy_plan import PIECE, WORD
from tilekit.tiles.stage import Stage

COUNTING, LOADING = 17, 185
"""Clocks for a piece of a run, and for each row there (H200: 116 us with 128x64 tiles of a stem, 86 with 256x64)."""

PIECES_AT_ONCE, LINE_REGISTERS = 8, 88
"""Pieces whose words a thread has in hand, which is what it waits for together, and registers for them."""

NEGATIVE, ALL = 1 << 31, (1 << 32) - 1


@dataclass(frozen=True)
class LinePlan(GatherPlan):
    """Which thread copies what: whole rows, in pieces of 16 bytes."""

    @property
    def rows_each(self) -> int:
        """Rows of a thread."""
        return -(-self.tile.rows // (self.warps * 32))

    @property
    def registers(self) -> int:
        """Registers of a thread of the load role."""
        return LINE_REGISTERS

    @property
    def clocks(self) -> int:
        """Clocks of a stage."""
        return self.tile.row_bytes // PIECE * (COUNTING + self.rows_each * LOADING)


class LineLoader(GatherLoader):
    """Loads tiles of an operand of a convolution by threads, each piece of a run from the words that it lies in."""

    def __init__(self, w: Writer, plan: LinePlan, *, batched: bool) -> None:
        super().__init__(w, plan, batched=batched)
        self.rows = LineRows
        self.at_once = max(1, PIECES_AT_ONCE // plan.rows_each)


class LineRows(GatheredRows):
    """The rows of a thread in one tile.

    A word is loaded if any of it lies in the image and in the run. Of images that is all of it or nothing, but for the
    run's end, behind which what has been loaded is cleared: what is infinite there would not vanish by a filter's zero.
    """

    _loader: LineLoader

    def __init__(self, w: Writer, bound: Any, row: Value, batch: Any, k: Any) -> None:
        super().__init__(w, bound, row, batch, k)
        n, size = self._loader.n, self._size
        run, line = n["end_x"] * size, n["extent_x"] * size
        one_run: dict[str, Any] = {**n, "channels": n["end_x"], "taps_x": 1, "apart_x": 1, "end_x": 1}
        self._at = Places(w, one_run, k, PIECE // size)
        self._last_word, self._kept = run // WORD, (w.constant(run.type, 1) << run % WORD * 8) - 1
        self._spans = []
        for _, _, x in self._pixels:
            first, end = x * size, x * size + run
            start = w.select(first < NEGATIVE, first, 0)
            stop = w.select(end < line, end, w.select(end < NEGATIVE, line, 0))
            span = w.select(start < stop, stop - start + (WORD - 1), 0)
            self._spans.append((first - start + (WORD - 1), span))

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Load, shift and store this thread's rows, some pieces at a time."""
        image, at_once = self._bound.stages.at(w, stage.index), self._loader.at_once
        for first in w.range(self._loader.tile.row_bytes // PIECE, step=at_once, name="piece"):
            pieces = [self._piece(w) for _ in range(at_once)]
            for turn, words in enumerate(pieces):
                self._store(w, image, first + turn, words)

    def _piece(self, w: Writer) -> list[list[Value]]:
        """Load a piece of each of this thread's rows, and go on to the next one."""
        at, n, size = self._at, self._loader.n, self._size
        done = at.channel * size
        apart = w.widen_multiply(at.down, n["line_pitch"]) * size + w.widen_multiply(done, 1)
        there, last = at.down < n["end_y"], self._last_word - done // WORD
        kept = [w.select(last > i, ALL, w.select(last == i, self._kept, 0)) for i in range(PIECE // WORD)]
        found = []
        for (start, y, _), (lead, span) in zip(self._pixels, self._spans, strict=True):
            address = start + apart
            over = w.isa.convert.low_word(wide=address) % WORD
            room = w.select(there & (y + at.down < n["extent_y"]), span, 0)
            position, words = lead + done - over, []
            for word in range(PIECE // WORD + 1):
                source = ((address & -WORD) + word * WORD).retyped(GMEM)
                valid = position + word * WORD < room
                words.append(w.isa.memory.load_global_u32(address=source, valid=valid))
            shifted = [w.ptx.shift.across(low=low, high=high, bits=over * 8) for low, high in pairwise(words)]
            found.append([word & mask for word, mask in zip(shifted, kept, strict=True)])
        at.advance(w)
        return found
