"""Tiles of a payload on sm_100a: the tensor core and the threads that add give a stage back together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tests.matmul.payload_factors import BLOCK, Side, payload
from tilekit import BlackwellConfig, MatmulSpec
from tilekit.emulator import EmulatorError
from tilekit.errors import FindingWarning, TilekitError
from tilekit.tile_pipeline.mbarrier_sync import ArriveConsumer, MbarrierSync
from tilekit.tile_pipeline.ring import StageReader
from tilekit.tiles.stage import Stage

B, M, N, K = 2, 204, 136, 712
BLOCKS = -(-K // BLOCK)
STAGED = (Side("left", "jm", True), Side("right", "jn", True))
OWN = (Side("left", "bjm", True), Side("right", "bjn", True))

CONFIGS = {
    "one CTA": BlackwellConfig(tile=(128, 64), cta_group=1, cluster=(1, 1)),
    "shared operands": BlackwellConfig(tile=(64, 64), cta_group=1, cluster=(2, 2), stages=3, accumulator_stages=3),
    "one stage": BlackwellConfig(tile=(64, 64), cta_group=1, cluster=(1, 1), stages=1, accumulator_stages=4),
    "split": BlackwellConfig(tile=(128, 64), cta_group=1, cluster=(1, 1), split_k=2, clc_stages=0),
}


def product(config: BlackwellConfig, *sides: Side) -> tuple[Any, Any]:
    """What the kernel and NumPy say of exact numbers."""
    rng = np.random.default_rng(0)
    batch = (B,) if sides[0].own else ()
    a, b = (rng.integers(-2, 3, (*batch, *of)).astype(ml_dtypes.bfloat16) for of in ((M, K), (K, N)))
    left, right = ((2.0 ** rng.integers(-1, 2, (*batch, BLOCKS, extent))).astype("f4") for extent in (M, N))
    out = np.full((*batch, M, N), np.nan, np.float32)
    own = tk.OwnComponents(payload=payload(*sides))
    arrays = {"left": left, "right": right}
    tilekit.matmul(a, b, components=own, arrays=arrays, target="sm_100a", config=config, out=out)
    each_a, each_b = (one.repeat(BLOCK, axis=-2)[..., :K, :] for one in (left, right))
    return out, (a.astype("f4") * each_a.swapaxes(-1, -2)) @ (b.astype("f4") * each_b)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("sides", [STAGED, OWN], ids=["for all", "of each matrix"])
@pytest.mark.parametrize("config", CONFIGS)
def test_exact(config: str, sides: tuple[Side, Side]) -> None:
    """Rows' and columns' values in the stages, the ring going round: of one CTA, of clusters that share operands."""
    result, expected = product(CONFIGS[config], *sides)
    np.testing.assert_array_equal(result, expected)


def test_a_stage_has_two_kinds_of_releases() -> None:
    """A commit of each CTA that reads it and an arrival a warp of the epilogue; without tiles, the commits alone."""
    counts = {}
    for staged in (True, False):
        sides = [Side(side.name, side.shape, staged) for side in STAGED]
        spec = MatmulSpec(out_dtype=tk.F32, components=tk.OwnComponents(payload=payload(*sides)))
        kernel: Any = tilekit.compile(spec, "sm_100a", CONFIGS["shared operands"])
        empty = next(array for array in kernel.text.shared if array.name == "inputs.empty")
        counts[staged] = empty.arrive, empty.arrivals
    assert counts == {True: (("mma", "epilogue"), 15), False: (("mma",), 3)}


def no_wait_for_bytes(patch: pytest.MonkeyPatch) -> None:
    """Threads read a stage that is not full."""
    wait = ArriveConsumer.consumer_wait
    patch.setattr(ArriveConsumer, "consumer_wait", lambda self, w, stage, phase: wait(self, w, stage, phase ^ 1))


def released_before_it_is_read(patch: pytest.MonkeyPatch) -> None:
    """Warps arrive, then read."""

    @contextmanager
    def early(self: Any) -> Iterator[Stage]:
        full = self._sync.consumer_wait(self._w, self.stage, self.phase)
        self._sync.consumer_release(self._w, self._sync.ticket(self.stage))
        yield Stage(self.stage, full, self._sync_name)
        self.advance()

    patch.setattr(StageReader, "acquire", early)


def lanes_left_behind(patch: pytest.MonkeyPatch) -> None:
    """One lane arrives for all, without waiting for them."""

    @contextmanager
    def alone(self: Any) -> Iterator[Stage]:
        full = self._sync.consumer_wait(self._w, self.stage, self.phase)
        yield Stage(self.stage, full, self._sync_name)
        self._sync.consumer_release(self._w, self._sync.ticket(self.stage))
        self.advance()

    patch.setattr(StageReader, "acquire", alone)


def arrivals_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A stage is given back by the commit alone: warps arrive beside the count."""
    made = MbarrierSync.__init__

    def fewer(self: Any, *given: Any, **how: Any) -> None:
        made(self, *given, **how)
        self.empty = replace(self.empty, arrivals=self.cluster.senders)

    patch.setattr(MbarrierSync, "__init__", fewer)


def stages_kept(patch: pytest.MonkeyPatch) -> None:
    """Warps never give a stage back."""
    patch.setattr(ArriveConsumer, "consumer_release", lambda self, w, ticket, active=None: None)


PLANTED = (no_wait_for_bytes, released_before_it_is_read, lanes_left_behind, arrivals_not_counted, stages_kept)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_defects_are_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to break the two releases is an error of the emulator's, or another result."""
    plant(monkeypatch)
    try:
        result, expected = product(BlackwellConfig(tile=(128, 64), cta_group=1, cluster=(1, 1), stages=2), *STAGED)
    except (EmulatorError, FindingWarning):
        return
    assert (result != expected).any()


def refused(config: BlackwellConfig) -> None:
    """Build a kernel with tiles of a payload."""
    tilekit.compile(MatmulSpec(components=tk.OwnComponents(payload=payload(*STAGED))), "sm_100a", config)


def test_pairs_are_refused() -> None:
    """Bytes of a pair count on its leader's barrier, for which threads of the other CTA cannot wait."""
    with pytest.raises(TilekitError, match=r"(?s)cta_group=2: threads read a payload's tiles.*cta_group=1.*TK-MM-006"):
        refused(BlackwellConfig(tile=(128, 64), cta_group=2, cluster=(2, 1)))
