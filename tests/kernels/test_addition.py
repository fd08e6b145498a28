"""The kernel that adds the parts of sums, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilekit.kernels.addition import add_parts
from tilekit.targets import SM_80, SM_90A, SM_100A


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize(("parts", "elements"), [(1, 5), (4, 300), (7, 129), (8, 40), (9, 128), (67, 133)])
def test_parts_are_added(parts: int, elements: int, dtype: type) -> None:
    """In f32, whatever their number, and rounded once; nothing behind the last element is written."""
    rng = np.random.default_rng(parts)
    given = rng.integers(-3, 4, (parts, elements)).astype(np.float32) / 4
    out = np.full(elements + 8, 7, dtype)
    chip = (SM_80, SM_90A, SM_100A)[parts % 3] if dtype is not ml_dtypes.float8_e4m3fn else SM_90A
    add_parts(given, out[:elements], target=chip, device=None)
    np.testing.assert_array_equal(out[:elements].astype(np.float64), given.sum(0).astype(dtype).astype(np.float64))
    assert (out[elements:].astype(np.float64) == 7).all()


def test_nothing_is_launched_for_nothing() -> None:
    """No elements are no launch."""
    add_parts(np.zeros((3, 0), np.float32), np.zeros(0, np.float32), target=SM_90A, device=None)
