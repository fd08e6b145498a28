"""``**`` in Python epilogues: of negative elements, and of every kind of exponent, NumPy's values."""

from __future__ import annotations

import numpy as np
import pytest

import tilekit
from tilekit.epilogue import row, where

TARGETS = ("sm_90a", "sm_100a", "sm_80", "gfx950", pytest.param("gfx942", marks=pytest.mark.breadth))
EXPONENTS = (0, 1, 3, 8, 9, 12, 17, 20, -1, -9, -12, 64, 65, -101, np.int64(3), np.float32(2), 9.0, True, 0.0, 100.0)


@tilekit.epilogue
def known(x):  # type: ignore[no-untyped-def]
    """Powers of exponents that are known when the function runs."""
    y = x * 0.25
    return (
        y,
        *((y**exponent) * 1.0 for exponent in EXPONENTS),
        (row(x) - 4) ** 2 * 1.0,
        2.0**x,
        where(x < 0, 0.0, x) ** 1.5,
    )


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", TARGETS)
def test_exponents_that_are_known(target: str) -> None:
    """Whole ones of any size and type of Python's or NumPy's, zero, and fractions."""
    a = np.eye(16, dtype=np.float16)
    b = np.random.default_rng(5).integers(-7, 8, (16, 24)).astype(np.float16)
    found = tilekit.matmul(a, b, epilogue=known(), target=target, out_dtype="f32")
    x = b.astype("f8")
    with np.errstate(all="ignore"):
        wanted = [x / 4, *((x / 4) ** float(exponent) for exponent in EXPONENTS)]
        wanted += [np.broadcast_to((np.arange(16.0)[:, None] - 4) ** 2, x.shape), 2.0**x, np.maximum(x, 0) ** 1.5]
        single = [exact.astype("f4") for exact in wanted]
    for got, reference, near, exact in zip(found, known.reference(x), single, wanted, strict=True):
        np.testing.assert_allclose(got, near, rtol=3e-5, atol=1e-30)
        np.testing.assert_allclose(reference, exact, rtol=1e-12)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", TARGETS)
def test_exponents_that_the_device_knows(target: str) -> None:
    """A negative base to a whole power has a sign or none, to another it is NaN; 0, 1, infinities and NaN as in C."""
    some = np.array([-np.inf, -3, -1, -0.5, 0, 0.25, 1, 2.5, np.inf, np.nan], np.float32)
    bases = np.repeat(some, 24).reshape(10, 24)
    exponents = np.array([-np.inf, -3, -2, -1.5, -1, 0, 0.5, 1, 2, 2.5, 3, 7, 2**23 + 1, 2**24, 2**25, np.inf, np.nan])
    exponents = np.broadcast_to(np.resize(exponents, 24).astype(np.float32), (10, 24)).copy()

    @tilekit.epilogue
    def raised(x, base, exponent, number):  # type: ignore[no-untyped-def]
        return base**exponent, (x - 3) ** number, 3.0**exponent

    call = raised(bases, exponents, 3.0)
    ones = np.ones((10, 16), np.float16), np.zeros((16, 24), np.float16)
    found = tilekit.matmul(*ones, epilogue=call, target=target, out_dtype="f32")
    with np.errstate(all="ignore"):
        wanted = bases**exponents, np.full((10, 24), -27.0), 3.0**exponents
    for got, reference, exact in zip(found, call.reference(np.zeros((10, 24))), wanted, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-6)
        np.testing.assert_allclose(reference, exact.astype("f8"), rtol=1e-6)
