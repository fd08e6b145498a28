"""What a convolution kernel computes: a matmul whose operands are loaded in another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.chips import OfImages
from tilekit.kernels.conv2d.im2col import Im2colLoader
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tiles.operand import PLAIN_BYTES, SWIZZLE_BYTES, OperandTile, SwizzleBytes


@dataclass(frozen=True)
class ConvSpec(OfImages):
    """A convolution of images: ``A`` are they, as filters go over them, and ``B`` are the filters.

    Attributes
    ----------
    swizzle
        Bytes over which the image of A is swizzled, and of a slice of channels at one place (0: 16 bytes).
    im2col_b
        Whether filters are loaded like images, because their channels leave slices unfilled, or lie apart.
    block_bytes
        Bytes of K in a stage: whole slices, of which as few as can be lie behind the last place.
    """

    swizzle: int = SWIZZLE_BYTES
    im2col_b: bool = False
    block_bytes: int = SWIZZLE_BYTES

    def swizzles(self, *, swapped: bool) -> tuple[SwizzleBytes, SwizzleBytes]:
        """Bytes over which the images of what the instruction takes as A and as B are swizzled."""
        images = cast(SwizzleBytes, self.swizzle)
        alike = self.im2col_b or self.block_bytes % SWIZZLE_BYTES
        filters: SwizzleBytes = images if alike else SWIZZLE_BYTES
        return (filters, images) if swapped else (images, filters)

    def loader(
        self, operand: str, w: Writer, tile: OperandTile, copies: CopyPlan | None, stages: int, **tma: Any
    ) -> OperandLoader:
        """The loader of the images, or of the filters."""
        if operand == "a" or self.im2col_b:
            return Im2colLoader(w, tile, batched=self.batched, **tma)
        return super().loader(operand, w, tile, copies, stages, **tma)

    @property
    def finds(self) -> tuple[bool, bool]:
        """Whether the copy engine looks for the rows of A, and of B, one by one."""
        return not self.copies, self.im2col_b

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        images = "Im2colLoader for TmaLoader: the copy engine goes over images"
        return images, *(("Im2colLoader for TmaLoader of filters too",) if self.im2col_b else ())

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile, for example ``conv2d_bf16_bf16_bf16_kk_relu``."""
        size = self.swizzle or PLAIN_BYTES
        slices = "" if self.copies or size == SWIZZLE_BYTES else f"_slices{self.block_bytes // size}x{size}"
        return super().name.replace("matmul", "conv2d", 1) + slices + ("_im2col_b" if self.im2col_b else "")
