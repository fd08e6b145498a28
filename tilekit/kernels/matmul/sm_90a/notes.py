"""What `explain` says of a Hopper matmul alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.wgmma import ATOM_ROWS

if TYPE_CHECKING:
    from tilekit.kernels.matmul.kernel import KernelText
    from tilekit.kernels.matmul.sm_90a.config import MatmulConfig


def accumulators(spec: MatmulSpec, config: MatmulConfig) -> str:
    """Registers of a consumer thread."""
    return f" after setmaxnreg; accumulators {config.accumulators} a thread" + (
        ", and as many for the sums of a k-block, which are added to them in f32" if spec.promoted else ""
    )


def tensor_memory(spec: MatmulSpec, config: MatmulConfig, chip: Target) -> list[str]:
    """There is none."""
    return []


def instructions(spec: MatmulSpec, config: MatmulConfig) -> str:
    """Nothing: the tile says it."""
    return ""


def rows(spec: MatmulSpec, config: MatmulConfig) -> list[str]:
    """Rows of an instruction that are not the tile's."""
    if not config.m_below_atom:
        return []
    own = config.tile[0]
    return [f"per k-block  instructions of {ATOM_ROWS} rows: {own} of A, the others of B, whose sums are not stored"]


def sections(spec: MatmulSpec, config: MatmulConfig, text: KernelText) -> list[str]:
    """Nothing else."""
    return []
