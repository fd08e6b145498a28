"""Copies of whole pieces of 16 bytes: without a branch, each ignores its source where the operand does not have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.assembly.types import GMEM
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.stage import Stage

if TYPE_CHECKING:
    from tilekit.tile_io.cp_async import BoundCpAsyncLoader


class PieceTile:
    """The copies of one tile: what its k-blocks have in common.

    Of a line of the image a thread knows how many lines of the operand are left from its own first one on, which is
    none for a piece that lies beside the operand.
    """

    def __init__(self, w: Writer, bound: BoundCpAsyncLoader, row: Value, batch: Operand) -> None:
        loader, plan = bound.loader, bound.plan
        self._bound = bound
        self._size = size = plan.tile.bits // 8
        matrix = loader.address
        if loader.batch_pitch is not None and isinstance(batch, Value):
            matrix = loader.address + w.widen_multiply(batch, loader.batch_pitch) * size
        self._length = loader.inner * size
        self._along_k = plan.tile.major == "k"
        first = bound.row + row if self._along_k else bound.row
        self._start = matrix + w.widen_multiply(first, loader.pitch) * size + w.widen_multiply(bound.offset, 1)
        if self._along_k:
            self._left = loader.outer - w.minimum(first, loader.outer)
            return
        self._start = self._start + w.widen_multiply(row, size)
        at = row * size + bound.offset
        self._exists = [at + block * plan.tile.row_bytes < self._length for block in range(plan.blocks)]

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this thread's copies to `stage` from element `k` on; they are in its open group."""
        bound, plan, loader = self._bound, self._bound.plan, self._bound.loader
        row_bytes = plan.tile.row_bytes
        image = bound.image(w, stage.index)
        source = self._start + w.widen_multiply(k, self._size if self._along_k else loader.pitch * self._size)
        step = w.widen_multiply(loader.pitch, plan.unit * self._size)
        left = self._lines_left(w, k)
        for index in range(plan.classes):
            line, after = bound.line + index, plan.row_after(index)
            address = source + w.widen_multiply(loader.pitch, after * self._size) if after else source
            target = image + line * row_bytes + plan.tile.swizzled(bound.offset, line)
            for turn in range(plan.block_lines // plan.unit):
                if turn > 0:
                    address = address + step
                for block, lines in enumerate(left):
                    w.ptx.cp_async.copy_16_unless(
                        dst=target + (block * plan.block_lines + turn * plan.unit) * row_bytes,
                        src=(address + block * row_bytes).retyped(GMEM),
                        ignored=lines <= after + turn * plan.unit,
                    )

    def _lines_left(self, w: Writer, k: Value) -> list[Value]:
        """Lines of the operand from this thread's first one on, for each block of the image; 0 beside the operand."""
        bound, loader = self._bound, self._bound.loader
        if not self._along_k:
            left = loader.outer - w.minimum(k + bound.row, loader.outer)
            return [w.select(exists, left, 0) for exists in self._exists]
        at = k * self._size + bound.offset
        blocks = range(0, bound.plan.blocks * bound.plan.tile.row_bytes, bound.plan.tile.row_bytes)
        return [w.select(at + block < self._length, self._left, 0) for block in blocks]
