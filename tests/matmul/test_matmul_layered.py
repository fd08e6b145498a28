"""Sums that a cluster shares: under many schedules, with residuals, always the same bits, and with planted bugs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilekit
from tests.matmul.matmul_layered import TILES, layered_cases, layered_cases_on_gpu
from tilekit import ElementwiseSpec, MatmulConfig, MatmulSpec
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Writer
from tilekit.drivers.warp_specialized import WarpSpecialized
from tilekit.dtypes import BF16, F32
from tilekit.emulator import EmulatorError
from tilekit.epilogue.dsmem_reduction import BoundDsmemReduction, DsmemReduction
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.picker import ranked
from tilekit.targets import SM_90A
from tilekit.tile_op.accumulators import AccumulatorTile
from tilekit.tiles.cluster import Cluster

Array = NDArray[Any]

LAYERS = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, cluster_k=2, stages=3)
SCHEDULES = (*(("adversarial", seed) for seed in range(6)), *(("random", seed) for seed in range(5)), ("fair", 0))
SPEC = MatmulSpec(b_major="mn")


def integers(*shape: int, seed: int = 0) -> Array:
    """Small ones, in bf16."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(ml_dtypes.bfloat16)


def exact(a: Array, b: Array) -> Array:
    """The exact product in f32."""
    return np.matmul(a.astype(np.float32), b.astype(np.float32))


@pytest.mark.parametrize("cluster_k", [2, 4])
def test_residuals(cluster_k: int) -> None:
    """Each CTA gets the residual of the part that it stores."""
    functions = ElementwiseSpec(scale="value", bias=F32, activation="relu", residual=BF16)
    kernel = tilekit.compile(replace(SPEC, functions=functions), config=replace(LAYERS, cluster_k=cluster_k))
    a, b, c = integers(130, 264), integers(264, 136, seed=1), integers(130, 136, seed=2)
    bias = np.arange(136, dtype=np.float32)
    expected = np.maximum(2 * exact(a, b) + bias + c.astype(np.float32), 0).astype(ml_dtypes.bfloat16)
    plan: Any = kernel.bind(a, b, scale=2.0, bias=bias, residual=c, multiprocessors=cluster_k)
    assert np.array_equal(plan(), expected)
    assert plan.report.clean, str(plan.report)


def test_threads_that_copy() -> None:
    """Operands that threads copy have their ranges of K, too."""
    kernel = tilekit.compile(MatmulSpec(a_load=2, b_load=2), config=LAYERS)
    a, b = integers(70, 304)[:, :303], integers(72, 304, seed=1)[:, :303].T
    plan: Any = kernel.bind(a, b, multiprocessors=2)
    assert np.array_equal(plan(), exact(a, b).astype(ml_dtypes.bfloat16))
    assert plan.report.clean, str(plan.report)


def test_shares_are_added_in_one_order() -> None:
    """Sums of normal numbers, which depend on their order, are added in that of the ranks, bit for bit, always."""
    config = replace(LAYERS, cluster_k=4)
    kernel = tilekit.compile(MatmulSpec(out_dtype="f32"), config=config)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, 1024), np.float32).astype(ml_dtypes.bfloat16) for rows in (64, 64))
    plain = tilekit.compile(MatmulSpec(out_dtype="f32"), config=replace(config, cluster_k=1))
    shares = [plain.bind(a[:, k : k + 256], b[:, k : k + 256].T)() for k in range(0, 1024, 256)]
    expected = ((shares[0] + shares[1]) + shares[2]) + shares[3]
    assert not np.array_equal(expected, shares[0] + (shares[1] + (shares[2] + shares[3])))
    for schedule, seed in SCHEDULES:
        plan: Any = kernel.bind(a, b.T, seed=seed, schedule=schedule)
        assert np.array_equal(plan().view(np.uint32), expected.view(np.uint32)), (schedule, seed)


@pytest.mark.gpu
def test_the_same_bits_a_hundred_times(torch: Any) -> None:
    """On a GPU too."""
    a, b = torch.randn(64, 8192, device="cuda").bfloat16(), torch.randn(2112, 8192, device="cuda").bfloat16()
    out = torch.empty(64, 2112, device="cuda")
    for cluster_k in (2, 4, 8):
        config = replace(LAYERS, cluster_k=cluster_k, swap_ab=True)
        plan = tilekit.compile(MatmulSpec(out_dtype="f32"), config=config).bind(a, b.T, out)
        first = plan().clone()
        for _ in range(100):
            out.fill_(float("nan"))
            assert torch.equal(plan(), first)


