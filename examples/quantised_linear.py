"""An 8-bit linear layer: a scale for each token and each output channel, undone by the kernel's epilogue.

Outliers are what 8-bit numbers cannot hold. With a scale a row, a large token costs only its own precision, and with
one a column a large channel only its own. The kernel multiplies them back after the sums are made, two products an
element.

    python examples/quantised_linear.py
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilekit

TOKENS, INPUTS, OUTPUTS = 96, 512, 192
E4M3 = ml_dtypes.float8_e4m3fn
LARGEST = float(ml_dtypes.finfo(E4M3).max)

Array = np.ndarray[Any, Any]


def quantised(matrix: Array, axis: int | None) -> tuple[Array, Array]:
    """Return a matrix in e4m3, and the f32 that its rows (`axis` 1), or all of it (None), are to be multiplied by."""
    scales = np.abs(matrix).max(axis=axis, keepdims=True).astype(np.float32) / LARGEST
    return (matrix / scales).astype(E4M3), scales


def error(got: Array, expected: Array) -> float:
    """Median over the rows of the relative error: that of an ordinary token, whatever the outliers do."""
    difference = np.linalg.norm(got.astype(np.float64) - expected, axis=1)
    return float(np.median(difference / np.linalg.norm(expected, axis=1)))


def main() -> None:
    """Compare a scale a tensor with a scale a row, where some tokens and channels are far larger than the rest."""
    random = np.random.default_rng(0)
    tokens, weights = random.standard_normal((TOKENS, INPUTS)), random.standard_normal((OUTPUTS, INPUTS))
    tokens[::24] *= 1e5
    weights[::48] *= 1e3
    bias = random.standard_normal(OUTPUTS).astype(np.float32)
    expected = tokens @ weights.T + bias

    a, scale_a = quantised(tokens, None)
    b, scale_b = quantised(weights, None)
    coarse = tilekit.matmul(a, b.T, scale=scale_a * scale_b, bias=bias, accumulation="promoted", out_dtype="f32")

    a, scale_a = quantised(tokens, 1)
    b, scale_b = quantised(weights, 1)
    fine = tilekit.matmul(
        a, b.T, scale_a=scale_a, scale_b=scale_b.T, bias=bias, accumulation="promoted", out_dtype="f32"
    )
    print(f"an ordinary token's error: {error(coarse, expected):.1%} with a scale a tensor, ", end="")
    print(f"{error(fine, expected):.1%} with a scale a token and a channel")
    assert error(fine, expected) < 0.05 < error(coarse, expected)


if __name__ == "__main__":
    main()
