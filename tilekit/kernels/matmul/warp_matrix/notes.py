"""What `explain` says of a matmul by a warp's matrix instruction alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target

if TYPE_CHECKING:
    from tilekit.kernels.matmul.kernel import KernelText
    from tilekit.kernels.matmul.warp_matrix.config import WarpMatrixConfig


def accumulators(spec: MatmulSpec, config: WarpMatrixConfig) -> str:
    """Registers of a thread."""
    return f"; accumulators {config.accumulators} a thread"


def tensor_memory(spec: MatmulSpec, config: WarpMatrixConfig, chip: Target) -> list[str]:
    """There is none."""
    return []


def instructions(spec: MatmulSpec, config: WarpMatrixConfig) -> str:
    """Those of a warp."""
    rows, columns = (extent // warps for extent, warps in zip(config.tile, config.grid, strict=True))
    return f", {rows}x{columns} a warp"


def rows(spec: MatmulSpec, config: WarpMatrixConfig) -> list[str]:
    """Nothing: a tile has all rows of its instructions."""
    return []


def sections(spec: MatmulSpec, config: WarpMatrixConfig, text: KernelText) -> list[str]:
    """Nothing else."""
    return []
