"""Kernels of the emulator's corpus, which other compilers wrote, as launches to mutate."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tilekit.emulator import LaunchReport

from .mutation import Mutation, mutations

CORPUS = Path(__file__).parents[1] / "emulator" / "ptx" / "corpus"

KERNELS = {
    "triton/matmul_bias_relu-sm_80": "Triton, matmul through `cp.async`",
    "triton/attention-sm_80": "Triton, flash attention through `cp.async`",
    "triton/matmul_persistent-sm_90a": "Triton, persistent matmul, `cp.async` and wgmma",
    "triton/matmul_host_maps_128-sm_90a": "Triton, matmul with a ring of TMA loads, wgmma and a TMA store",
    "triton/matmul_grouped_maps-sm_90a": "Triton, grouped matmul with tensor maps made by the kernel",
    "triton/gluon_wgmma_ring-sm_90a": "Gluon, matmul with a ring of three stages",
    "triton/gluon_warp_specialized-sm_90a": "Gluon, warp-specialised matmul",
    "triton/gluon_multicast-sm_90a": "Gluon, multicast in a cluster of two",
    "triton/gluon_cluster_sum-sm_90a": "Gluon, sum through distributed shared memory",
    "triton/gluon_tcgen05-sm_100a": "Gluon, matmul on tcgen05",
    "triton/gluon_tcgen05_roles-sm_100a": "Gluon, warp-specialised matmul on tcgen05",
    "triton/gluon_two_ctas-sm_100a": "Gluon, tcgen05 by pairs of CTAs",
    "triton/gluon_clc-sm_100a": "Gluon, cluster launch control",
    "nvcc/async_copy_ring-sm_80": "nvcc, ring of `cp.async` copies",
    "nvcc/warp_roles-sm_90a": "nvcc, producer and consumer warps on named barriers",
    "nvcc/bulk_copies-sm_90a": "nvcc, bulk copies on mbarriers and a bulk reduction",
    "nvcc/tma_tile-sm_90a": "nvcc, TMA load and store",
    "nvcc/tensor_maps-sm_90a": "nvcc, tensor maps that one CTA makes for all",
    "nvcc/map_in_cluster-sm_90a": "nvcc, a tensor map that one CTA makes for its cluster",
    "nvcc/barrier_bytes-sm_90a": "nvcc, bulk copies into what were mbarriers",
    "nvcc/cluster_ring-sm_90a": "nvcc, `st.async` around a cluster",
    "nvcc/cluster_histogram-sm_90a": "nvcc, histogram in distributed shared memory",
}
"""The corpus cases that are mutated, and what they are."""

PROTOCOL = ("wait", "arrive", "expect_tx", "init", "fence", "wgmma", "group", "barrier", "cluster", "tcgen05", "cancel")
"""Families about order and protocol."""

FIRST_ONLY = ("descriptor", "multiply", "copy")
"""Families of what is moved and multiplied: only the first instruction of each opcode is mutated."""


@dataclass(frozen=True)
class ThirdParty:
    """A case of the corpus in the shape that `judge` takes."""

    name: str
    corpus_case: Any

    @property
    def text(self) -> str:
        """Its PTX as the compiler wrote it."""
        return str(self.corpus_case.path.read_text())

    def run(self, text: str, schedule: Any, seed: int) -> tuple[LaunchReport, bool]:
        """Launch `text` in the kernel's place; returns the report and whether the results are right.

        The inputs are drawn from `seed` too.
        """
        module = importlib.import_module("corpus_case")
        with TemporaryDirectory() as folder:
            path = Path(folder) / "mutant.ptx"
            path.write_text(text)
            report, launch = module.emulate(_moved(self.corpus_case, path), schedule=schedule, seed=seed)
        try:
            with np.errstate(all="ignore"):  # a broken kernel leaves NaNs
                module.compare(launch, report.printed)
        except AssertionError:
            return report, False
        return report, True


def _moved(case: Any, path: Path) -> Any:
    """The case with its text at another place."""
    moved = type("Mutant", (type(case),), {"path": path})
    return moved(case.name, case.target, case.draw)


@cache
def corpus() -> dict[str, ThirdParty]:
    """Every case of the corpus by name."""
    if str(CORPUS) not in sys.path:
        sys.path.insert(0, str(CORPUS))
    for source in sorted(CORPUS.glob("cases_*.py")):
        importlib.import_module(source.stem)
    return {str(case): ThirdParty(str(case), case) for case in importlib.import_module("corpus_case").CASES}


@cache
def kernels() -> dict[str, ThirdParty]:
    """The kernels by name."""
    return {name: corpus()[name] for name in KERNELS}


def chosen(kernel: ThirdParty) -> list[Mutation]:
    """Its mutations of order and protocol, and one of each kind of what is moved and multiplied."""
    seen: Counter[tuple[str, str]] = Counter()
    kept = []
    for mutation in mutations(kernel.text):
        kind = (mutation.instruction, mutation.change)
        if mutation.family in PROTOCOL or (mutation.family in FIRST_ONLY and not seen[kind]):
            kept.append(mutation)
        seen[kind] += 1
    return kept
