"""Kernels of convolutions bind images and filters, and say which of them they were not built for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilekit
from tests.conv2d.convolutions import convolved
from tilekit.dtypes import F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.conv2d.threads import ThreadSpec


def _arrays(x: tuple[int, ...], w: tuple[int, ...], seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(-2, 3, x).astype(np.float16), rng.integers(-2, 3, w).astype(np.float16)


CALLS: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 8, 8, 64), (32, 3, 3, 64), {"stride": (2, 1), "padding": (1, 1)}),
    ((2, 7, 5, 72), (16, 3, 2, 72), {"dilation": (2, 1)}),
    ((1, 9, 7, 3), (16, 3, 3, 3), {"padding": (1, 2)}),
    ((1, 6, 6, 32), (32, 3, 3, 16), {"groups": 2}),
    ((2, 5, 5, 64), (32, 1, 1, 64), {}),
]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("x", "w", "how"), CALLS, ids=str)
@pytest.mark.parametrize("chip", ["sm_90a", "sm_100a"])
def test_a_kernel_binds_what_its_call_takes(x: Any, w: Any, how: dict[str, Any], chip: str) -> None:
    """Of each loader, with groups, and of 1x1 filters: the plan computes the convolution, also a second time."""
    images, filters = _arrays(x, w)
    kernel = tilekit.conv2d_kernel_for(images, filters, target=chip, **how)
    usual: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    plan = kernel.bind(images, filters, **how)  # type: ignore[call-arg]  # of a convolution's kernel
    assert (plan() == convolved(images, filters, **usual | how)).all()
    images[...] = _arrays(x, w, 1)[0]
    assert (plan() == convolved(images, filters, **usual | how)).all()


def test_an_output_a_bias_and_a_residual_are_bound() -> None:
    """What the epilogue takes, and the caller's output, which is the residual too."""
    (images, filters), bias = _arrays((1, 6, 6, 16), (8, 3, 3, 16)), np.arange(8, dtype=np.float32)
    out = np.full((1, 4, 4, 8), 3, np.float16)
    functions = ElementwiseSpec(bias=F32, residual=F16, activation="relu")
    spec = ConvSpec(F16, F16, F16, swizzle=32, functions=functions)
    kernel: Any = tilekit.compile(spec, target="sm_90a")
    assert kernel.bind(images, filters, out, bias=bias, residual=out, beta=2.0)() is out
    expected = convolved(images, filters, (1, 1), (0, 0), (1, 1), 1) + bias + 6
    assert (out == np.maximum(expected, 0)).all()


REFUSED: list[tuple[ConvSpec, Any, Any, dict[str, Any], str]] = [
    (ConvSpec(F16, F16, F16), (64, 64), (64, 64), {}, "x has shape .64, 64.: conv2d takes"),
    (ConvSpec(F16, F16, F16), (1, 4, 4, 32), (8, 3, 3, 32), {}, "swizzle 64, but conv2d_.* built for .* swizzle 128"),
    (ConvSpec(F16, F16, F16), (1, 4, 5, 3), (8, 3, 3, 3), {}, "is GatherLoader .* was built for Im2colLoader"),
    (ConvSpec(F16, F16, F16), (1, 4, 4, 3), (8, 3, 3, 3), {}, "is LineLoader .* was built for Im2colLoader"),
    (
        ThreadSpec(F16, F16, F16, a_load=4, b_load=4, lines=True),
        (1, 4, 5, 3),
        (8, 3, 3, 3),
        {},
        "is GatherLoader .*Line",
    ),
    (ThreadSpec(F16, F16, F16, a_load=2, b_load=2), (1, 4, 4, 64), (8, 3, 3, 64), {}, "was built for GatherLoader"),
    (ConvSpec(F16, F16, F16), (1, 4, 4, 64), (8, 1, 1, 64), {}, "multiplied is two matrices, but .* for images"),
    (ConvSpec(F16, F16, F16), (1, 4, 4, 128), (16, 3, 3, 64), {"groups": 2}, "batching is True"),
    (ConvSpec(F16, F16, F16), (1, 4, 4, 64), (8, 3, 3, 64), {"bias": np.zeros(8, np.float32)}, "bias's type is f32"),
]


@pytest.mark.parametrize(("spec", "x", "w", "more", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_a_kernel_was_not_built_for(spec: ConvSpec, x: Any, w: Any, more: dict[str, Any], words: str) -> None:
    """Named before anything is launched, with what it was built for."""
    kernel: Any = tilekit.compile(spec, target="sm_90a")
    with pytest.raises(tilekit.TilekitError, match=words):
        kernel.bind(np.zeros(x, np.float16), np.zeros(w, np.float16), **more)


def test_a_kernel_for_matrices_takes_no_images() -> None:
    """Four dimensions are none of a product's."""
    kernel = tilekit.kernel_for(*(np.zeros((64, 64), np.float16),) * 2)
    with pytest.raises(tilekit.TilekitError, match="a has shape"):
        kernel.bind(np.zeros((1, 8, 8, 64), np.float16), np.zeros((8, 1, 1, 64), np.float16))


def test_there_are_no_scales_of_rows() -> None:
    """A convolution has no scale_a, and says what it has."""
    kernel: Any = tilekit.compile(ConvSpec(F16, F16, F16), target="sm_90a")
    with pytest.raises(TypeError, match=r"no keyword .scale_a.; legal: .*stride"):
        kernel.bind(np.zeros((1, 4, 4, 64), np.float16), np.zeros((8, 3, 3, 64), np.float16), scale_a=1.0)
