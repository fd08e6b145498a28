"""Division of numbers below 2^31 by a product and a shift."""

from __future__ import annotations

import numpy as np

from tilekit.tile_schedule.divisor import reciprocal

MOST = 2**31 - 1


def test_products_and_shifts_are_quotients() -> None:
    """Small divisors, powers of 2 and their neighbours, the largest, and any; numbers on both sides of multiples."""
    random = np.random.default_rng(31)
    powers = [1 << bit for bit in range(31)]
    near = [power + step for power in powers for step in (-1, 0, 1)]
    divisors = {*range(1, 300), *near, MOST, *(int(2 ** (31 * part)) for part in random.random(2000))}
    for divisor in sorted(d for d in divisors if 1 <= d <= MOST):
        factor, shift = reciprocal(divisor)
        assert factor < 2**32
        multiples = divisor * random.integers(0, MOST // divisor + 1, 4)
        numbers = [0, 1, MOST, MOST // divisor * divisor, *multiples.tolist()]
        for number in {min(MOST, max(0, near + step)) for near in numbers for step in (-1, 0, 1)}:
            assert number * factor >> shift == number // divisor, (number, divisor)
