"""Gradients of convolutions against float64, to the bit: on the emulator of both chips, and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.calls import conv2d_gradients, conv2d_products
from tilekit.calls.conv2d_gradients import _remainders
from tilekit.errors import ArgumentError
from tilekit.kernels.conv2d.images import Axis
from tilekit.runtime import driver
from tilekit.runtime.emulated import noted

TYPES = (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn)


@dataclass(frozen=True)
class Gradients:
    """A convolution of small integers, and the gradient of its result."""

    seed: int
    x: tuple[int, ...]
    w: tuple[int, ...]
    ways: dict[str, Any]
    dtype: Any

    @classmethod
    def drawn(cls, seed: int) -> Gradients:
        """The case of a seed."""
        rng = Random(f"gradients {seed}")
        while True:
            groups = rng.choice((1, 1, 1, 2))
            channels, filters = groups * rng.choice((1, 3, 4, 8, 16)), groups * rng.choice((4, 5, 8, 16))
            x = (rng.choice((1, 2, 3, 8)), rng.randint(3, 10), rng.randint(3, 10), channels)
            w = (filters, rng.randint(1, 4), rng.randint(1, 4), channels // groups)
            ways = {
                "stride": (rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 2, 3))),
                "padding": (rng.randint(0, 3), rng.randint(0, 3)),
                "dilation": (rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2))),
                "groups": groups,
            }
            case = cls(seed, x, w, ways, rng.choice(TYPES))
            if min(case.result[1:3]) > 0:
                return case

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of what the convolution returns."""
        down, along = (
            (self.x[1 + i] + 2 * self.ways["padding"][i] - (self.w[1 + i] - 1) * self.ways["dilation"][i] - 1)
            // self.ways["stride"][i]
            + 1
            for i in range(2)
        )
        return self.x[0], down, along, self.w[0]

    @property
    def axes(self) -> list[Axis]:
        """How filters go over the images."""
        ways = (self.ways[name] for name in ("stride", "padding", "dilation"))
        return [Axis("", *each) for each in zip(self.x[1:3], self.w[1:3], *ways, strict=True)]

    def check(self, target: str) -> None:
        """Compute both gradients and compare."""
        rng = np.random.default_rng(self.seed)
        x, w, dy = (rng.integers(-2, 3, shape).astype(self.dtype) for shape in (self.x, self.w, self.result))
        how = {**self.ways, "out_dtype": "f32", "target": target}
        of_images, of_filters = self.expected(*(array.astype(np.float64) for array in (x, w, dy)))
        np.testing.assert_array_equal(tilekit.conv2d_input_gradient(dy, w, self.x[1:3], **how), of_images)
        np.testing.assert_array_equal(tilekit.conv2d_weight_gradient(x, dy, self.w[1:3], **how), of_filters)

    def expected(self, x: Any, w: Any, dy: Any) -> tuple[Any, Any]:
        """By the definition, place by place."""
        (down, along), pads, (apart_y, apart_x) = (self.ways[name] for name in ("stride", "padding", "dilation"))
        padded = np.pad(x, ((0, 0), (pads[0],) * 2, (pads[1],) * 2, (0, 0)))
        of_images, of_filters = np.zeros_like(padded), np.zeros_like(w)
        groups, rows, columns = self.ways["groups"], dy.shape[1], dy.shape[2]
        for group, r, s in np.ndindex(groups, *w.shape[1:3]):
            channels, filters = (
                slice(group * n // groups, (group + 1) * n // groups) for n in (x.shape[3], w.shape[0])
            )
            y = slice(r * apart_y, r * apart_y + (rows - 1) * down + 1, down)
            z = slice(s * apart_x, s * apart_x + (columns - 1) * along + 1, along)
            of_images[:, y, z, channels] += dy[..., filters] @ w[filters, r, s]
            of_filters[filters, r, s] = np.einsum("npqk,npqc->kc", dy[..., filters], padded[:, y, z, channels])
        inner = slice(pads[0], pads[0] + x.shape[1]), slice(pads[1], pads[1] + x.shape[2])
        return of_images[:, inner[0], inner[1]], of_filters


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("seed", range(18))
def test_gradients_are_exact(seed: int) -> None:
    """Strides, padding, dilation, groups and types drawn at random, on either chip's emulator."""
    Gradients.drawn(seed).check(("sm_90a", "sm_100a")[seed % 2])


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(100))
def test_gradients_on_the_gpu(seed: int) -> None:
    """The same generator."""
    if driver.why_unavailable() or driver.devices()[0].compute_capability != (9, 0):
        pytest.skip("needs a GPU of capability 9.0")
    Gradients.drawn(seed).check("cuda")


