"""Calls that are too large for the emulator, or for memory: refused by their shapes, before anything is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit.arrays.staging import EmulatedStaging
from tilekit.errors import ArgumentError, EmulationTooLong
from tilekit.kernels.plan import EmulatedPlan
from tilekit.settings import settings

BF16, E4M3, UE8M0 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e8m0fnu)
X, W = np.ones((1, 9, 7, 16), BF16), np.ones((24, 3, 3, 16), BF16)
A8, SCALES = np.ones((1, 128), E4M3), np.ones((1, 4), UE8M0)


@pytest.fixture
def nothing_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make copying an array to a device an error."""

    def upload(*given: Any) -> int:
        raise AssertionError("an array is copied")

    monkeypatch.setattr(EmulatedStaging, "upload", upload)


@pytest.mark.usefixtures("nothing_copied")
def test_a_long_launch_is_refused_before_anything_is_copied() -> None:
    """Images that cost no memory, a result that nobody touches: the estimate is made of shapes."""
    with pytest.raises(EmulationTooLong, match=r"about .* (min|h) for .* FLOP"):
        tilekit.conv2d(np.broadcast_to(X[:, :1, :1], (1, 4000, 4000, 16)), W)


@pytest.mark.usefixtures("nothing_copied")
def test_a_gradient_of_many_launches_is_refused_as_one_call() -> None:
    """Each of the launches of its 16 remainders is short, and together they are not."""
    dy, w = np.ones((1, 12, 12, 24), BF16), np.ones((24, 4, 4, 16), BF16)
    with (
        settings.override(emulator_limit=0.1),
        pytest.raises(EmulationTooLong, match="_gradient, launches: 48") as found,
    ):
        tilekit.conv2d_input_gradient(dy, w, (48, 48), stride=4)
    assert found.value.seconds > 0.1
    with settings.override(emulator_limit=0.01), pytest.raises(EmulationTooLong, match="weight_gradient, launches: "):
        tilekit.conv2d_weight_gradient(np.ones((1, 48, 48, 16), BF16), dy, (4, 4), stride=4)


def test_a_gradient_within_the_limit_runs_each_launch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noted for the estimate launches nothing."""
    right, ran = EmulatedPlan.emulate, []
    monkeypatch.setattr(EmulatedPlan, "emulate", lambda self, **how: (ran.append(self), right(self, **how))[1])
    dy, w = np.ones((1, 3, 3, 8), BF16), np.ones((8, 2, 2, 16), BF16)
    found = tilekit.conv2d_input_gradient(dy, w, (6, 6), stride=2)
    assert len(ran) == 12  # of each remainder: filters, a convolution, and its pixels
    assert (found == 8).all()


@pytest.mark.usefixtures("nothing_copied")
def test_clusters_without_a_tile_take_time_too() -> None:
    """A scheduler of the caller's that asks for a million of them."""

    class Million(tk.StaticScheduler):
        def schedule(self, call: Any) -> tk.Schedule:
            return tk.Schedule(clusters=10**6, tiles=super().schedule(call).tiles)

    own = tk.OwnComponents(scheduler=lambda w, raster: Million(raster))
    a = np.ones((64, 64), np.float16)
    with pytest.raises(EmulationTooLong, match=r"in 1 tiles of 1000000 CTAs"):
        tilekit.matmul(a, a, components=own)


MANY = 2**46
"""As many of anything have no addresses, however much memory a machine promises."""


def _rows(array: Any, count: int) -> Any:
    return np.broadcast_to(array, (count, *array.shape[1:]))


HUGE: dict[str, tuple[Callable[[], Any], str]] = {
    "images": (lambda: tilekit.conv2d(_rows(X, MANY), W), r"\(70368744177664, 7, 5, 24\)"),
    "filters": (lambda: tilekit.conv2d(X, _rows(W[:1], MANY)), r"\(1, 7, 5, 70368744177664\)"),
    "rows": (
        lambda: tilekit.matmul(_rows(np.ones((1, 64), BF16), MANY), np.ones((64, 32), BF16)),
        r"\(70368744177664, 32\)",
    ),
    "rows with scales": (
        lambda: tilekit.scaled_matmul(_rows(A8, MANY), A8.T, _rows(SCALES, MANY), SCALES),
        r"\(70368744177664, 1\)",
    ),
    "rows of groups": (
        lambda: tilekit.grouped_matmul(_rows(np.ones((1, 64), BF16), MANY), np.ones((2, 64, 32), BF16), [3, 5]),
        r"\(70368744177664, 32\)",
    ),
    "scales": (lambda: tilekit.lay_out_scales(_rows(SCALES, MANY)), r"\(549755813888, 1, 32, 4, 4\)"),
    "numbers": (
        lambda: tilekit.quantise(_rows(np.ones((1, 64), "f4"), MANY)),
        r"f32 copy of x.*\(70368744177664, 64\)",
    ),
}


@pytest.mark.parametrize("name", HUGE)
def test_what_finds_no_memory_is_named(name: str) -> None:
    """Views of a few bytes may have any extent; the error names the result's, and how large it would be."""
    call, words = HUGE[name]
    with pytest.raises(ArgumentError, match=rf"{words} takes .* GB of .*no memory.*TK-ARRAY-006"):
        call()
