"""A convolution whose operands threads load, since the copy engine refuses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.gather import GatherLoader, GatherPlan
from tilekit.kernels.conv2d.lines import LineLoader, LinePlan
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tiles.operand import OperandTile


@dataclass(frozen=True)
class ThreadSpec(ConvSpec):
    """A convolution as `ConvSpec` has it, with a loader of threads in the engine's place.

    Attributes
    ----------
    lines
        Whether they load a line of the filter at a time, whose channels are fewer than a word.
    """

    lines: bool = False

    def copy_plan(self, tile: OperandTile, width: int, **how: Any) -> CopyPlan:
        """Which thread copies what of an operand that TMA refuses."""
        return (LinePlan if self.lines else GatherPlan)(tile, width, **how)

    def loader(
        self, operand: str, w: Writer, tile: OperandTile, copies: CopyPlan | None, stages: int, **tma: Any
    ) -> OperandLoader:
        """The loader of the images, or of the filters."""
        if isinstance(copies, LinePlan):
            return LineLoader(w, copies, batched=self.batched)
        assert copies is not None, "both operands are loaded by threads"
        return GatherLoader(w, copies, batched=self.batched)

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        if self.lines:
            return ("LineLoader for TmaLoader: threads load lines of images and filters",)
        return ("GatherLoader for TmaLoader: threads load images and filters",)

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile, for example ``conv2d_bf16_bf16_bf16_kk_a4_b4_lines``."""
        return super().name + ("_lines" if self.lines else "")