def test_pixels_are_met_by_the_places_that_meet_them() -> None:
    """The convolutions of all remainders read, for each pixel, just the products that it was part of."""
    rng = Random(3)
    for _ in range(400):
        axis = Axis("", *(rng.randint(1, most) for most in (12, 5, 4)), pad=rng.randint(0, 6), apart=rng.randint(1, 4))
        if axis.out < 1:
            continue
        expected = {
            (p * axis.step - axis.pad + r * axis.apart, r, p) for r in range(axis.taps) for p in range(axis.out)
        }
        found, pixels = [], []
        for part in _remainders(axis):
            for i in range(part.count):
                pixels.append(part.first + i * part.step)
                for turned in range(part.taps):
                    place = part.tap + part.tap_step * (part.taps - 1 - turned)
                    from_pixel = part.skip + i - part.pad + turned * part.apart
                    if 0 <= from_pixel < axis.out:
                        found.append((pixels[-1], place, from_pixel))
            returned = axis.out + 2 * part.pad - part.apart * (part.taps - 1)
            assert not part.taps or returned >= part.skip + part.count
        assert sorted(pixels) == list(range(axis.extent))
        assert sorted(found) == sorted(one for one in expected if 0 <= one[0] < axis.extent)


def test_a_scale_and_no_images() -> None:
    """The factor of the convolution is that of its gradients; of an empty batch the filters' gradient is zero."""
    x, dy = np.ones((2, 4, 4, 8), np.float16), np.ones((2, 4, 4, 16), np.float16)
    found = tilekit.conv2d_weight_gradient(x, dy, (1, 1), scale=0.5)
    np.testing.assert_array_equal(found, np.full((16, 1, 1, 8), 16))
    w = np.ones((16, 1, 1, 8), np.float16)
    np.testing.assert_array_equal(tilekit.conv2d_input_gradient(dy, w, (4, 4), scale=2.0), np.full(x.shape, 32))
    assert not tilekit.conv2d_weight_gradient(x[:0], dy[:0], (1, 1)).any()
    assert tilekit.conv2d_input_gradient(dy[:0], w, (4, 4)).shape == (0, 4, 4, 8)


BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize(
    ("gradient", "types", "how", "words"),
    [
        ("input", (np.float16, BF16), {}, "dy is f16 and w is bf16.*w to f16.*TK-MM-001"),
        ("weight", (BF16, np.float16), {}, "x is bf16 and dy is f16.*dy to bf16.*TK-MM-001"),
        ("input", (BF16, BF16), {"groups": 5}, "groups=5 with 16 filters of w: groups divide them; nearest: 4"),
        ("weight", (BF16, BF16), {"groups": 5}, "groups=5 with 8 channels of x and 16 of dy.*nearest: 4"),
        ("input", (E4M3, E4M3), {"target": "sm_80"}, "dy is e4m3 and w is e4m3: sm_80 has no"),
        ("weight", (E4M3, E4M3), {"target": "sm_80"}, "x is e4m3 and dy is e4m3: sm_80 has no"),
    ],
)
def test_messages_have_the_names_of_the_call(gradient: str, types: Any, how: Any, words: str) -> None:
    """Not those of the convolution whose gradient it is, nor those of the product that computes it."""
    dy, w, x = np.ones((2, 4, 4, 16)), np.ones((16, 1, 1, 8)), np.ones((2, 4, 4, 8))
    function = tilekit.conv2d_input_gradient if gradient == "input" else tilekit.conv2d_weight_gradient
    first, second, extents = (dy, w, (4, 4)) if gradient == "input" else (x, dy, (1, 1))
    with pytest.raises(ArgumentError, match=words):
        function(first.astype(types[0]), second.astype(types[1]), extents, **how)


