"""Convolutions against float64, to the bit where sums are exact: on the emulator with every check on, and on a GPU.

A sample runs here; `python -m tests.conv2d.sweep` runs any number of seeds.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.conv2d.convolutions import Convolution, convolved, drawn
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.runtime import driver

CHIPS = ("sm_90a", "sm_100a")
EMULATED = [drawn(seed, chip) for seed in range(8) for chip in CHIPS]
ON_GPU = 320
"""Seeds of the cases that run on a GPU, every fourth of them large."""


def _by_hand(chip: str) -> list[Convolution]:
    """Every way in which operands are loaded, and every feature of the matmul, at sizes that no tile divides."""
    last, hopper = {"seed": 1, "chip": chip, "types": ("bf16", "bf16"), "out": "f32"}, chip == "sm_90a"
    eight = {**last, "types": ("e4m3", "e4m3")}
    shared = MatmulConfig(tile=(128, 64), cluster=(1, 2)) if hopper else BlackwellConfig(tile=(128, 64), cluster=(2, 2))
    split = (
        MatmulConfig(tile=(64, 64), cluster=(1, 1), schedule="pingpong", split_k=3)
        if hopper
        else BlackwellConfig(tile=(64, 48), cluster=(1, 1), cta_group=1, split_k=3)
    )
    swapped = (
        MatmulConfig(tile=(128, 40), cluster=(1, 2), swap_ab=True)
        if hopper
        else BlackwellConfig(tile=(64, 64), cluster=(2, 1), swap_ab=True)
    )
    ways = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    return [
        Convolution(x=(2, 9, 8, 64), w=(40, 3, 3, 64), config=shared, **ways, **last),  # whole slices
        Convolution(x=(2, 9, 8, 96), w=(40, 3, 3, 96), data="places", config=shared, **ways, **last),  # of 64 bytes
        Convolution(x=(1, 9, 8, 72), w=(40, 3, 3, 72), gap=16, config=split, **ways, **last),  # channels left over
        Convolution(x=(3, 7, 7, 16), w=(24, 5, 5, 16), padding=(2, 2), beta=2.0, bias="bf16", **last),  # a residual
        Convolution(x=(2, 8, 8, 8), w=(32, 3, 3, 8), data="places", padding=(1, 1), config=swapped, **last),
        Convolution(x=(2, 15, 13, 3), w=(24, 7, 7, 3), stride=(2, 2), padding=(3, 3), activation="relu", **last),
        Convolution(x=(2, 15, 14, 3), w=(24, 7, 7, 3), stride=(2, 2), padding=(3, 3), **last),  # lines of the filter
        Convolution(x=(2, 9, 12, 3), w=(40, 4, 5, 3), stride=(1, 3), padding=(5, 4), dilation=(2, 1), **eight),
        Convolution(x=(2, 5, 8, 1), w=(4, 6, 3, 1), stride=(2, 1), padding=(130, 1), config=split, **eight),
        Convolution(x=(1, 12, 9, 4), w=(24, 3, 3, 4), data="places", **last),  # 8 bytes at once
        Convolution(x=(1, 5, 5, 64), w=(24, 3, 3, 64), dilation=(130, 1), padding=(130, 0), **last),  # a box too large
        Convolution(x=(1, 4, 40, 16), w=(24, 1, 1, 16), stride=(1, 9), **last),  # a stride too large
        Convolution(x=(2, 6, 5, 64), w=(48, 3, 3, 32), groups=2, bias="f32", beta=1.0, padding=(1, 1), **last),
        Convolution(x=(2, 6, 5, 20), w=(40, 3, 3, 4), groups=5, bias="f32", padding=(1, 1), **last),
        Convolution(x=(2, 7, 9, 64), w=(40, 1, 1, 64), stride=(2, 2), bias="f32", **last),
        Convolution(x=(2, 7, 9, 64), w=(40, 1, 1, 64), bias="f32", beta=1.0, **last),  # a plain product
        Convolution(x=(1, 1, 1, 32), w=(8, 1, 1, 32), padding=(1, 1), **last),  # an image below a pixel's tile
    ]


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("case", [case for chip in CHIPS for case in _by_hand(chip)], ids=str)
def test_each_way_to_load_and_to_multiply(case: Convolution) -> None:
    """Exact, and clean under an adversarial schedule."""
    case.run(seed=case.x[3])


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("case", EMULATED, ids=str)
def test_generated(case: Convolution) -> None:
    """Types, shapes, strides, padding, dilation, groups, layouts, configs and epilogues, all drawn."""
    case.run(seed=case.seed)


@pytest.mark.gpu
@pytest.mark.parametrize("case", _by_hand("sm_90a"), ids=str)
def test_each_way_on_the_gpu(case: Convolution) -> None:
    """The same bodies."""
    _skip_without_gpu()
    case.call("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(ON_GPU))
def test_generated_on_the_gpu(seed: int) -> None:
    """The same generator, and larger cases of it."""
    _skip_without_gpu()
    drawn(seed, "sm_90a", large=seed % 4 == 0).call("cuda")


def _skip_without_gpu() -> None:
    if driver.why_unavailable() or driver.devices()[0].compute_capability != (9, 0):
        pytest.skip("needs a GPU of capability 9.0")


def test_the_sample_meets_every_loader() -> None:
    """Among the cases of each chip are the engine's loader, for filters too, the threads' two and the product."""
    for chip in CHIPS:
        found = set()
        for case in [*EMULATED, *_by_hand(chip)]:
            arrays = case.arrays()
            given = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation, "groups": case.groups}
            if case.chip == chip:
                found.add(ConvArguments.parse(arrays["x"], arrays["w"], target=chip, **given).spec.swaps)
        assert len(found) == 5, found


@pytest.mark.parametrize("channels", [72, 96])
def test_numbers_that_are_none(channels: int) -> None:
    """Infinities and NaN of one pixel reach the outputs that it is part of, and no others.

    Of 96 channels the last stage ends behind the filter's last place, where pixels are multiplied by filled-up zeros.
    """
    rng = np.random.default_rng(1)
    x = rng.integers(-2, 3, (1, 9, 9, channels)).astype(ml_dtypes.bfloat16)
    w = rng.integers(1, 3, (16, 3, 3, channels)).astype(ml_dtypes.bfloat16)
    x[0, 4, 4, 5], x[0, 0, 8, 71] = np.nan, np.inf
    for chip in CHIPS:
        found = tilekit.conv2d(x, w, padding=1, target=chip)
        expected = convolved(x, w, (1, 1), (1, 1), (1, 1), 1)
        rounded = expected.astype(np.float32).astype(found.dtype)
        np.testing.assert_array_equal(found.astype(np.float64), rounded.astype(np.float64))


def test_numbers_that_are_none_beside_a_run() -> None:
    """Of a stem too: a filter's line ends where it ends, though the words that are loaded go on."""
    rng = np.random.default_rng(2)
    x, w = (rng.integers(1, 3, shape).astype(np.float16) for shape in ((1, 9, 10, 3), (16, 3, 3, 3)))
    x[0, 4, 4, 2], x[0, 0, 9, 0] = np.nan, np.inf
    for chip in CHIPS:
        for stride in (1, 2):
            found = tilekit.conv2d(x, w, padding=1, stride=stride, target=chip)
            expected = convolved(x, w, (stride, stride), (1, 1), (1, 1), 1)
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