def test_the_cases_cover_their_axes() -> None:
    """Every tile, number of CTAs, store and operand order occurs; and no id twice."""
    for cases in (layered_cases(), layered_cases_on_gpu()):
        assert len({str(case) for case in cases}) == len(cases)
        configs = [c for case in cases if isinstance(c := case.kernel.config, MatmulConfig)]
        assert {config.tile for config in configs} == {tile for tile, _ in TILES}
        assert {config.cluster_k for config in configs} == {2, 4, 8}
        assert {config.swap_ab for config in configs} == {False, True}
        assert {case.kernel.direct for case in cases} == {False, True} == {case.kernel.batched for case in cases}


# -- what is chosen ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cluster": (2, 1)}, ("cluster=(2, 1)", "share no operands", "nearest: cluster=(1, 1)")),
        ({"split_k": 2}, ("split_k=2", "in one way only", "nearest: split_k=1")),
        ({"schedule": "pingpong", "consumers": 2}, ("schedule='pingpong'", "nearest: schedule='cooperative'")),
        ({"cluster_k": 3}, ("cluster_k=3: 1, 2, 4 or 8 CTAs", "nearest: cluster_k=4")),
        ({"tile": (64, 40), "cluster_k": 9}, ("cluster_k=9: 1, 2, 4 or 8 CTAs", "nearest: cluster_k=8")),
        ({"tile": (256, 128), "consumers": 2, "output_buffers": 8}, ("shared memory",)),
    ],
    ids=str,
)
def test_rules(change: dict[str, Any], says: tuple[str, ...]) -> None:
    """What does not go with a shared sum is named, with the nearest value that does."""
    found = "; ".join(replace(LAYERS, **change).problems(SM_90A))
    assert [part for part in says if part not in found] == [], found


def test_parts_are_whole_boxes() -> None:
    """As many CTAs store equal parts as there are; each is a row of a stored box at least, and has its residual."""
    few = replace(LAYERS, tile=(64, 24), cluster_k=8)
    assert not few.problems(SM_90A)
    (problem,) = few.problems(SM_90A, MatmulSpec(out_dtype="e4m3"))
    assert "tile N=24" in problem
    (problem,) = few.problems(SM_90A, MatmulSpec(functions=ElementwiseSpec(residual=BF16)))
    assert "with a residual each of 8 CTAs stores a part" in problem


def test_groups_are_refused() -> None:
    """Groups of rows have a schedule without shares."""
    (problem,) = LAYERS.problems(SM_90A, MatmulSpec(groups="ends"))
    assert "cluster_k=2" in problem
    assert problem.endswith("nearest: cluster_k=1")


def test_tuning_tries_what_is_not_picked() -> None:
    """Narrow candidates share sums in clusters of up to eight; so do wider ones that tuning tries beside them."""
    shape = {"m": 64, "n": 2112, "k": 7168}
    known = [e.config for e in ranked(MatmulSpec(), SM_90A, **shape)]
    tried = [e.config for e in ranked(MatmulSpec(), SM_90A, **shape, tuning=True)]
    shared = {(layers, True) for layers in (2, 4, 8)}
    assert {(config.cluster_k, config.tile[1] <= 64) for config in known} == {(1, True), (1, False), *shared}
    assert {config.cluster_k for config in tried} == {1, 2, 4, 8}
    assert all(config.legal(SM_90A, MatmulSpec()) for config in tried)


def test_explain() -> None:
    """The map has the parts and their barriers, with bytes and arrivals."""
    text = tilekit.compile(MatmulSpec(), config=replace(LAYERS, cluster_k=4)).explain()
    assert "cluster 1x1x4 along K" in text
    assert re.search(r"16384  sum\.part", text)
    assert re.search(r"sum\.full\[1\] +1 +16384 ", text)
    assert re.search(r"sum\.empty\[1\] +16 +- +mma of 4 CTAs", text)


# -- planted bugs -----------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]
send, part = BoundDsmemReduction._send, DsmemReduction.part


