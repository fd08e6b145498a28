"""DeepGEMM's products with scales of blocks, whole and of groups; its kernels compile when first called.

The environment variable ``DEEP_GEMM_PEER`` may name a .py file that has its functions; else the package is imported.
Its kernels read A's scales where the rows of a k-block lie behind each other, as they do here, so nothing is laid out
in the time measured.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from tilekit.bench.blockwise import ScaledGroups, Scales
from tilekit.bench.entrants import Entrant

FILE = os.environ.get("DEEP_GEMM_PEER")


def _load() -> Any:
    if FILE is None:
        import deep_gemm

        return deep_gemm
    spec = importlib.util.spec_from_file_location("deep_gemm_peer", Path(FILE))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["deep_gemm_peer"] = module
    with warnings.catch_warnings():  # what it leaves open while it unpacks is no fault of its caller
        warnings.simplefilter("ignore", ResourceWarning)
        spec.loader.exec_module(module)
    return module


def _version() -> str:
    try:
        return version("deep_gemm")
    except PackageNotFoundError:
        return f"of {Path(FILE).name}" if FILE else "unknown"


deep_gemm = _load()
_rows: dict[tuple[int, ...], torch.Tensor] = {}


def launch(a: torch.Tensor, b: torch.Tensor, scales: Scales, out: torch.Tensor) -> None:
    """Enqueue the product; it takes B as (N, K)."""
    deep_gemm.fp8_gemm_nt((a, scales.a), (b.mT, scales.b), out)


def launch_grouped(a: torch.Tensor, b: torch.Tensor, groups: ScaledGroups, out: torch.Tensor) -> None:
    """Enqueue the product of every group: it wants each row's group, made once for a routing, or the mean of rows."""
    pairs: Any = (a, groups.scales.a), (b.mT, groups.scales.b), out
    if groups.counted:
        mean = -(-sum(groups.sizes) // len(groups.sizes))
        deep_gemm.m_grouped_fp8_gemm_nt_masked(*pairs, groups.bounds, mean)
        return
    if groups.sizes not in _rows:
        sizes = torch.tensor(groups.sizes)
        _rows[groups.sizes] = torch.repeat_interleave(torch.arange(len(sizes), dtype=torch.int32), sizes).cuda()
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*pairs, _rows[groups.sizes])


ENTRANTS = [Entrant("DeepGEMM", launch, "blockwise"), Entrant("DeepGEMM", launch_grouped, "grouped_blockwise")]
ABOUT = {"deep_gemm": _version()}
