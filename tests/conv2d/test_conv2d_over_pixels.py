"""Gradients of filters as products over pixels: exact with any config, and where they are not taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.conv2d.test_conv2d_gradients import Gradients
from tilekit.arrays import view_of
from tilekit.calls import conv2d_gradients, conv2d_products
from tilekit.dtypes import BF16, F32
from tilekit.kernels.conv2d.filter_gradient import FilterGradientArguments, copied_channels, goes_over_pixels, parts_of
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.over_pixels import OverPixelsSpec
from tilekit.kernels.matmul.family import build
from tilekit.kernels.matmul.picker import candidates
from tilekit.runtime import driver
from tilekit.targets import SM_80, SM_90A, SM_100A, Target


@dataclass(frozen=True)
class Case:
    """A convolution whose filters' gradient is computed with a config, in parts."""

    gradients: Gradients
    parts: int
    chip: Target
    config: Any

    @classmethod
    def drawn(cls, seed: int) -> Case:
        """The case of a seed."""
        rng = Random(f"over pixels {seed}")
        chip = (SM_90A, SM_100A)[seed % 2]
        while True:
            x = (
                rng.choice((1, 2, 4, 8)),
                rng.randint(2, 9),
                rng.randint(2, 9),
                rng.choice((64, 128, 32, 96) if chip is SM_90A else (64, 128)),
            )
            w = (8 * rng.randint(1, 20), rng.randint(1, 4), rng.randint(1, 4), x[3])
            ways = {
                "stride": (rng.choice((1, 1, 2, 3)), rng.choice((1, 2))),
                "padding": (rng.randint(0, 3), rng.randint(0, 3)),
                "dilation": (rng.choice((1, 1, 2)), rng.choice((1, 3))),
                "groups": 1,
            }
            case = Gradients(seed, x, w, ways, np.float16)
            if min(case.result[1:3]) > 0:
                break
        spec = OverPixelsSpec(a_dtype=BF16, b_dtype=BF16, out_dtype=F32, a_major="mn", b_major="mn", batched=True)
        spec = replace(spec, channels=copied_channels(x[3]))
        legal = [config for config in candidates(spec, chip) if config.tile[0] * config.tile[1] <= 128 * 128]
        pixels = int(np.prod(case.result[:3]))
        return cls(case, rng.choice([n for n in range(1, 9) if pixels % n == 0]), chip, rng.choice(legal))

    def computed(self, **emulator: Any) -> tuple[Any, Any]:
        """What the kernel writes, the parts added, and what is right."""
        rng, case = np.random.default_rng(self.gradients.seed), self.gradients
        x, w, dy = (rng.integers(-2, 3, shape).astype(np.float16) for shape in (case.x, case.w, case.result))
        axes = [
            Axis(name, case.x[1 + i], case.w[1 + i], *(case.ways[way][i] for way in ("stride", "padding", "dilation")))
            for i, name in enumerate(("height", "width"))
        ]
        out = np.full((self.parts, case.w[0], int(np.prod(case.w[1:]))), np.nan, np.float32)
        out = out if self.parts > 1 else out[0]
        found = FilterGradientArguments.over_pixels(
            view_of(x), view_of(dy), axes, view_of(out), target=self.chip, result=out
        )
        build(found.spec, self.config, self.chip).plan(found, **emulator)(None)
        right = case.expected(*(each.astype(np.float64) for each in (x, w, dy)))[1]
        return out.reshape(self.parts, *case.w).sum(0), right


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("seed", range(8))
def test_products_over_pixels_are_exact(seed: int) -> None:
    """Strides, padding, dilation, parts, tiles, clusters and shares drawn at random, in several orders of warps."""
    order = ("adversarial", "random", "fair")[seed % 3]
    found, right = Case.drawn(seed).computed(seed=seed, schedule=order, multiprocessors=8 + seed % 5)
    np.testing.assert_array_equal(found, right)


