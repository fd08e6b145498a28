"""How a matmul kernel computes on RTX 30."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.kernels.matmul.warp_matrix.config import WarpMatrixConfig


@call_checked
@dataclass(frozen=True)
class Rtx30Config(WarpMatrixConfig):
    """One way to run a matmul on RTX 30 (sm_86): the fields of a `WarpMatrixConfig`."""

    TARGET = "sm_86"