@pytest.mark.parametrize(
    ("extents", "words"),
    [
        ((5, 4), r"dy has shape \(2, 4, 4, 16\).*returns \(2, 5, 4, 16\).*TK-CONV-001"),
        ((4,), r"extents: given \(4,\).*two whole numbers.*TK-CONV-001"),
        ((4, 0), r"extents: given \(4, 0\).*nearest legal: \(4, 1\).*TK-CONV-001"),
        (4, r"extents: given 4; legal: two whole numbers.*nearest legal: \(4, 4\).*TK-CONV-001"),
        ((4.0, 4), r"extents: given \(4.0, 4\).*nearest legal: \(4, 4\).*TK-CONV-001"),
        ((True, 4), r"extents: given \(True, 4\).*TK-CONV-001"),
        ("44", r"extents: given '44'.*TK-CONV-001"),
    ],
)
def test_what_is_refused(extents: Any, words: str) -> None:
    """Extents that the result's gradient does not belong to, and what is none."""
    dy, w = np.ones((2, 4, 4, 16), np.float16), np.ones((16, 1, 1, 8), np.float16)
    with pytest.raises(ArgumentError, match=words):
        tilekit.conv2d_input_gradient(dy, w, extents)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(("taps", "groups"), [(1, 1), (3, 1), (3, 2)])
def test_no_filters_have_zeros_as_the_images_gradient(target: Any, taps: int, groups: int) -> None:
    """The convolution with K = 0 is legal, and so are its gradients: sums of nothing."""
    x, w, how = (
        np.ones((2, 4, 4, 16), np.float16),
        np.ones((0, taps, taps, 16 // groups), np.float16),
        {"groups": groups},
    )
    dy = tilekit.conv2d(x, w, **how, target=target)
    assert dy.shape[3] == 0
    found = tilekit.conv2d_input_gradient(dy, w, (4, 4), **how, out_dtype="f32", target=target)
    assert found.shape == x.shape
    assert not found.any()
    assert tilekit.conv2d_weight_gradient(x, dy, (taps, taps), **how, target=target).shape == w.shape
    assert tilekit.conv2d_input_gradient(dy[:0], w, (4, 4), **how, target=target).shape == (0, 4, 4, 16)


def test_a_stream_of_arrays_in_host_memory_is_refused() -> None:
    """As of every other call: there is no stream."""
    x, w, dy = np.ones((2, 4, 4, 8), np.float16), np.ones((16, 1, 1, 8), np.float16), np.ones((2, 4, 4, 16), np.float16)
    with pytest.raises(ArgumentError, match=r"stream=1 was given.*TK-ARRAY-005"):
        tilekit.conv2d_input_gradient(dy, w, (4, 4), stream=1)
    with pytest.raises(ArgumentError, match=r"stream=1 was given.*TK-ARRAY-005"):
        tilekit.conv2d_weight_gradient(x, dy, (1, 1), stream=1)


def test_layouts_and_types_are_the_convolutions() -> None:
    """A gradient that would have to be copied is refused by its name; results are of the operand's type."""
    dy, w = np.ones((2, 4, 4, 16), np.float16), np.ones((16, 1, 1, 8), np.float16)
    with pytest.raises(ArgumentError, match=r"dy has strides.*TK-CONV-005"):
        tilekit.conv2d_input_gradient(np.asfortranarray(dy), w, (4, 4))
    assert tilekit.conv2d_input_gradient(dy, w, (4, 4)).dtype == np.float16
    x = np.ones((2, 4, 4, 8), ml_dtypes.bfloat16)
    assert tilekit.conv2d_weight_gradient(x, dy.astype(ml_dtypes.bfloat16), (1, 1)).dtype == ml_dtypes.bfloat16


def pointwise(seed: int) -> Gradients:
    """A case of 1x1 filters that go from pixel to pixel."""
    rng = Random(f"pointwise {seed}")
    groups = rng.choice((1, 1, 2))
    channels, filters = (groups * rng.choice((8, 16, 24, 72)) for _ in range(2))
    x = (rng.choice((1, 2, 3)), rng.randint(1, 9), rng.randint(1, 9), channels)
    ways = {"stride": (1, 1), "padding": (0, 0), "dilation": (rng.choice((1, 2)),) * 2, "groups": groups}
    return Gradients(seed, x, (filters, 1, 1, channels // groups), ways, TYPES[seed % 2])


def _several(spec: Any, chip: Any, filters: int, channels: int, pixels: int) -> int:
    """As many parts as divide the pixels, up to five."""
    return max(parts for parts in range(1, 6) if pixels % parts == 0)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("seed", range(6))
def test_filters_of_one_place_are_products_without_a_copy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No array is rearranged; a sum over pixels that is made in parts equals the whole one."""
    monkeypatch.setattr(conv2d_gradients, "rearrange", None)
    if seed % 3:
        monkeypatch.setattr(conv2d_products, "parts_of", _several)
    pointwise(seed).check(("sm_90a", "sm_100a", "sm_80")[seed % 3])


def test_pixels_that_lie_apart_are_products_too() -> None:
    """Channels of wider images, and lines that do not follow each other, which are copied."""
    rng = np.random.default_rng(0)
    wide = rng.integers(-2, 3, (2, 5, 6, 48)).astype(np.float16)
    dy = rng.integers(-2, 3, (2, 5, 6, 16)).astype(np.float16)
    for x in (wide[..., 16:40], np.concatenate([wide, wide], 2)[:, :, :6, :24]):
        found = tilekit.conv2d_weight_gradient(x, dy, (1, 1), out_dtype="f32")
        expected = np.einsum("npqk,npqc->kc", dy.astype(np.float64), x.astype(np.float64))
        np.testing.assert_array_equal(found[:, 0, 0], expected)


@pytest.mark.parametrize(("taps", "pad", "copies"), [(3, 1, 1), (3, 0, 1), (1, 1, 2)])
def test_a_gradient_of_all_pixels_is_written_where_it_belongs(
    taps: int, pad: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a stride filters alone are rearranged, unless the convolution returns more than there is."""
    seen = []
    rearrange = conv2d_gradients.rearrange

    def counted(*arguments: Any, **options: Any) -> None:
        if noted() is None:  # else the emulator's time is estimated
            seen.append(arguments)
        rearrange(*arguments, **options)

    monkeypatch.setattr(conv2d_gradients, "rearrange", counted)
    ways = {"stride": (1, 1), "padding": (pad, pad), "dilation": (1, 1), "groups": 1}
    case = Gradients(0, (1, 5, 4, 8), (8, taps, taps, 8), ways, np.float16)
    rng = np.random.default_rng(0)
    x, w, dy = (rng.integers(-2, 3, shape).astype(np.float16) for shape in (case.x, case.w, case.result))
    found = tilekit.conv2d_input_gradient(dy, w, (5, 4), padding=pad, out_dtype="f32")
    np.testing.assert_array_equal(found, case.expected(*(each.astype(np.float64) for each in (x, w, dy)))[0])
    assert len(seen) == copies


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.breadth) for seed in range(5, 30))])
def test_strided_gradients_with_turned_filters(seed: int) -> None:
    """Each remainder of the stride has its places of the filters, some of them one, some none."""
    rng = Random(f"strided {seed}")
    taps, step = (rng.randint(1, 4), rng.randint(1, 4)), (rng.choice((1, 2, 3)), 2)
    ways = {
        "stride": step,
        "padding": (rng.randint(0, 3), rng.randint(0, 2)),
        "dilation": (rng.choice((1, 1, 2)), rng.choice((1, 3))),
        "groups": 1,
    }
    x = (rng.choice((1, 2)), rng.randint(10, 12), rng.randint(10, 12), 8 * rng.randint(1, 10))
    case = Gradients(seed, x, (64 * rng.randint(1, 2), *taps, x[3]), ways, TYPES[seed % 2])
    case.check(("sm_90a", "sm_100a")[seed % 2])


