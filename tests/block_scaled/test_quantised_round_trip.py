"""`tilekit.dequantise` takes all that `tilekit.quantise` returns, and matrices without rows."""

from __future__ import annotations

import numpy as np
import pytest

import tilekit
from tilekit.errors import ArgumentError


@pytest.mark.parametrize("to", ["mxfp8", "mxfp4", "nvfp4"])
def test_round_trip(to: str) -> None:
    """The three parts as they come, and what has no rows."""
    x = np.random.default_rng(0).standard_normal((5, 96)).astype(np.float32)
    made = tilekit.quantise(x, to)
    np.testing.assert_array_equal(tilekit.dequantise(made), tilekit.dequantise(*made))
    assert tilekit.dequantise(tilekit.quantise(x[:0], to)).shape == (0, 96)
    with pytest.raises(ArgumentError, match=r"values is what quantise returned.*TK-SCALE-005"):
        tilekit.dequantise(made, made.scales)
