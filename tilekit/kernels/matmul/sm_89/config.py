"""How a matmul kernel computes on RTX 40."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.kernels.matmul.warp_matrix.config import WarpMatrixConfig


@call_checked
@dataclass(frozen=True)
class AdaConfig(WarpMatrixConfig):
    """One way to run a matmul on RTX 40 (sm_89): the fields of a `WarpMatrixConfig`."""

    TARGET = "sm_89"
