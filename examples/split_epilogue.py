"""A matmul that writes two types: the activation in bf16 for the next layer, and what went into it in f32.

python examples/split_epilogue.py
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilekit


@tilekit.epilogue
def split(x, bias):
    """The activation, and what a backward pass needs of it."""
    y = x + bias
    return tilekit.epilogue.relu(y).astype("bf16"), y.astype("f32")


def main() -> None:
    """Multiply small integers, which is exact, and compare."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((200, 72), (264, 72)))
    bias = random.integers(-2, 3, 264).astype(np.float32)
    activation, before = tilekit.matmul(a, b.T, epilogue=split(bias))
    expected = a.astype("f4") @ b.astype("f4").T + bias
    assert (before == expected).all()
    assert (activation == np.maximum(expected, 0).astype(ml_dtypes.bfloat16)).all()
    print(f"{activation.dtype} and {before.dtype} of {before.shape}, all exact")


if __name__ == "__main__":
    main()
