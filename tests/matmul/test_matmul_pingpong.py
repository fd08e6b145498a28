"""Consumers with whole tiles each: with residuals and groups, and when a hand-over goes wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilekit
from tests.matmul.matmul_pingpong import MULTIPROCESSORS, TILES, pingpong_cases, pingpong_cases_on_gpu
from tilekit import ElementwiseSpec, MatmulConfig, MatmulSpec
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role
from tilekit.drivers.consumer_schedule import BoundPingPong
from tilekit.dtypes import BF16, F32
from tilekit.emulator import EmulatorError
from tilekit.emulator.ptx.chips import CHIPS
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.targets import SM_90A
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_pipeline.position import RingPosition

Array = NDArray[Any]

TURNS = MatmulConfig(tile=(64, 64), cluster=(1, 1), schedule="pingpong", stages=3)
SPEC = MatmulSpec(b_major="mn")


def integers(*shape: int, seed: int = 0) -> Array:
    """Small ones, in bf16."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(ml_dtypes.bfloat16)


def exact(a: Array, b: Array) -> Array:
    """The exact product in f32."""
    return np.matmul(a.astype(np.float32), b.astype(np.float32))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize("split_k", [1, 3])
def test_residuals(consumers: int, split_k: int) -> None:
    """Each warpgroup gets the residual of its own tiles, also where only the last share of a tile has one."""
    functions = ElementwiseSpec(scale="value", bias=F32, activation="relu", residual=BF16)
    config = replace(TURNS, consumers=consumers, split_k=split_k, output_buffers=1 + consumers % 2)
    kernel = tilekit.compile(replace(SPEC, functions=functions), config=config)
    a, b, c = integers(330, 264), integers(264, 136, seed=1), integers(330, 136, seed=2)
    bias = np.arange(136, dtype=np.float32)
    expected = np.maximum(2 * exact(a, b) + bias + c.astype(np.float32), 0).astype(ml_dtypes.bfloat16)
    for seed in range(2):
        plan: Any = kernel.bind(a, b, scale=2.0, bias=bias, residual=c, seed=seed, multiprocessors=2)
        assert np.array_equal(plan(), expected)
        assert plan.report.clean, str(plan.report)


@pytest.mark.parametrize("config", [TURNS, replace(TURNS, tile=(128, 64), cluster=(1, 2), stages=2)], ids=str)
@pytest.mark.parametrize("target", ["sm_90a", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_groups(
    config: MatmulConfig, target: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Groups that end anywhere, empty ones too: their tiles take turns like others."""
    if target == "cuda":
        request.getfixturevalue("torch")
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], sms=MULTIPROCESSORS))
    sizes = [100, 0, 37, 300, 128] if target == "sm_90a" else [1000, 0, 37, 3000, 128, 5000]
    ends = np.cumsum(sizes).astype(np.int32)
    a, b = integers(int(ends[-1]) + 13, 200), integers(len(sizes), 200, 136, seed=1)
    out = np.full((len(a), 136), 7, ml_dtypes.bfloat16)
    expected = out.copy()
    for group, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        expected[end - size : end] = exact(a[end - size : end], b[group]).astype(ml_dtypes.bfloat16)
    tilekit.grouped_matmul(a, b, ends, out=out, config=config, target=target)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("loads", [(2, 2), (8, "tma")], ids=str)
def test_threads_that_copy(loads: tuple[Any, Any]) -> None:
    """Where the load role's threads copy, what they hand over is taken in turn."""
    kernel = tilekit.compile(MatmulSpec(a_load=loads[0], b_load=loads[1]), config=TURNS)
    a, b = integers(200, 204)[:, : 203 if loads[0] == 2 else 204], integers(72, 208, seed=1)[:, :203].T
    a, b = (a, b) if loads[0] == 2 else (a, integers(72, 208, seed=1)[:, :204].T)
    plan: Any = kernel.bind(a, b, multiprocessors=1)
    assert np.array_equal(plan(), exact(a, b).astype(ml_dtypes.bfloat16))
    assert plan.report.clean, str(plan.report)


def test_the_cases_cover_their_axes() -> None:
    """Every tile, cluster, kind of share, store and operand order occurs; and no id twice."""
    for cases in (pingpong_cases(), pingpong_cases_on_gpu()):
        assert len({str(case) for case in cases}) == len(cases)
        configs = [c for case in cases if isinstance(c := case.kernel.config, MatmulConfig)]
        assert {config.tile for config in configs} == {tile for tile, _ in TILES}
        assert {config.schedule for config in configs} == {"pingpong"}
        for field, values in (
            ("cluster", {(1, 1), (2, 1), (1, 2)}),
            ("split_k", {1, 2, 3}),
            ("k_group", {1, 2}),
            ("in_flight", {0, 1}),
            ("consumers", {2, 3}),
            ("swap_ab", {False, True}),
        ):
            assert {getattr(config, field) for config in configs} == values
        assert {case.kernel.direct for case in cases} == {False, True} == {case.kernel.batched for case in cases}


# -- planted bugs -----------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]
skip, tile, hand_over = RingPosition.skip, BoundPingPong.tile, BoundPingPong.hand_over


def no_hand_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoundPingPong, "hand_over", lambda self: None)


def handed_over_before_the_main_loop(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def early(self: BoundPingPong, *arguments: Any) -> Iterator[None]:
        with tile(self, *arguments):
            hand_over(self)
            yield

    def only_first(self: BoundPingPong) -> None:
        if not hasattr(self, "_begun"):
            self._begun = True  # type: ignore[attr-defined]
            hand_over(self)

    patch.setattr(BoundPingPong, "tile", early)
    patch.setattr(BoundPingPong, "hand_over", only_first)


def handed_over_to_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        BoundPingPong,
        "hand_over",
        lambda self: self._w.barrier_arrive(id=self._own, threads=self._threads),
    )


def _turns_of(patch: pytest.MonkeyPatch, threads: int) -> None:
    """Barriers of so many threads, where two warpgroups of 128 meet."""
    patch.setattr(BoundPingPong, "_threads", property(lambda self: threads, lambda self, given: None), raising=False)


def a_turn_for_three(patch: pytest.MonkeyPatch) -> None:
    _turns_of(patch, 384)


def a_turn_without_hand_over(patch: pytest.MonkeyPatch) -> None:
    _turns_of(patch, 128)


def stages_not_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RingPosition, "skip", lambda self, count: None)


def one_stage_too_many_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RingPosition, "skip", lambda self, count: skip(self, count + 1))


