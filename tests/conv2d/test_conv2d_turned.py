"""Gradients of images whose filters are turned as they are loaded: exact with any config, and where they are copied."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from tests.conv2d.test_conv2d_gradients import Gradients
from tilekit.arrays import view_of
from tilekit.dtypes import BF16, F32
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.turned import ImageGradientArguments, TurnedSpec, turns_filters
from tilekit.kernels.matmul.family import build
from tilekit.kernels.matmul.picker import candidates
from tilekit.runtime import driver
from tilekit.targets import SM_80, SM_90A, SM_100A


def computed(number: int, **emulator: Any) -> tuple[Any, Any]:
    """What a kernel writes with a config drawn at random, and what is right."""
    rng = Random(f"turned kernels {number}")
    chip = (SM_90A, SM_100A)[number % 2]
    taps, apart = (rng.randint(1, 4), rng.randint(1, 4)), (rng.choice((1, 2)), rng.choice((1, 3)))
    pad = tuple(rng.randint(0, (count - 1) * step) for count, step in zip(taps, apart, strict=True))
    ways = {"stride": (1, 1), "padding": pad, "dilation": apart, "groups": 1}
    x = (rng.choice((1, 2, 3)), rng.randint(10, 12), rng.randint(10, 12), 8 * rng.randint(1, 20))
    case = Gradients(number, x, (64 * rng.randint(1, 3), *taps, x[3]), ways, np.float16)
    draws = np.random.default_rng(number)
    images, w, dy = (draws.integers(-2, 3, shape).astype(np.float16) for shape in (case.x, case.w, case.result))
    out = np.full(x, np.nan, np.float32)
    axes = [
        Axis(name, dy.shape[1 + i], taps[i], pad=(taps[i] - 1) * apart[i] - pad[i], apart=apart[i])
        for i, name in enumerate(("height", "width"))
    ]
    call = ImageGradientArguments.turned(view_of(dy), view_of(w), axes, view_of(out), target=chip, result=out)
    assert call is not None or taps == (1, 1)
    if call is not None:
        spec = call.spec
        legal = [config for config in candidates(spec, chip) if config.tile[0] * config.tile[1] <= 128 * 128]
        build(spec, rng.choice(legal), chip).plan(call, **emulator)(None)
        return out, case.expected(*(each.astype(np.float64) for each in (images, w, dy)))[0]
    return out, out


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("seed", range(6))
def test_turned_filters_are_exact(seed: int) -> None:
    """Places, padding, dilation, tiles, clusters and shares drawn at random, in several orders of warps."""
    order = ("adversarial", "random", "fair")[seed % 3]
    np.testing.assert_array_equal(*computed(seed, seed=seed, schedule=order, multiprocessors=8 + seed % 5))


@pytest.mark.breadth
@pytest.mark.parametrize("seed", range(100, 170))
def test_more_turned_filters_are_exact(seed: int) -> None:
    """The same generator."""
    np.testing.assert_array_equal(*computed(seed, seed=seed, schedule="adversarial", multiprocessors=8 + seed % 5))


def test_what_is_copied_before() -> None:
    """Groups, 8-bit filters, chips without the engine; filters that fill no slices, or that do not lie in a row."""
    dy, w = view_of(np.zeros((1, 6, 6, 64), np.float16)), np.zeros((64, 3, 3, 16), np.float16)
    out, axes = np.zeros((1, 6, 6, 16), np.float16), [Axis("", 6, 3, pad=1)] * 2
    assert turns_filters(view_of(w), 1, SM_90A)
    assert not turns_filters(view_of(w), 2, SM_90A)
    assert not turns_filters(view_of(w), 1, SM_80)
    assert not turns_filters(view_of(w.astype(np.uint8)), 1, SM_90A)

    def read(dy: Any, w: Any) -> Any:
        own = out[..., : w.shape[3]] if w.shape[3] == 16 else np.zeros((1, 6, 6, w.shape[3]), np.float16)
        return ImageGradientArguments.turned(dy, view_of(w), axes, view_of(own), target=SM_90A, result=own)

    assert read(dy, w) is not None
    assert read(view_of(np.zeros((1, 6, 6, 72), np.float16)), np.zeros((72, 3, 3, 16), np.float16)) is None
    assert read(dy, np.zeros((64, 3, 3, 12), np.float16)) is None
    assert read(dy, np.zeros((64, 3, 6, 16), np.float16)[:, :, ::2]) is None


def test_it_is_a_convolution_with_another_loader() -> None:
    """`explain` says what is swapped; the kernel has a name of its own."""
    kernel = build(TurnedSpec(a_dtype=BF16, b_dtype=BF16, out_dtype=F32, b_major="mn"), None, SM_90A)
    assert kernel.name == "conv2d_image_gradient_bf16_bf16_f32_kn"
    assert "TurnedLoader for TmaLoader of b" in kernel.explain()


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(16))
def test_turned_filters_on_the_gpu(seed: int) -> None:
    """Larger images, with and without a stride, with the config that is picked."""
    if driver.why_unavailable() or driver.devices()[0].compute_capability != (9, 0):
        pytest.skip("needs a GPU of capability 9.0")
    rng = Random(f"turned on the GPU {seed}")
    taps = rng.choice((1, 2, 3, 5))
    x = (2 ** rng.randint(0, 4), rng.randint(8, 40), rng.randint(8, 40), 8 * rng.randint(1, 40))
    ways = {"stride": (1 + seed % 2,) * 2, "padding": (taps // 2,) * 2, "dilation": (1, 1), "groups": 1}
    Gradients(seed, x, (64 * rng.randint(1, 4), taps, taps, x[3]), ways, np.float16).check("cuda")
