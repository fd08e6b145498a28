"""A bottleneck block of a ResNet: four convolutions in four launches, normalisation and the shortcut among them.

Batch normalisation is a factor and a shift a channel: the factor is multiplied into the filters beforehand, the shift
is the bias. The shortcut is the residual of the last convolution, so it is added before the result is written.

    python examples/resnet_block.py
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilekit

IMAGES, SIZE, WIDTH = 2, 9, 16
BF16 = ml_dtypes.bfloat16

Array = np.ndarray[Any, Any]


def block(x: Array, layers: dict[str, tuple[Array, Array]], stride: int) -> Array:
    """Return ``relu(expand(spatial(reduce(x))) + shortcut(x))``; a layer is filters (K, R, S, C) and a bias (K,)."""
    (reduce, b1), (spatial, b2), (expand, b3), (project, b4) = layers.values()
    shortcut = tilekit.conv2d(x, project, bias=b4, stride=stride)
    y = tilekit.conv2d(x, reduce, bias=b1, activation="relu")
    y = tilekit.conv2d(y, spatial, bias=b2, activation="relu", stride=stride, padding=1)
    return tilekit.conv2d(y, expand, bias=b3, residual=shortcut, activation="relu", out=shortcut)


def reference(x: Array, layers: dict[str, tuple[Array, Array]], stride: int) -> Array:
    """The same in float64, each layer's result rounded to bf16."""

    def conv(x: Array, layer: tuple[Array, Array], step: int = 1, pad: int = 0) -> Array:
        filters, bias = (array.astype(np.float64) for array in layer)
        x = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        taps = filters.shape[1]
        seen = np.lib.stride_tricks.sliding_window_view(x, (taps, taps), axis=(1, 2))[:, ::step, ::step]
        return np.einsum("npqcrs,krsc->npqk", seen, filters) + bias

    def rounded(x: Array) -> Array:
        return x.astype(np.float32).astype(BF16)

    shortcut = rounded(conv(x, layers["project"], stride))
    y = rounded(conv(x, layers["reduce"]).clip(0))
    y = rounded(conv(y, layers["spatial"], stride, 1).clip(0))
    return rounded((conv(y, layers["expand"]) + shortcut.astype(np.float64)).clip(0))


def main() -> None:
    """Run the block on the emulator and compare."""
    rng = np.random.default_rng(0)
    shapes = {
        "reduce": (WIDTH, 1, 1, 2 * WIDTH),
        "spatial": (WIDTH, 3, 3, WIDTH),
        "expand": (4 * WIDTH, 1, 1, WIDTH),
        "project": (4 * WIDTH, 1, 1, 2 * WIDTH),
    }
    layers = {
        name: (
            (rng.integers(-2, 3, shape) / 8).astype(BF16),
            (rng.integers(-4, 5, shape[0]) / 4).astype(np.float32),
        )
        for name, shape in shapes.items()
    }
    x = rng.integers(-2, 3, (IMAGES, SIZE, SIZE, 2 * WIDTH)).astype(BF16)
    found, expected = block(x, layers, stride=2), reference(x, layers, stride=2)
    wrong = int((found != expected).sum())
    print(f"{found.size} elements of {found.shape}, {f'{wrong} wrong' if wrong else 'all exact'}")


if __name__ == "__main__":
    main()
