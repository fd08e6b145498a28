"""Streamed tiles: under many schedules, with residuals, launch after launch, always the same bits, and planted bugs."""

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
from tests.matmul.matmul_streamed import TILES, streamed_cases, streamed_cases_on_gpu
from tilekit import ElementwiseSpec, MatmulConfig, MatmulSpec
from tilekit.arrays import view_of
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, F32
from tilekit.emulator import Device, EmulatorError
from tilekit.epilogue.fixup import BoundFixup
from tilekit.epilogue.workspace import KEPT, BoundWorkspace, Slot
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.picker import ranked
from tilekit.kernels.problem import MatmulCall, output_matrix, read_problem
from tilekit.runtime.emulated import EmulatedModule
from tilekit.targets import SM_90A
from tilekit.tile_op.accumulators import AccumulatorTile
from tilekit.tile_schedule.stream_k import StreamShare

Array = NDArray[Any]

STREAMED = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, stream_k=8, stages=3)
SCHEDULES = (*(("adversarial", seed) for seed in range(4)), ("random", 0), ("random", 1), ("fair", 0))
SPEC = MatmulSpec(b_major="mn")


def integers(*shape: int, seed: int = 0) -> Array:
    """Small ones, in bf16."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(ml_dtypes.bfloat16)


def exact(a: Array, b: Array) -> Array:
    """The exact product in f32."""
    return np.matmul(a.astype(np.float32), b.astype(np.float32))


@pytest.mark.parametrize("schedule", ["cooperative", "pingpong"])
def test_residuals(schedule: Any) -> None:
    """The residual of a tile is loaded once, by the CTA that stores it."""
    functions = ElementwiseSpec(scale="value", bias=F32, activation="relu", residual=BF16)
    config = replace(STREAMED, schedule=schedule, consumers=2 if schedule == "pingpong" else 1)
    kernel = tilekit.compile(replace(SPEC, functions=functions), config=config)
    a, b, c = integers(130, 264), integers(264, 136, seed=1), integers(130, 136, seed=2)
    bias = np.arange(136, dtype=np.float32)
    expected = np.maximum(2 * exact(a, b) + bias + c.astype(np.float32), 0).astype(ml_dtypes.bfloat16)
    plan: Any = kernel.bind(a, b, scale=2.0, bias=bias, residual=c, multiprocessors=7)
    assert np.array_equal(plan(), expected)
    assert plan.report.clean, str(plan.report)


def test_threads_that_copy() -> None:
    """Operands that threads copy have their ranges of K, too."""
    kernel = tilekit.compile(MatmulSpec(a_load=2, b_load=2), config=STREAMED)
    a, b = integers(70, 304)[:, :303], integers(72, 304, seed=1)[:, :303].T
    plan: Any = kernel.bind(a, b, multiprocessors=3)
    assert np.array_equal(plan(), exact(a, b).astype(ml_dtypes.bfloat16))
    assert plan.report.clean, str(plan.report)


def test_shares_are_added_in_the_order_of_k() -> None:
    """Sums of normal numbers, which depend on their order, are added from the head on, bit for bit, always."""
    kernel = tilekit.compile(MatmulSpec(out_dtype="f32"), config=STREAMED)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, 1024), np.float32).astype(ml_dtypes.bfloat16) for rows in (64, 64))
    plain = tilekit.compile(MatmulSpec(out_dtype="f32"), config=replace(STREAMED, stream_k=0))
    shares = [plain.bind(a[:, k : k + 256], b[:, k : k + 256].T)() for k in range(0, 1024, 256)]
    expected = ((shares[0] + shares[1]) + shares[2]) + shares[3]
    assert not np.array_equal(expected, shares[0] + (shares[1] + (shares[2] + shares[3])))
    for schedule, seed in SCHEDULES:
        plan: Any = kernel.bind(a, b.T, seed=seed, schedule=schedule, multiprocessors=4)
        assert np.array_equal(plan().view(np.uint32), expected.view(np.uint32)), (schedule, seed)


def test_a_workspace_serves_launch_after_launch() -> None:
    """Four launches of two shapes in one workspace: each finds the counters at zero, whatever is left of the sums."""
    kernel = tilekit.compile(MatmulSpec(), config=STREAMED)
    device = Device("sm_90a", multiprocessors=5)
    module = EmulatedModule(device, kernel.ptx)
    scratch = {
        name: device.buffer(np.zeros(size, np.uint8), name) for name, size in (("turns", 64), ("workspace", 2**18))
    }
    for m, n, k, seed in ((200, 136, 328, 0), (64, 40, 520, 1), (200, 136, 328, 2), (330, 64, 264, 3)):
        a, b = integers(m, k, seed=seed), integers(n, k, seed=seed + 1)
        out = np.full((m, n), np.nan, ml_dtypes.bfloat16)
        views = [view_of(array) for array in (a, b.T, out)]
        buffers = [device.buffer(array) for array in (a, b, out)]
        launch = kernel.launch_of(
            MatmulCall(read_problem(*views[:2]), output_matrix(views[2])),
            Addresses(*(buffer.address for buffer in buffers)),
            5,
            lambda name, size: scratch[name].address,
        )
        prepared = module.kernel(kernel.name).prepare(kernel.launch_config(launch.grid), launch.parameters)
        prepared()
        assert prepared.report.clean, str(prepared.report)
        assert np.array_equal(buffers[2].read(), exact(a, b.T).astype(ml_dtypes.bfloat16))
        assert not scratch["turns"].read().any()
    assert scratch["workspace"].read().any()


@pytest.mark.gpu
def test_the_same_bits_a_hundred_times(torch: Any) -> None:
    """On a GPU too, with more tiles than multiprocessors and with fewer, and launches that follow each other."""
    for m, n, k in ((64, 2112, 8192), (1000, 2112, 4096)):
        a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, k, device="cuda").bfloat16()
        out = torch.empty(m, n, device="cuda")
        for config in (
            replace(STREAMED, swap_ab=True),
            replace(STREAMED, tile=(128, 128), consumers=2, stages=None),
            replace(STREAMED, tile=(128, 128), cluster=(2, 1), consumers=2, stages=None, stream_k=2),
        ):
            plan = tilekit.compile(MatmulSpec(out_dtype="f32"), config=config).bind(a, b.T, out)
            first = plan().clone()
            assert torch.allclose(first, a.float() @ b.T.float(), rtol=1e-2, atol=1)
            for _ in range(100):
                out.fill_(float("nan"))
                assert torch.equal(plan(), first)
            for _ in range(100):  # without anything in between, so that launches overlap
                plan()
            assert torch.equal(out, first)


def test_the_cases_cover_their_axes() -> None:
    """Every tile, cluster, schedule, store and number of ranges occurs; and no id twice."""
    for cases in (streamed_cases(), streamed_cases_on_gpu()):
        assert len({str(case) for case in cases}) == len(cases)
        configs = [c for case in cases if isinstance(c := case.kernel.config, MatmulConfig)]
        assert {config.tile for config in configs} == {tile for tile, _ in TILES}
        assert {config.stream_k for config in configs} == {1, 2, 4, 8}
        assert {config.cluster for config in configs} == {(1, 1), (2, 1), (1, 2)}
        assert {config.schedule for config in configs} == {"cooperative", "pingpong"}
        assert {config.swap_ab for config in configs} == {False, True} == {config.prefetch > 0 for config in configs}
        assert {case.kernel.direct for case in cases} == {False, True} == {case.kernel.batched for case in cases}


# -- what is chosen ---------------------------------------------------------------------------------------------------


def test_tuning_tries_what_is_not_picked() -> None:
    """No candidate streams; of what tuning tries beside them, those do that share tiles of the shape."""
    shape = {"m": 2048, "n": 2112, "k": 7168}
    known = [e.config for e in ranked(MatmulSpec(), SM_90A, **shape)]
    tried = [e.config for e in ranked(MatmulSpec(), SM_90A, **shape, tuning=True)]
    assert {config.stream_k for config in known} == {0}
    assert {config.stream_k for config in tried} == {0, 2, 8}
    assert all(config.legal(SM_90A, MatmulSpec()) for config in tried)
    assert any(config.stream_k for config in tried[:6])  # as many as tuning tries
    whole = {"m": 128 * 132, "n": 256, "k": 1024}  # 132 tiles of 128x256: nothing to stream for them
    streamed = [e.config for e in ranked(MatmulSpec(), SM_90A, **whole, tuning=True) if e.config.stream_k]
    assert {config.tile for config in streamed if config.cluster == (1, 1)}.isdisjoint({(128, 256), (64, 256)})


# -- planted bugs -----------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def no_wait_for_the_others(patch: pytest.MonkeyPatch) -> None:
    def add(self: BoundFixup, w: Writer, accumulators: AccumulatorTile, share: StreamShare) -> None:
        for other in w.range(share.others, name="other"):
            slot = self._workspace.slot(w, share.behind(other))
            for block, left, columns in self._workspace.pieces():
                slot.add_to(w, accumulators.read(w, block, left, columns), block, left)

    patch.setattr(BoundFixup, "_add_others", add)


def no_wait_for_the_warpgroup(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoundWorkspace, "meet", lambda self, w: None)


def said_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    def take(self: Slot, w: Writer, workspace: BoundWorkspace, accumulators: AccumulatorTile) -> None:
        workspace.meet(w)
        with w.when(workspace.first):
            w.isa.semaphore.release(address=self.counter, turn=KEPT)
        pieces = workspace.pieces()
        for piece in pieces:
            fragments = accumulators.read(w, *piece)
            if piece == pieces[-1]:
                accumulators.done(w)
            self.keep(w, fragments, *piece[:2])

    patch.setattr(Slot, "take", take)


def all_keep_in_one_slot(patch: pytest.MonkeyPatch) -> None:
    slot = BoundWorkspace.slot

    def first(self: BoundWorkspace, w: Writer, place: Value) -> Slot:
        return replace(slot(self, w, place), start=slot(self, w, place & 0).start)

    patch.setattr(BoundWorkspace, "slot", first)


PLANTED: tuple[tuple[Plant, str], ...] = (
    (no_wait_for_the_others, r"race: .*workspace"),
    (no_wait_for_the_warpgroup, r"race: .*workspace"),
    (said_before_it_is_kept, r"race: .*workspace"),
    (all_keep_in_one_slot, r"race: .*workspace"),
)
"""Each with what the emulator's report says."""


def planted(plant: Plant) -> MatmulKernel:
    """A kernel with a bug, traced past every cache."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return MatmulKernel(SPEC, STREAMED, SM_90A)


@pytest.mark.parametrize(("plant", "words"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_planted_bugs_are_reported(plant: Plant, words: str) -> None:
    """The emulator's report names the workspace, under one of six seeds."""
    kernel = planted(plant)
    a, b = integers(130, 392), integers(392, 136, seed=1)
    said = []
    for seed in range(6):
        try:
            plan: Any = kernel.bind(a, b, seed=seed, multiprocessors=7)
            plan.emulate()
        except EmulatorError as error:
            said.append(str(error))
        else:
            said += [] if plan.report.clean else [str(plan.report)]
        if said:
            break
    assert said, "nothing was found"
    assert re.search(words, said[0], re.DOTALL), said[0]
