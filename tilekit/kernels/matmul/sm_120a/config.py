"""How a matmul kernel computes on RTX 50."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.kernels.matmul.warp_matrix.config import WarpMatrixConfig


@call_checked
@dataclass(frozen=True)
class Rtx50Config(WarpMatrixConfig):
    """One way to run a matmul on RTX 50 (sm_120a): the fields of a `WarpMatrixConfig`."""

    TARGET = "sm_120a"
