"""Calls of conv2d that are wrong: refused before anything is launched, with what is legal and the nearest of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import tilekit
from tilekit.emulator import TensorMap
from tilekit.emulator.ptx.memory.tensor_map import PixelBox
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.conv2d.axes import read_pair
from tilekit.kernels.conv2d.images import Images
from tilekit.kernels.conv2d.problem import ConvProblem
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.tile_io.tma import MAP_SWIZZLES

BF16 = np.dtype(ml_dtypes.bfloat16)


def zeros(*shape: int, dtype: Any = BF16) -> Any:
    return np.zeros(shape, dtype)


class Other:
    """An array of another library, which NumPy's memory stands for."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


X, W = zeros(2, 9, 7, 16), zeros(24, 3, 3, 16)
OUT = zeros(2, 7, 5, 24)

BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "three dimensions": (lambda: tilekit.conv2d(X[0], W), r"x has shape \(9, 7, 16\).*\(N, H, W, C\).*TK-CONV-001"),
    "a matrix of filters": (lambda: tilekit.conv2d(X, W[:, 0, 0]), r"w has shape \(24, 16\).*\(K, R, S, C\)"),
    "two types": (
        lambda: tilekit.conv2d(X, W.astype(np.float16)),
        "x is bf16 and w is f16.*for example w to bf16.*TK-MM-001",
    ),
    "8-bit floats that a chip lacks": (
        lambda: tilekit.conv2d(*(a.astype(ml_dtypes.float8_e4m3fn) for a in (X, W)), target="sm_80"),
        "x is e4m3 and w is e4m3: sm_80 has no.*TK-MM-001",
    ),
    "8-bit floats of another kind": (
        lambda: tilekit.conv2d(*(a.astype(ml_dtypes.float8_e4m3fnuz) for a in (X, W))),
        "x is e4m3fnuz: of 8-bit floats.*TK-MM-001",
    ),
    "f32": (
        lambda: tilekit.conv2d(*(a.astype(np.float32) for a in (X, W))),
        "x is f32 and w is f32.*for example both to bf16",
    ),
    "no channels": (lambda: tilekit.conv2d(X[..., :0], W[..., :0]), "only N and K may be 0"),
    "no lines": (lambda: tilekit.conv2d(X, W[:, :0]), "only N and K may be 0"),
    "groups that do not divide": (lambda: tilekit.conv2d(X, W, groups=3), "groups=3 with 16 channels.*nearest: [24]"),
    "no groups": (lambda: tilekit.conv2d(X, W, groups=0), "groups=0.*nearest: 1"),
    "other channels": (lambda: tilekit.conv2d(X, W[..., :8]), "w has 8: with groups=1.*nearest: groups=2"),
    "other channels, no groups": (lambda: tilekit.conv2d(X, W[..., :7]), "x has 16 channels and w has 7"),
    "channels of images second": (
        lambda: tilekit.conv2d(zeros(2, 16, 9, 7), W),
        r"x as \(N, C, H, W\): pass numpy.ascontiguousarray\(x.transpose\(0, 2, 3, 1\)\)",
    ),
    "channels of filters second": (
        lambda: tilekit.conv2d(X, zeros(24, 16, 3, 3)),
        r"w as \(K, C, R, S\): pass numpy.ascontiguousarray\(w.transpose\(0, 2, 3, 1\)\)",
    ),
    "channels second": (
        lambda: tilekit.conv2d(zeros(2, 16, 9, 7), zeros(24, 16, 3, 3)),
        r"x as \(N, C, H, W\) and w as \(K, C, R, S\).*x.transpose.* and .*w.transpose.*TK-CONV-002",
    ),
    "filters last": (
        lambda: tilekit.conv2d(X, zeros(3, 3, 16, 24)),
        r"w as \(R, S, C, K\): pass numpy.ascontiguousarray\(w.transpose\(3, 0, 1, 2\)\)",
    ),
    "operands of two libraries": (
        lambda: tilekit.conv2d(X.astype(np.float16), Other(W.astype(np.float16))),
        r"x is numpy on cpu and w is \w+ on cpu",
    ),
    "filters too large": (
        lambda: tilekit.conv2d(X[:, :2], W),
        r"height 3, larger than images of 2 with padding 0; nearest: padding=\(1, 0\).*-003",
    ),
    "dilation too large": (
        lambda: tilekit.conv2d(X, W, dilation=(1, 4)),
        r"width 3 \(9 with dilation 4\).*padding=\(0, 1\)",
    ),
    "stride 0": (
        lambda: tilekit.conv2d(X, W, stride=0),
        "stride: given 0; legal: a whole number from 1 to 4294967295.*nearest legal: 1",
    ),
    "padding below 0": (lambda: tilekit.conv2d(X, W, padding=(1, -1)), r"padding: given \(1, -1\)"),
    "padding beyond every counter": (
        lambda: tilekit.conv2d(X, W, padding=1 << 31),
        "padding: images of 9 x 7 pixels with padding 2147483648.*legal: up to 2147483647.*padding=23167.*-003",
    ),
    "padding and stride beyond 32 bits": (
        lambda: tilekit.conv2d(X, W, padding=1 << 40, stride=1 << 40),
        "stride: given 1099511627776; legal: a whole number from 1 to 4294967295.*nearest legal: 4294967295",
    ),
    "three dilations": (lambda: tilekit.conv2d(X, W, dilation=(2, 2, 2)), "dilation: given.*nearest legal: 2"),
    "half a stride": (lambda: tilekit.conv2d(X, W, stride=3.2), "stride: given 3.2.*nearest legal: 3"),
    "stride 0 along": (lambda: tilekit.conv2d(X, W, stride=(3, 0)), r"stride: given.*nearest legal: \(3, 1\)"),
    "strides of f64": (lambda: tilekit.conv2d(X, W, stride=np.array([1.0, 2.0])), r"nearest legal: \(1, 2\)"),
    "stride True": (lambda: tilekit.conv2d(X, W, stride=True), "stride: given True; .*nearest legal: 1"),
    "stride one": (lambda: tilekit.conv2d(X, W, stride="one"), r"stride: given 'one'; [^;]*\(down, along\) \["),
    "padding same": (
        lambda: tilekit.conv2d(X, W, padding="same", dilation=(1, 3)),
        r"padding: given 'same'.*nearest legal: \(1, 3\)",
    ),
    "padding of four ends": (lambda: tilekit.conv2d(X, W, padding=(2, 2, 2, 2)), "padding: given.*nearest legal: 2"),
    "padding of two pairs": (lambda: tilekit.conv2d(X, W, padding=((1, 1), (2, 2))), r"nearest legal: \(1, 2\)"),
    "filters too large both ways": (
        lambda: tilekit.conv2d(X[:, :3, :1], W, dilation=2),
        r"height 3 \(5 with dilation 2\), larger than images of 3 with padding 0, and of width.*padding=\(1, 2\)",
    ),
    "filters of no end": (
        lambda: tilekit.conv2d_weight_gradient(X, OUT, (1 << 40, 3)),
        "filters are of height 1099511627776, larger than images of 9.*nearest: filters of 9 x 3.*-003",
    ),
    "images of too many lines": (
        lambda: tilekit.conv2d(as_strided(X, (1, 1 << 33, 7, 16), (0, 0, 32, 2)), W),
        "x: images of 8589934592 x 7 pixels .*nearest: images of 429496731 x 7 pixels .*-004",
    ),
    "images of too many pixels": (
        lambda: tilekit.conv2d(as_strided(X, (1, 60000, 60000, 16), (0, 0, 0, 2)), W),
        "x: images of 60000 x 60000 pixels .*nearest: images of 46342 x 46342 pixels .*-004",
    ),
    "channels apart": (
        lambda: tilekit.conv2d(zeros(2, 9, 7, 32)[..., ::2], W),
        r"x has strides .*would have to be copied; pass numpy\.ascontiguousarray\(x\).*TK-CONV-005",
    ),
    "channels first": (lambda: tilekit.conv2d(zeros(2, 16, 9, 7).transpose(0, 2, 3, 1), W), r"ascontiguousarray\(x\)"),
    "filters backwards": (lambda: tilekit.conv2d(X, W[::-1]), r"w has strides .*ascontiguousarray\(w\)"),
    "pixels of out apart": (
        lambda: tilekit.conv2d(X, W, out=zeros(2, 7, 10, 24)[:, :, :5]),
        "out has strides .*equally far apart",
    ),
    "pixels of the residual apart": (
        lambda: tilekit.conv2d(X, W, residual=zeros(2, 7, 10, 24)[:, :, :5]),
        "residual has strides .*equally far apart",
    ),
    "shape of out": (
        lambda: tilekit.conv2d(X, W, out=OUT[:1]),
        r"out is bf16 of shape \(1, 7, 5, 24\).*\(2, 7",
    ),
    "type of out": (lambda: tilekit.conv2d(X, W, out=OUT, out_dtype="f32"), "out is bf16 and out_dtype=f32"),
    "images as bias": (lambda: tilekit.conv2d(X, W, bias=X), r"bias has shape \(2, 9, 7, 16\)"),
    "out overlaps": (lambda: tilekit.conv2d(OUT, zeros(24, 1, 1, 24), out=OUT), "out overlaps x"),
    "length of bias": (
        lambda: tilekit.conv2d(X, W, bias=zeros(23)),
        r"each of the 24 filters is needed, shape",
    ),
    "type of bias": (lambda: tilekit.conv2d(X, W, bias=zeros(24, dtype=np.float64)), "TK-DTYPE-001"),
    "shape of residual": (lambda: tilekit.conv2d(X, W, residual=OUT[:1]), r"residual is bf16 of shape \(1, 7, 5, 24\)"),
    "type of residual": (lambda: tilekit.conv2d(X, W, residual=OUT.astype(np.float16)), "residual is f16 of shape"),
    "an activation": (lambda: tilekit.conv2d(X, W, activation="tanh"), "relu"),
    "no chip": (lambda: tilekit.conv2d(X, W, target=""), "target='' is not a target.*nearest: .*TK-TARGET-001"),
    "a chip": (lambda: tilekit.conv2d(X, W, target="gfx942"), "sm_80, sm_86, sm_89, sm_90a"),
    "fp8 out with a residual": (
        lambda: tilekit.conv2d(X, W, out_dtype="e4m3", residual=OUT.astype(ml_dtypes.float8_e4m3fn)),
        "out_dtype=e4m3 with a residual",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    """The error names the argument, what was given and what is legal."""
    call, words = BAD[name]
    with pytest.raises(ArgumentError, match=words):
        call()


@pytest.mark.parametrize("pair", [[1, 2], range(1, 3), np.array([1, 2]), np.array([1, 2], np.uint8)], ids=repr)
def test_any_sequence_of_two(pair: Any) -> None:
    """What has two whole numbers in an order is a pair: down and along."""
    assert read_pair(pair, "stride") == (1, 2)
    assert read_pair(np.array(2), "stride") == (2, 2)


def test_unknown_keywords_have_a_nearest() -> None:
    """A keyword that there is not."""
    with pytest.raises(TypeError, match=r"no keyword 'strides'.*nearest: 'stride'"):
        tilekit.conv2d(X, W, strides=2)


def test_what_threads_load_is_shared_by_no_cluster() -> None:
    """A config for the copy engine, with images that it refuses."""
    with pytest.raises(ConfigError, match="operands that threads copy are shared with no other CTA"):
        tilekit.conv2d(zeros(1, 9, 9, 3), zeros(8, 3, 3, 3), config=MatmulConfig(cluster=(2, 1)))


def _drawn(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes and ways of a call that may be wrong in several of them."""
    rng = Random(seed)
    channels, groups = rng.choice((1, 3, 8, 8, 16, 24, 64, 64, 72, 96)), rng.choice((*[1] * 9, 2, 2, 3, 4, -1, 0))
    each = rng.choice((*[channels // max(groups, 1) or 1] * 9, channels, 5))
    x = (rng.choice((0, 1, 2, 3)), rng.choice((*[9, 40, 200] * 3, 0, 1)), rng.choice((2, 7, 30)), channels)
    w = (rng.choice((0, 1, 6, 8, 24, 24)), rng.choice((1, 2, 3, 7)), rng.choice((1, 3, 5)), each)
    how: dict[str, Any] = {
        "stride": rng.choice((*[1, 2, (3, 1), 8, 9, (1, 9)] * 2, 0)),
        "padding": rng.choice((*[0, 1, (2, 0), 127, 128, 129, 300] * 2, -1)),
        "dilation": rng.choice((*[1, 1, 2, (1, 3), 42, 127] * 2, 43, 128, 255, 256, 0)),
        "groups": groups,
    }
    return x, w, how


def _wrong(x: tuple[int, ...], w: tuple[int, ...], how: dict[str, Any]) -> set[str]:
    """The codes of all that is wrong with such a call, from the definition of a convolution."""
    pairs = {name: how[name] if isinstance(how[name], tuple) else (how[name],) * 2 for name in list(how)[:3]}
    found = set()
    if 0 in x[1:] or 0 in w[1:]:
        found.add("TK-CONV-001")
    if how["groups"] < 1 or x[3] % how["groups"] or w[0] % how["groups"] or w[3] * how["groups"] != x[3]:
        found.add("TK-CONV-002")
    reach = [(w[1 + i] - 1) * pairs["dilation"][i] + 1 for i in range(2)]
    small = any(x[1 + i] + 2 * pairs["padding"][i] < reach[i] for i in range(2))
    if small or min(pairs["stride"]) < 1 or min(pairs["padding"]) < 0 or min(pairs["dilation"]) < 1:
        found.add("TK-CONV-003")
    return found


@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_drawn_calls_are_read_or_refused(first: int) -> None:
    """Whatever is wrong has its error, and nothing else has; what the engine is given it takes, and else threads load.

    The limits are those of the emulator's tensor maps, which know nothing of convolutions.
    """
    engine, threads = 0, 0
    for seed in range(first, first + 500):
        x, w, how = _drawn(seed)
        wrong, given = _wrong(x, w, how), (zeros(*x), zeros(*w))
        if wrong:
            with pytest.raises(ArgumentError, match="|".join(wrong)):
                ConvArguments.parse(*given, memory=False, target="sm_90a", **how)
            continue
        call = ConvArguments.parse(*given, memory=False, target="sm_90a", **how)
        images, problem = call.problem.a, call.problem
        if not isinstance(problem, ConvProblem):
            continue
        assert isinstance(images, Images)
        row = (problem.swizzle or 16) // 2
        size = (
            images.channels * problem.batches,
            *(max(1, n) for n in (images.x.extent, images.y.extent, images.count)),
        )
        corners = [corner for axis in (images.x, images.y) for corner in axis.corners]
        box = PixelBox((corners[0], corners[2]), (corners[1], corners[3]), row, 64)
        pitches = tuple(2 * pitch for pitch in reversed(images.pitches[:3]))
        steps = (1, images.x.step, images.y.step, 1)
        swizzle = MAP_SWIZZLES[problem.swizzle]
        legal = not TensorMap(1 << 20, "bf16", size, pitches, (), box, steps, swizzle=swizzle).problems()
        if images.load == "tma":
            assert legal, seed
        engine, threads = engine + (images.load == "tma"), threads + (images.load != "tma")
    assert min(engine, threads) > 10