def test_an_empty_batch_and_no_filters() -> None:
    """Nothing is launched, and the result has its shape."""
    x, w = np.zeros((0, 5, 5, 8), np.float16), np.zeros((8, 3, 3, 8), np.float16)
    assert tilekit.conv2d(x, w).shape == (0, 3, 3, 8)
    assert tilekit.conv2d(np.zeros((2, 5, 5, 8), np.float16), w[:0]).shape == (2, 3, 3, 0)
    assert tilekit.conv2d(np.zeros((2, 5, 5, 16), np.float16), w[:0], groups=2).shape == (2, 3, 3, 0)


def test_outputs_and_residuals_in_place() -> None:
    """A residual that is the output, and an output that is a part of wider pixels, whose other channels stay."""
    case = Convolution(1, "sm_90a", ("bf16", "bf16"), "bf16", (1, 6, 7, 16), (8, 3, 3, 16))
    arrays = case.arrays()
    memory = np.full((1, 4, 5, 24), 3, ml_dtypes.bfloat16)
    out = memory[..., 8:16]
    assert tilekit.conv2d(arrays["x"], arrays["w"], out=out, residual=out, beta=2.0) is out
    expected = case.expected(arrays) + 6
    np.testing.assert_array_equal(out, expected.astype(np.float32).astype(out.dtype))
    assert (memory[..., :8] == 3).all()
    assert (memory[..., 16:] == 3).all()