@pytest.mark.parametrize("seed", range(4))
def test_filters_are_turned_as_they_are_loaded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a stride no array is rearranged where filters fill slices of K."""
    monkeypatch.setattr(conv2d_gradients, "rearrange", None)
    rng = Random(f"turned {seed}")
    taps, apart = (rng.randint(1, 4), rng.randint(2, 4)), (rng.choice((1, 2)), 1)
    pad = tuple(rng.randint(0, (count - 1) * step) for count, step in zip(taps, apart, strict=True))
    ways = {"stride": (1, 1), "padding": pad, "dilation": apart, "groups": 1}
    x = (rng.choice((1, 2)), rng.randint(8, 10), rng.randint(7, 10), 8 * rng.randint(1, 12))
    case = Gradients(seed, x, (64 * rng.randint(1, 3), *taps, x[3]), ways, TYPES[seed % 2])
    draws = np.random.default_rng(seed)
    images, w, dy = (draws.integers(-2, 3, shape).astype(case.dtype) for shape in (case.x, case.w, case.result))
    how = {"padding": pad, "dilation": apart, "out_dtype": "f32", "target": ("sm_90a", "sm_100a")[seed % 2]}
    found = tilekit.conv2d_input_gradient(dy, w, x[1:3], **how)
    np.testing.assert_array_equal(found, case.expected(*(each.astype(np.float64) for each in (images, w, dy)))[0])
