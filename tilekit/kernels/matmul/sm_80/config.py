"""How a matmul kernel computes on A100."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.kernels.matmul.warp_matrix.config import WarpMatrixConfig


@call_checked
@dataclass(frozen=True)
class AmpereConfig(WarpMatrixConfig):
    """One way to run a matmul on A100 (sm_80): the fields of a `WarpMatrixConfig`."""

    TARGET = "sm_80"
