"""Gradients of images of convolutions with a stride, in one launch: exact with any config, and when they are not."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.conv2d.test_conv2d_gradients import Gradients
from tilekit.arrays import view_of
from tilekit.calls import conv2d_gradients
from tilekit.dtypes import F16, F32
from tilekit.epilogue.direct import DirectEpilogue
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.phased import OF_PHASES, PhasedArguments, PhasedSpec
from tilekit.kernels.conv2d.phases import PhasedAxis
from tilekit.kernels.matmul.family import build
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.picker import candidates
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime import driver
from tilekit.targets import SM_90A, SM_100A


def drawn(seed: int, largest: int) -> Gradients:
    """Filters with a stride, whose phases are of different lengths, and some of none; images of ragged extents."""
    rng = Random(f"phases {seed}")
    while True:
        stride = rng.choice((1, 2, 2, 3)), rng.choice((2, 2, 3, 4))
        apart = tuple(rng.choice([each for each in (1, 1, 2, 3) if np.gcd(each, step) == 1]) for step in stride)
        x = (rng.choice((1, 2, 3)), *(rng.randint(3, largest) for _ in range(2)), 8 * rng.randint(1, 20))
        ways = {"stride": stride, "padding": (rng.randint(0, 4), rng.randint(0, 4)), "dilation": apart, "groups": 1}
        w = (64 * rng.randint(1, 3), rng.randint(1, 5), rng.randint(1, 5), x[3])
        case = Gradients(seed, x, w, ways, np.float16)
        if min(case.result[1:3]) > 0:
            return case


def computed(number: int, **emulator: Any) -> tuple[Any, Any]:
    """What a kernel writes with a config drawn at random, and what is right."""
    case, chip = drawn(number, 12), (SM_90A, SM_100A)[number % 2]
    draws = np.random.default_rng(number)
    images, w, dy = (draws.integers(-2, 3, shape).astype(np.float16) for shape in (case.x, case.w, case.result))
    out = np.full(case.x, np.nan, np.float32)
    call = PhasedArguments.phased(view_of(dy), view_of(w), case.axes, view_of(out), target=chip, result=out)
    assert call is not None
    legal = [config for config in candidates(call.spec, chip) if config.tile[0] * config.tile[1] <= 128 * 128]
    build(call.spec, Random(number).choice(legal), chip).plan(call, **emulator)(None)
    return out, case.expected(*(each.astype(np.float64) for each in (images, w, dy)))[0]


@pytest.mark.parametrize("seed", range(8))
def test_phases_are_exact(seed: int) -> None:
    """Strides, places, padding, dilation, tiles and clusters drawn at random, in several orders of warps."""
    order = ("adversarial", "random", "fair")[seed % 3]
    np.testing.assert_array_equal(*computed(seed, seed=seed, schedule=order, multiprocessors=8 + seed % 5))


@pytest.mark.breadth
@pytest.mark.parametrize("seed", range(100, 180))
def test_more_phases_are_exact(seed: int) -> None:
    """The same generator."""
    np.testing.assert_array_equal(*computed(seed, seed=seed, schedule="adversarial", multiprocessors=8 + seed % 5))


@pytest.mark.parametrize("chip", ["sm_90a", "sm_100a"])
def test_a_stride_takes_one_launch(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is copied, no convolution is called, and pixels that no filter meets are zero."""
    for name in ("rearrange", "conv2d", "images_product"):
        monkeypatch.setattr(conv2d_gradients, name, None)
    dy, w = np.ones((1, 4, 4, 64), np.float16), np.ones((64, 1, 1, 16), np.float16)
    found = tilekit.conv2d_input_gradient(dy, w, (8, 8), stride=2, scale=0.5, target=chip)
    expected = np.zeros((1, 8, 8, 16))
    expected[:, ::2, ::2] = 32
    np.testing.assert_array_equal(found, expected)


def test_phases_meet_what_the_convolution_met() -> None:
    """For each pixel, its phase's first place, their number and where they begin, against the definition."""
    rng, tried = Random(5), 0
    while tried < 300:
        axis = Axis("", *(rng.randint(1, most) for most in (12, 5, 4)), pad=rng.randint(0, 6), apart=rng.randint(1, 4))
        phased = PhasedAxis.of(axis) if axis.out > 0 else None
        if phased is None:
            assert axis.out < 1 or np.gcd(axis.step, axis.apart) > 1
            continue
        tried += 1
        met = {(p * axis.step - axis.pad + r * axis.apart, r, p) for r in range(axis.taps) for p in range(axis.out)}
        found, pixels = set(), []
        for tap in range(axis.step):
            first = (tap * axis.apart + phased.shift) % axis.step
            taps = max(0, -(-(axis.taps - tap) // axis.step))
            for i, pixel in enumerate(range(first, axis.extent, axis.step)):
                pixels.append(pixel)
                assert i < phased.out
                for turned in range(taps):
                    read = phased.first_read(tap) + i + axis.apart * turned
                    assert phased.pad + phased.first_read(tap) >= 0
                    if 0 <= read < axis.out:
                        found.add((pixel, tap + axis.step * (taps - 1 - turned), read))
        assert sorted(pixels) == list(range(axis.extent))
        assert found == {one for one in met if 0 <= one[0] < axis.extent}


def test_what_has_a_convolution_a_remainder_as_before() -> None:
    """A divisor of stride and dilation, filters that do not lie in a row, offsets beyond the engine's."""

    def read(axes: list[Axis], w: Any) -> Any:
        dy = np.zeros((1, axes[0].out, axes[1].out, 64), np.float16)
        out = np.zeros((1, axes[0].extent, axes[1].extent, w.shape[3]), np.float16)
        return PhasedArguments.phased(view_of(dy), view_of(w), axes, view_of(out), target=SM_90A, result=out)

    w, plain = np.zeros((64, 3, 3, 16), np.float16), Axis("", 12, 3, step=2, pad=1)
    assert read([plain, plain], w) is not None
    assert read([plain, Axis("", 12, 3, step=2, pad=1, apart=2)], w) is None
    assert read([plain, plain], np.zeros((64, 3, 6, 16), np.float16)[:, :, ::2]) is None
    assert read([plain, Axis("", 700, 3, step=2, pad=1, apart=301)], w) is None


def test_explain_names_what_is_swapped() -> None:
    """Four components; the kernel has a name of its own, and no config shares a sum."""
    spec = PhasedSpec(a_dtype=F16, b_dtype=F16, out_dtype=F32, b_major="mn", batched=True, components=OF_PHASES)
    for chip in (SM_90A, SM_100A):
        legal = candidates(spec, chip)
        assert all(config.split_k == 1 for config in legal)
        kernel = build(spec, legal[0], chip)
        assert kernel.name == "conv2d_image_gradient_f16_f16_f32_kn_batched_phases"
        assert all(f"{part} for " in kernel.explain() for part in ("PhaseScheduler", "PhasedEpilogue"))


def test_an_epilogue_of_another_has_whole_instructions() -> None:
    """Rows that an instruction computes beyond a short tile are another tile's, and its threads would store them."""
    own = OwnComponents(epilogue=DirectEpilogue)
    problems = MatmulConfig(tile=(32, 64), consumers=1).problems(SM_90A, MatmulSpec(components=own))
    assert len(problems) == 1
    assert "stores whole instructions' rows" in problems[0]


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(300, 340))
def test_phases_on_the_gpu(seed: int) -> None:
    """Larger images, with the config that is picked."""
    if driver.why_unavailable() or driver.devices()[0].compute_capability != (9, 0):
        pytest.skip("needs a GPU of capability 9.0")
    drawn(seed, 60).check("cuda")
