"""A convolution on chips whose matrix instruction is one warp's: every warp of a CTA copies pixels and multiplies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.copied import PixelLoader, PixelPlan
from tilekit.kernels.conv2d.gather import GatherLoader, GatherPlan
from tilekit.kernels.conv2d.lines import LineLoader, LinePlan
from tilekit.kernels.conv2d.threads import ThreadSpec
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_io.copy_plan import WORD, CopyPlan
from tilekit.tile_io.cp_async import CopyWriter
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tiles.operand import OperandTile

LINE_REGISTERS, ELEMENT_REGISTERS, NARROW_REGISTERS = 72, 32, 8
"""Those of a thread that multiplies, too: for words of lines, for elements, and for narrow pieces or groups' residuals.

With fewer ptxas 13.5 spills for one chip or another, where there is a residual or a thread has two rows.
"""


@dataclass(frozen=True)
class CopiedSpec(ThreadSpec):
    """A convolution as `ConvSpec` has it, without a copy engine.

    ``a_load`` and ``b_load`` are ``"tma"`` where pieces of 16 bytes are whole. Filters whose K is contiguous, in such
    pieces, are a matrix, and loaded as one; else `im2col_b` says that they are images. `swizzle` and `block_bytes` are
    128.
    """

    by_engine = False

    def copy_plan(self, tile: OperandTile, width: int, **how: Any) -> CopyPlan:
        """Which thread copies what: pieces of pixels, or of filters; elements, where pieces are below a word."""
        if tile.name == "b" and not (self.im2col_b or self.lines):
            return MatmulSpec.copy_plan(self, tile, width, **how)
        return (
            PixelPlan(tile, width, **how) if width >= WORD and not self.lines else super().copy_plan(tile, width, **how)
        )

    def loader(
        self, operand: str, w: Writer, tile: OperandTile, copies: CopyPlan | None, stages: int, **tma: Any
    ) -> OperandLoader:
        """The loader of the images, or of the filters."""
        loader: GatherLoader
        match copies:
            case PixelPlan():
                return PixelLoader(w, copies, batched=self.batched)
            case LinePlan():
                loader = LineLoader(w, copies, batched=self.batched)
            case GatherPlan():
                loader = GatherLoader(w, copies, batched=self.batched)
            case _:
                return MatmulSpec.loader(self, operand, w, tile, copies, stages, **tma)
        loader.writer = CopyWriter(())  # its copies are made when it goes on; a group may hold the other operand's
        return loader

    @property
    def copying_registers(self) -> int:
        """Registers of a thread that copies and multiplies, beside those that pieces of 16 bytes take."""
        if self.lines:
            return LINE_REGISTERS
        if self.b_load != "tma" and not self.im2col_b:
            return super().copying_registers
        narrow = [load for load in self.loads if load != "tma"]
        if narrow and min(narrow) < WORD:
            return ELEMENT_REGISTERS
        return NARROW_REGISTERS if narrow or (self.batched and self.functions.residual is not None) else 0

    @property
    def finds(self) -> tuple[bool, bool]:
        """Whether the rows of A, and of B, are looked for one by one."""
        return True, self.im2col_b or self.lines

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        if self.lines:
            return ("LineLoader for CpAsyncLoader: threads load lines of images and filters",)
        kind = "PixelLoader for CpAsyncLoader: threads copy pieces of"
        gathered = "GatherLoader for CpAsyncLoader: threads load elements of"
        loads = (("pixels", self.a_load), *([("filters too", self.b_load)] if self.im2col_b else []))
        return tuple(f"{kind if load == 'tma' or load >= WORD else gathered} {what}" for what, load in loads)
