"""What a convolution kernel computes: a matmul whose operands are loaded in another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tilekit.assembly.writer import Writer
from tilekit.errors import ArgumentError
from tilekit.kernels.conv2d.gather import GatherLoader, GatherPlan
from tilekit.kernels.conv2d.im2col import Im2colLoader
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_io.cp_async import CopyPlan
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tiles.operand import PLAIN_BYTES, SWIZZLE_BYTES, OperandTile, SwizzleBytes

SLICES: dict[SwizzleBytes, float] = {128: 1.0, 64: 1.1, 32: 1.5, 0: 2.5}
"""Swizzles by what a byte of K is taken to cost: the narrower its slices, the more lines the copy engine asks for.

Guessed from its rate of a line or so each clock, and not timed.
"""


def slice_for(channel_bytes: int, groups: int) -> SwizzleBytes:
    """The swizzle whose slices, filled up with zeros, cost least; of groups, channels fill them, or others' follow."""
    costs = {swizzle: -(-channel_bytes // (swizzle or PLAIN_BYTES)) * (swizzle or PLAIN_BYTES) for swizzle in SLICES}
    legal = [swizzle for swizzle, size in costs.items() if groups == 1 or size == channel_bytes]
    return min(legal, key=lambda swizzle: costs[swizzle] * SLICES[swizzle])


@dataclass(frozen=True)
class ConvSpec(MatmulSpec):
    """A convolution of images: ``A`` are they, as filters go over them, and ``B`` are the filters.

    Attributes
    ----------
    swizzle
        Bytes over which the image of A is swizzled, and of a slice of channels at one place (0: 16 bytes).
    im2col_b
        Whether filters are loaded like images, because their channels leave slices unfilled, or lie apart.
    """

    swizzle: int = SWIZZLE_BYTES
    im2col_b: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.swizzle not in SLICES:
            nearest = min(SLICES, key=lambda legal: abs(legal - self.swizzle))
            raise ArgumentError.of("swizzle", self.swizzle, legal="0, 32, 64, 128", nearest=nearest, code="TK-CONV-006")

    @property
    def gathers(self) -> bool:
        """Whether threads copy, on every chip."""
        return self.copies

    def swizzles(self, *, swapped: bool) -> tuple[SwizzleBytes, SwizzleBytes]:
        """Bytes over which the images of what the instruction takes as A and as B are swizzled."""
        images = cast(SwizzleBytes, self.swizzle)
        filters: SwizzleBytes = images if self.im2col_b else SWIZZLE_BYTES
        return (filters, images) if swapped else (images, filters)

    def copy_plan(self, tile: OperandTile, width: int) -> CopyPlan:
        """Which thread copies what of an operand that TMA refuses."""
        return GatherPlan(tile, width)

    def loader(
        self, operand: str, w: Writer, tile: OperandTile, copies: CopyPlan | None, stages: int, **tma: Any
    ) -> OperandLoader:
        """The loader of the images, or of the filters."""
        if copies is not None:
            return GatherLoader(w, copies, batched=self.batched)
        if operand == "a" or self.im2col_b:
            return Im2colLoader(w, tile, batched=self.batched, **tma)
        return super().loader(operand, w, tile, copies, stages, **tma)

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        if self.copies:
            return ("GatherLoader for TmaLoader: threads load images and filters",)
        filters = ("Im2colLoader for TmaLoader of filters too",) if self.im2col_b else ()
        return "Im2colLoader for TmaLoader: the copy engine goes over images", *filters

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile, for example ``conv2d_bf16_bf16_bf16_kk_relu``."""
        slices = "" if self.copies or self.swizzle == SWIZZLE_BYTES else f"_slices{self.swizzle or PLAIN_BYTES}"
        return super().name.replace("matmul", "conv2d", 1) + slices + ("_im2col_b" if self.im2col_b else "")