def no_wait_for_the_readers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoundDsmemReduction, "_await_readers", lambda self, w: None)


def no_wait_for_the_shares(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoundDsmemReduction, "_await_shares", lambda self, w: None)


def one_cta_is_not_sent_to(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: BoundDsmemReduction, w: Writer, accumulators: AccumulatorTile, rank: int) -> None:
        if rank != 1:
            send(self, w, accumulators, rank)

    patch.setattr(BoundDsmemReduction, "_send", forgetful)


def released_without_the_warp(patch: pytest.MonkeyPatch) -> None:
    def release(self: BoundDsmemReduction, w: Writer) -> None:
        w.ptx.mbarrier.arrive_remote(bar=self._released, active=self._releases)

    patch.setattr(BoundDsmemReduction, "release", release)


def released_here_only(patch: pytest.MonkeyPatch) -> None:
    def release(self: BoundDsmemReduction, w: Writer) -> None:
        w.warp_sync()
        w.ptx.mbarrier.arrive(bar=self._empty, active=w.lane() == 0)

    patch.setattr(BoundDsmemReduction, "release", release)


def no_wait_at_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WarpSpecialized, "_tear_down", lambda self, w, warp: None)


def ctas_wait_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cluster, "sync", lambda self, w, threads: w.barrier(id=0, threads=threads))


def all_send_to_one_slot(patch: pytest.MonkeyPatch) -> None:
    def same(self: BoundDsmemReduction, w: Writer, accumulators: AccumulatorTile, rank: int) -> None:
        s, position = self._s, self._s.cluster
        s.cluster = replace(position, rank=w.constant(U32, 0))
        send(self, w, accumulators, rank)
        s.cluster = position

    patch.setattr(BoundDsmemReduction, "_send", same)


PLANTED: tuple[tuple[Plant, str], ...] = (
    (no_wait_for_the_readers, r"race: sum\.part"),
    (no_wait_for_the_shares, r"sum\.part"),
    (one_cta_is_not_sent_to, r"deadlock: .*role mma .*waits for sum\.full"),
    (released_without_the_warp, r"race|bar\.warp\.sync|lanes"),
    (released_here_only, r"deadlock: .*role mma .*waits for sum\.empty"),
    (no_wait_at_the_end, r"exited|has ended|sum\.(empty|full)"),
    (ctas_wait_alone, r"initialis|exited|has ended"),
    (all_send_to_one_slot, r"race: sum\.part"),
)
"""Each with what the emulator's report says."""


def planted(plant: Plant) -> MatmulKernel:
    """A kernel with a bug, traced past every cache."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return MatmulKernel(SPEC, LAYERS, SM_90A)


@pytest.mark.parametrize(("plant", "words"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_planted_bugs_are_reported(plant: Plant, words: str) -> None:
    """The emulator's report names the barrier or the slots, under one of six seeds."""
    kernel = planted(plant)
    a, b = integers(130, 392), integers(392, 136, seed=1)
    said = []
    for seed in range(6):
        try:
            plan: Any = kernel.bind(a, b, seed=seed, multiprocessors=2)
            plan.emulate()
        except EmulatorError as error:
            said.append(str(error))
        else:
            said += [] if plan.report.clean else [str(plan.report)]
        if said:
            break
    assert said, "nothing was found"
    assert re.search(words, said[0], re.DOTALL), said[0]


def test_parts_in_the_wrong_place_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are all stored at the first one's columns race there; two parts on, the result is wrong."""
    a, b = integers(64, 128), integers(128, 64, seed=1)
    factor = 0
    monkeypatch.setattr(
        DsmemReduction,
        "part",
        lambda self, tile: replace(tile, column=tile.column + self.cluster.k_rank * (factor * self.layout.columns)),
    )
    with pytest.raises(EmulatorError, match=r"race: [\s\S]*TMA store"):
        MatmulKernel(SPEC, LAYERS, SM_90A).bind(a, b)()
    factor = 2
    out = np.zeros((64, 64), ml_dtypes.bfloat16)
    MatmulKernel(SPEC, LAYERS, SM_90A).bind(a, b, out)()
    right = exact(a, b).astype(ml_dtypes.bfloat16)
    assert np.array_equal(out[:, :32], right[:, :32])
    assert not out[:, 32:].any()
