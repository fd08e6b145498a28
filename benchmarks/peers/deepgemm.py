"""DeepGEMM: bf16 products, dense and of contiguous groups; its kernels compile when first called."""

from __future__ import annotations

from importlib.metadata import version

import deep_gemm
import torch

from tilekit.bench.entrants import Entrant
from tilekit.bench.row_groups import Groups

_rows: dict[tuple[int, ...], torch.Tensor] = {}


def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Enqueue ``out = a @ b``; it takes B as (N, K)."""
    deep_gemm.bf16_gemm_nt(a, b.mT, out)


def launch_grouped(a: torch.Tensor, b: torch.Tensor, groups: Groups, out: torch.Tensor) -> None:
    """Enqueue the product of every group; it wants each row's group, which is made once for a routing."""
    if groups.sizes not in _rows:
        sizes = torch.tensor(groups.sizes)
        _rows[groups.sizes] = torch.repeat_interleave(torch.arange(len(sizes), dtype=torch.int32), sizes).cuda()
    deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b.mT, out, _rows[groups.sizes])


ENTRANTS = [Entrant("DeepGEMM", launch), Entrant("DeepGEMM", launch_grouped, "grouped_matmul")]
ABOUT = {"deep_gemm": version("deep_gemm")}
