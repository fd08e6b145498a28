"""What a block-scaled matmul kernel computes: a matmul with another payload and another instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import E4M3, DType
from tilekit.errors import ArgumentError
from tilekit.kernels.block_scaled.scaling_chips import require_scales, scale_loaders
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.payload_loader import TileLoader
from tilekit.tile_op.block_scaled import ATOM_ROWS, FORMATS, BlockScaledTcgen05, ScaleFormat
from tilekit.tile_op.scaled_mfma import ScaledMfma
from tilekit.tile_pipeline.payload import StageTile
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.scale_tile import ScaleTile


@dataclass(frozen=True)
class BlockScaledSpec(MatmulSpec):
    """A matmul of operands whose blocks of K have scales, which lie as the tensor core reads them.

    Attributes
    ----------
    a_dtype, b_dtype
        e4m3 and e5m2, or pairs of e2m1.
    scaled
        The format: its blocks, and the type of their scales.
    """

    a_dtype: DType = E4M3
    b_dtype: DType = E4M3
    scaled: Literal["mxfp8", "mxfp4", "nvfp4"] = "mxfp8"
    tile_step = ATOM_ROWS
    k_major = True

    @property
    def format(self) -> ScaleFormat:
        """The format's numbers."""
        return FORMATS[self.scaled]

    def check_types(self) -> None:
        for name in "ab":
            if (dtype := getattr(self, f"{name}_dtype")).name not in self.format.types:
                raise ArgumentError.of(name, dtype, legal=", ".join(self.format.types), code="TK-SCALE-001")

    def check(self, target: Target) -> None:
        """Raise `ArgumentError` for a chip without such an instruction, and what the matmul raises."""
        require_scales(self.scaled, self.format, target)
        super().check(target)

    def further_tiles(self, config: Any) -> Sequence[StageTile]:
        """What a stage holds beside A and B: their scales."""
        return cast(Sequence[StageTile], config.instruction(self).scales)

    def further_loaders(self, w: Writer, op: Any, payload: Any, *, swapped: bool, role: Role) -> Sequence[TileLoader]:
        """The loaders of the scales."""
        return scale_loaders(w, op, self.format, "ba" if swapped else "ab", role)

    def tensor_op(self, a: OperandTile, b: OperandTile, *, group: int) -> BlockScaledTcgen05:
        """The instruction, which takes scales too."""
        return BlockScaledTcgen05(a, b, group=group, scaled=self.format)

    def wave_op(self, a: OperandTile, b: OperandTile, *, waves: int, columns: int, pieces: int) -> ScaledMfma:
        """The instruction of chips whose waves multiply, which takes scales too."""
        scales = ScaleTile("scale_a", a), ScaleTile("scale_b", b)
        return ScaledMfma(*scales, waves=waves, columns=columns, pieces=pieces)

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        return (
            "StandardPayload with a ScaleTile of each operand, which ScaleLoader (WaveScaleLoader) loads",
            "BlockScaledTcgen05 for Tcgen05 (ScaledMfma for Mfma): scales in tensor memory (in registers)",
        )

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile, for example ``scaled_matmul_nvfp4_e2m1x2_e2m1x2_bf16_kk``."""
        return super().name.replace("matmul", f"scaled_matmul_{self.scaled}", 1)
