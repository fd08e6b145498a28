"""Totals of rows and columns where waves of an MFMA, or warps of mma.sync, hold them: alone, or side by side."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.epilogue import column_min, column_sum, row_max, row_sum
from tilekit.errors import TilekitError


@tilekit.epilogue
def totalled(x, gate):  # type: ignore[no-untyped-def]
    """Totals of both kinds beside the result."""
    y = x * gate
    return y, row_sum(y), column_sum(y), row_max(y), column_min(y)


TOTALS = (
    tilekit.Cdna4Config((64, 64), mma_waves=2),
    tilekit.Cdna3Config((64, 96), mma_waves=2, mma_columns=2, split_k=2),
    pytest.param(tilekit.Cdna3Config(driver="ping_pong", stages=1), marks=pytest.mark.breadth),
    tilekit.Cdna4Config(driver="ping_pong"),
    pytest.param(tilekit.Cdna4Config(driver="interleaved"), marks=pytest.mark.breadth),
    tilekit.AmpereConfig((64, 96), grid=(2, 2)),
)


@pytest.mark.parametrize("config", TOTALS, ids=str)
def test_totals(config: Any) -> None:
    """Of ragged rows and columns to the last bit; sums that round are the same bits under every order of waves."""
    rng = np.random.default_rng(5)
    m, n, k = 140, 200, 72
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    gate = rng.integers(-2, 3, (m, n)).astype("f4")
    kernel = tilekit.kernel_for(a, b.T, epilogue=totalled(gate), out_dtype="f32", config=config, target=config.TARGET)
    expected = totalled(gate).reference(a.astype("f8") @ b.T.astype("f8"))
    for found, wanted in zip(kernel.bind(a, b.T, epilogue=totalled(gate))(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    rounded = rng.standard_normal((m, n)).astype("f4")
    runs = [kernel.bind(a, b.T, epilogue=totalled(rounded), seed=seed)() for seed in (1, 2)]
    for one, other in zip(*runs, strict=True):
        assert one.tobytes() == other.tobytes()


def test_totals_of_the_transpose_are_refused() -> None:
    """Rows of the output are spread over waves there: the error names the field and what is legal."""
    a = np.ones((64, 64), np.float16)
    config = tilekit.Cdna4Config((64, 64), mma_waves=2, swap_ab=True)
    with pytest.raises(TilekitError, match=r"swap_ab=True: totals are of rows(?s:.*)nearest: swap_ab=False"):
        tilekit.matmul(a, a, epilogue=totalled(np.ones((64, 64), "f4")), config=config, target="gfx950")


def test_code_of_totals_has_a_bound() -> None:
    """Branches reach 128 KB: a tile whose elements' totals would be more code is refused with the sums that fit."""
    a, gate = np.ones((256, 64), np.float16), np.ones((256, 256), "f4")
    config = tilekit.Cdna4Config((256, 128), mma_waves=2, load_waves=2)
    with pytest.raises(
        TilekitError, match=r"256 sums of a lane that go into 4 totals .* at most 102 sums(?s:.*)nearest"
    ):
        tilekit.matmul(a, a.T[:, :256], epilogue=totalled(gate), config=config, target="gfx950")
