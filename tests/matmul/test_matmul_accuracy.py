"""How far 8-bit sums are from float64, with the tensor core's arithmetic as it was recorded on an H200."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.matmul.matmul_reference import accumulation_bound
from tilekit import MatmulConfig, MatmulSpec
from tilekit.kernels.matmul.spec import Accumulation
from tilekit.kernels.plan import EmulatedPlan

CONFIG = MatmulConfig((64, 8), (1, 1), consumers=1, in_flight=0)


def errors(k: int, accumulation: Accumulation) -> tuple[float, float]:
    """Relative error of a product of normal numbers, and the largest error over its bound."""
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(shape, np.float32).astype(ml_dtypes.float8_e4m3fn) for shape in ((64, k), (8, k)))
    kernel = tilekit.compile(MatmulSpec("e4m3", "e4m3", "f32", accumulation=accumulation), config=CONFIG)
    plan = kernel.bind(a, b.T, exact=True, check="off")
    assert isinstance(plan, EmulatedPlan)
    wide_a, wide_b = a.astype(np.float64), b.T.astype(np.float64)
    error = np.abs(plan() - wide_a @ wide_b)
    bound = accumulation_bound(wide_a, wide_b, bits=8, promoted=accumulation == "promoted")
    return float(np.linalg.norm(error) / np.linalg.norm(wide_a @ wide_b)), float((error / bound).max())


@pytest.mark.parametrize("k", [128, 1024, 16384])
def test_promoted_sums_do_not_drift(k: int) -> None:
    """Promoted sums err by 2^-12 at any K; fast ones by more with every instruction: 2^-9 and more at K = 16384."""
    fast, fast_worst = errors(k, "fast")
    promoted, worst = errors(k, "promoted")
    assert max(worst, fast_worst) <= 1
    assert promoted < 2**-12
    assert fast == promoted if k == 128 else fast > 4 * promoted
    assert fast > 2**-9 or k < 16384
