"""quack's matmul in the CuTe DSL; it tunes each shape by its own measurements when first called."""

from __future__ import annotations

from importlib.metadata import version

import torch
from quack.gemm_interface import gemm

from tilekit.bench.entrants import Entrant


def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Enqueue ``out = a @ b``."""
    gemm(a, b, out)


ENTRANTS = [Entrant("quack", launch)]
ABOUT = {"quack": version("quack-kernels")}
