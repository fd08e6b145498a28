"""Epilogues written in Python: SwiGLU, a gated residual, dropout, statistics of norms, and experts' weights.

Each is a function of an element of the product and of what lies in its place in the operands; docs/epilogues.md says
what such a function may do.

    python examples/fused_epilogues.py
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilekit
from tilekit.epilogue import column_sum, row_sum, sigmoid, silu, uniform, where


@tilekit.epilogue
def swiglu(x, up):
    """The gate of a gated MLP, times its other half, a matrix like the result."""
    return silu(x) * up


@tilekit.epilogue
def gated_residual(x, gate, residual, scale):
    """A gate a column, a matrix, and a number."""
    return residual + sigmoid(gate) * x * scale


@tilekit.epilogue
def dropout(x, seed: int, keep):
    """Some elements, by the numbers that follow from the seed and their places, and zeros."""
    return where(uniform(seed, x) < keep, x / keep, 0.0)


@tilekit.epilogue
def rms(x, residual):
    """A residual added, and beside the result the sums of the rows' squares."""
    y = x + residual
    return y, row_sum(y * y)


@tilekit.epilogue
def weighted(x, weight):
    """An expert's result, by the weight that a router gave each token."""
    return x * weight


@tilekit.epilogue
def batch_norm(x, bias):
    """Beside a convolution's result each filter's sum, and that of squares: columns are filters, and rows pixels."""
    y = x + bias
    return y, column_sum(y), column_sum(y * y)


def main() -> None:
    """Run them on the emulator, and compare with NumPy."""
    rng = np.random.default_rng(0)
    tokens, hidden, width = 96, 128, 136
    x, w, like = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for shape in ((tokens, hidden), (hidden, width), (tokens, width))
    )
    product = x.astype("f8") @ w.astype("f8")
    gate = rng.standard_normal(width).astype("f4")
    for call in (swiglu(like), gated_residual(gate, like, 0.5), dropout(1234, 0.9)):
        result = tilekit.matmul(x, w, epilogue=call)
        error = np.abs(result.astype("f8") - call.reference(product)).max()
        print(f"{call!r}: at most {error:.3f} from NumPy, of values up to {np.abs(product).max():.0f}")
        assert error < 0.3

    result, squares = tilekit.matmul(x, w, epilogue=rms(like))
    means = ((result.astype("f4") / np.sqrt(squares[:, None] / width + 1e-6)) ** 2).mean(1)
    print(f"rows after the norm have a mean square of {means.min():.3f} to {means.max():.3f}")
    assert np.allclose(means, 1, atol=0.01)

    experts = rng.standard_normal((3, hidden, width)).astype(ml_dtypes.bfloat16)
    ends, weights = np.array([40, 40, tokens], np.int32), rng.random((tokens, 1), np.float32)
    mixed = tilekit.grouped_matmul(x, experts, ends, epilogue=weighted(weights))
    expected = np.concatenate(
        [x[:40].astype("f8") @ experts[0].astype("f8"), x[40:].astype("f8") @ experts[2].astype("f8")]
    )
    error = np.abs(mixed.astype("f8") - expected * weights).max()
    print(f"tokens of three experts, weighted: at most {error:.3f} from NumPy")
    assert error < 0.3

    images, filters = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((2, 9, 9, 16), (24, 3, 3, 16)))
    y, sums, squares = tilekit.conv2d(
        images, filters, padding=1, epilogue=batch_norm(rng.standard_normal(24, np.float32))
    )
    count = y.size / 24
    mean = sums / count
    normed = (y.astype("f4") - mean) / np.sqrt(squares / count - mean**2 + 1e-6)
    variances = normed.var((0, 1, 2))
    print(f"filters after the norm have a variance of {variances.min():.3f} to {variances.max():.3f}")
    assert np.allclose(variances, 1, atol=0.01)


if __name__ == "__main__":
    main()
