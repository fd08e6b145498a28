"""What `explain` says of a CDNA matmul alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target

if TYPE_CHECKING:
    from tilekit.kernels.matmul.cdna.config import CdnaConfig


def accumulators(spec: MatmulSpec, config: CdnaConfig) -> str:
    """Registers of a lane that multiplies."""
    return f"; accumulators {config.accumulators} a lane"


def tensor_memory(spec: MatmulSpec, config: CdnaConfig, chip: Target) -> list[str]:
    """There is none."""
    return []


def instructions(spec: MatmulSpec, config: CdnaConfig) -> str:
    """Those of a wave."""
    rows, columns = config.tile[0] // config.mma_waves, config.tile[1]
    return f", a wave {rows}x{columns}"


def rows(spec: MatmulSpec, config: CdnaConfig) -> list[str]:
    """Nothing: a tile has all rows of its instructions."""
    return []