def one_tile_too_many_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RingPosition, "skip", lambda self, count: skip(self, count + count))


def laps_not_counted(patch: pytest.MonkeyPatch) -> None:
    def within_a_lap(self: RingPosition, count: Value) -> None:
        self.stage.assign((self.stage + count) % self._stages)

    patch.setattr(RingPosition, "skip", within_a_lap)


def every_warp_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Role, "arrivals", property(lambda role: 1 if role.one_thread else len(role.warps)))


def tiles_shared(patch: pytest.MonkeyPatch) -> None:
    of = Warpgroup.of

    def sharing(*arguments: Any) -> Warpgroup:
        group = of(*arguments)
        return replace(group, part=group.index)

    patch.setattr(Warpgroup, "of", sharing)


def residuals_of_one_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RingPosition, "exchange", lambda self, other: None)


PLANTED: tuple[tuple[Plant, str], ...] = (
    (no_hand_over, r"deadlock: .*role mma \(warps 4-7\) waits for bar 3"),
    (handed_over_before_the_main_loop, r"race: inputs\.[ab]\[\d\]|inputs\.full\[\d\]"),
    (handed_over_to_itself, r"deadlock: .*waits for bar|inputs\.full\[\d\]"),
    (a_turn_for_three, r"bar 3 expects 384 threads"),
    (a_turn_without_hand_over, r"race: inputs\.[ab]\[\d\]|inputs\.full\[\d\]"),
    (stages_not_skipped, r"role mma \(warps 8-11\) waits for inputs\.full"),
    (one_stage_too_many_skipped, r"role mma \(warps 8-11\) waits for inputs\.full"),
    (one_tile_too_many_skipped, r"inputs\.(full|empty)\[\d\]"),
    (laps_not_counted, r"inputs\.(full|empty)\[\d\]"),
    (every_warp_counted, r"inputs\.empty\[0\] expects 8 arrivals"),
)
"""Each with what the emulator's report says."""


def planted(plant: Plant, spec: MatmulSpec, config: MatmulConfig) -> MatmulKernel:
    """A kernel with a bug, traced past every cache."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return MatmulKernel(spec, config, SM_90A)


def verdicts(kernel: MatmulKernel, **options: Any) -> list[str]:
    """What the emulator says under some schedules; "wrong" where it says nothing of a wrong result."""
    a, b = integers(200, 296), integers(296, 136, seed=1)
    expected = exact(a, b) + (options["residual"].astype(np.float32) if "residual" in options else 0)
    found = []
    for seed, schedule in enumerate(("adversarial", "random", "adversarial")):
        plan: Any = kernel.bind(a, b, seed=seed, schedule=schedule, multiprocessors=1, **options)
        try:
            plan.emulate()
            right = np.array_equal(plan.out, expected.astype(ml_dtypes.bfloat16))
        except EmulatorError as error:
            found.append(str(error))
            continue
        if not plan.report.clean:
            found.append(str(plan.report))
        elif not right:
            found.append("wrong")
    return found


@pytest.mark.parametrize(("plant", "words"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_turn_gone_wrong_is_reported(plant: Plant, words: str) -> None:
    """A broken turn, or a stage counted wrong, hangs or races, and the report names role and barrier."""
    found = verdicts(planted(plant, SPEC, TURNS))
    assert found
    assert any(re.search(words, text, re.S) for text in found), found[0]


def test_tiles_mistaken_for_parts_are_noticed() -> None:
    """Warpgroups that take turns but read and store as if they shared a tile give a wrong result."""
    assert verdicts(planted(tiles_shared, SPEC, TURNS))


def test_residuals_at_one_place_are_noticed() -> None:
    """Rings of residuals filled at the place of another warpgroup's hang or race where shares leave tiles out."""
    spec = replace(SPEC, functions=ElementwiseSpec(residual=BF16))
    config = replace(TURNS, output_buffers=3)
    residual = integers(200, 136, seed=2)
    assert verdicts(planted(lambda patch: None, spec, config), residual=residual) == []
    assert verdicts(planted(residuals_of_one_place, spec, config), residual=residual)


def test_consumers_that_share_tiles_know_nothing_of_turns() -> None:
    """Not an instruction of the cooperative kernel has to do with turns."""
    text = tilekit.compile(MatmulSpec()).ptx
    assert "bar.arrive" not in text
    assert "turn" not in text
    assert "bar.arrive" in tilekit.compile(SPEC, config=TURNS).ptx


def test_a_stage_waits_for_those_who_read_it() -> None:
    """An empty barrier counts the four warps of one warpgroup, in every CTA that reads: the other one takes no part."""
    for cluster, arrivals in (((1, 1), 4), ((2, 1), 8)):
        kernel = tilekit.compile(MatmulSpec(), config=replace(TURNS, tile=(64, 128), cluster=cluster))
        (empty,) = (array for array in kernel.text.shared if array.name == "inputs.empty")
        assert empty.arrivals == arrivals
        assert f"{arrivals}" in kernel.explain()