@pytest.mark.breadth
@pytest.mark.parametrize("seed", range(100, 190))
def test_more_products_over_pixels_are_exact(seed: int) -> None:
    """The same generator."""
    found, right = Case.drawn(seed).computed(seed=seed, schedule="adversarial", multiprocessors=8 + seed % 5)
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("chip", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("parts", [1, 4])
def test_nothing_is_copied(chip: str, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call rearranges no array, whether the sum is made at once or in parts that are added."""
    monkeypatch.setattr(conv2d_gradients, "rearrange", None)
    monkeypatch.setattr(conv2d_products, "parts_of", lambda *_: parts)
    ways = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    case = Gradients(3, (4, 8, 8, 64), (16, 3, 3, 64), ways, np.float16)
    rng = np.random.default_rng(3)
    x, w, dy = (rng.integers(-2, 3, shape).astype(np.float16) for shape in (case.x, case.w, case.result))
    found = tilekit.conv2d_weight_gradient(x, dy, (3, 3), stride=(2, 1), padding=1, scale=0.5, target=chip)
    right = case.expected(*(each.astype(np.float64) for each in (x, w, dy)))[1] / 2
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, right.astype(np.float16))


def test_what_is_copied_as_before() -> None:
    """Channels that fill no copies, groups, 8-bit operands, chips without the engine, and what it does not reach."""
    x, dy = (view_of(np.zeros((1, 6, 6, c), np.float16)) for c in (64, 16))
    axes = [Axis("", 6, 3, pad=1)] * 2
    assert goes_over_pixels(x, dy, axes, 1, SM_90A)
    assert goes_over_pixels(x, dy, axes, 1, SM_100A)
    assert not goes_over_pixels(x, dy, axes, 2, SM_90A)
    assert not goes_over_pixels(x, dy, axes, 1, SM_80)
    assert not goes_over_pixels(view_of(np.zeros((1, 6, 6, 72), np.float16)), dy, axes, 1, SM_90A)
    half = view_of(np.zeros((1, 6, 6, 96), np.float16))
    assert goes_over_pixels(half, dy, axes, 1, SM_90A)
    assert not goes_over_pixels(half, dy, axes, 1, SM_100A)  # none of its tiles has narrower copies
    assert not goes_over_pixels(view_of(np.zeros((1, 6, 6, 64), np.uint8)), dy, axes, 1, SM_90A)
    assert not goes_over_pixels(x, dy, [Axis("", 6, 3, step=9), axes[1]], 1, SM_90A)
    assert not goes_over_pixels(x, replace(dy, address=8), axes, 1, SM_90A)


@pytest.mark.parametrize(
    ("pixels", "m", "n", "several"), [(100352, 64, 576, True), (25088, 128, 1152, True), (2048, 640, 5760, False)]
)
def test_sums_are_in_parts_where_tiles_are_few(pixels: int, m: int, n: int, several: bool) -> None:
    """Parts are equal, of whole k-blocks, and none where there are tiles for all multiprocessors."""
    spec = OverPixelsSpec(a_dtype=BF16, b_dtype=BF16, out_dtype=BF16, a_major="mn", b_major="mn")
    parts = parts_of(spec, SM_90A, m, n, pixels, 1 / 9)
    assert (parts > 1) is several
    assert pixels % parts == 0
    assert pixels // parts % 64 == 0


def test_it_is_a_matmul_with_another_loader() -> None:
    """`explain` says what is swapped; the kernel has a name of its own."""
    spec = OverPixelsSpec(a_dtype=BF16, b_dtype=BF16, out_dtype=BF16, a_major="mn", b_major="mn")
    kernel = build(spec, None, SM_90A)
    assert kernel.name == "conv2d_filter_gradient_bf16_bf16_bf16_mn"
    assert "MetLoader for TmaLoader of b" in kernel.explain()


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(24))
def test_products_over_pixels_on_the_gpu(seed: int) -> None:
    """Larger images, with the config that is picked, in as many parts as the model finds quickest."""
    if driver.why_unavailable() or driver.devices()[0].compute_capability != (9, 0):
        pytest.skip("needs a GPU of capability 9.0")
    rng = Random(f"over pixels on the GPU {seed}")
    size, taps = rng.randint(8, 40), rng.choice((1, 2, 3, 5))
    x = (2 ** rng.randint(0, 5), size, rng.randint(8, 40), 32 * rng.randint(1, 8))
    ways = {"stride": (rng.choice((1, 2)),) * 2, "padding": (taps // 2,) * 2, "dilation": (1, 1), "groups": 1}
    Gradients(seed, x, (8 * rng.randint(1, 40), taps, taps, x[3]), ways, np.float16).check("cuda")
