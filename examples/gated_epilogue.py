"""A matmul that multiplies by a second matrix, and writes the sums of the rows beside the result, in a few lines.

What examples/gated_row_sums.py composes of components; docs/epilogues.md tells how.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilekit


@tilekit.epilogue
def gated(x, gate):
    """The product, times an element of the gate, and the sums of its rows."""
    y = x * gate
    return y, tilekit.epilogue.row_sum(y)


def main() -> None:
    """Multiply small integers, which is exact, and compare."""
    random = np.random.default_rng(0)
    shapes = (200, 72), (264, 72), (200, 264)
    a, b, gate = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in shapes)
    d, sums = tilekit.matmul(a, b.T, epilogue=gated(gate))
    expected = (a.astype("f4") @ b.astype("f4").T) * gate.astype("f4")
    assert (d == expected.astype(ml_dtypes.bfloat16)).all()
    assert (sums == expected.sum(1)).all()
    print(f"{d.size} elements and {sums.size} row sums, all exact")


if __name__ == "__main__":
    main()
