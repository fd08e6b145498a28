"""Totals of rows and columns on chips whose warps share the rows of a tile, exactly, over their drivers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit import AmpereConfig, Cdna3Config, Cdna4Config
from tilekit.epilogue import column_min, column_sum, row_max, row_sum
from tilekit.errors import ConfigError

pytestmark = pytest.mark.breadth


@tilekit.epilogue
def totals(x, gate, beside):  # type: ignore[no-untyped-def]
    """Exact on whole numbers."""
    y = x * gate + beside
    return y, row_sum(y), column_sum(y), row_max(y), column_min(y)


CONFIGS = {
    "gfx942 roles": ("gfx942", Cdna3Config(tile=(128, 64))),
    "gfx942 ping-pong": ("gfx942", Cdna3Config(driver="ping_pong")),
    "gfx950 roles, shares": ("gfx950", Cdna4Config(tile=(128, 64), split_k=2)),
    "gfx950 ping-pong": ("gfx950", Cdna4Config(driver="ping_pong")),
    "gfx950 interleaved": ("gfx950", Cdna4Config(driver="interleaved")),
    "sm_80 side by side": ("sm_80", AmpereConfig(tile=(64, 128), grid=(1, 4))),
    "sm_80 as a grid, shares": ("sm_80", AmpereConfig(tile=(128, 64), grid=(2, 2), split_k=2)),
}
"""Waves and warps side by side; in halves of a tile; and shares of a sum."""


def check(target: str, config: Any, shape: tuple[int, int, int], batch: tuple[int, ...], seed: int) -> None:
    """One product and its totals, bit by bit."""
    rng = np.random.default_rng(seed)
    m, n, k = shape
    a, b = (rng.integers(-3, 4, (*batch, *two)).astype("f2") for two in ((m, k), (n, k)))
    gate, beside = rng.integers(-2, 3, n).astype("f4"), rng.integers(-9, 10, (*batch, m, n)).astype("f4")
    b = b.swapaxes(-1, -2)
    found = tilekit.matmul(a, b, epilogue=totals(gate, beside), out_dtype="f32", target=target, config=config)
    y = (a.astype("f8") @ b.astype("f8")) * gate + beside
    expected = y, y.sum(-1), y.sum(-2), y.max(-1), y.min(-2)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", CONFIGS)
def test_totals_of_every_driver(name: str) -> None:
    """Ragged edges, several tiles along rows and columns."""
    check(*CONFIGS[name], (70, 150, 64), (), seed=3)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_120a", "gfx942", "gfx950"])
def test_totals_of_batches(target: str) -> None:
    """A vector a matrix, with the picker's config."""
    check(target, None, (40, 70, 40), (2,), seed=4)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_120a", "gfx942", "gfx950"])
def test_totals_of_random_products(target: str, seed: int) -> None:
    """Shapes at random, with the picker's config or that of a driver, where the product may have it."""
    rng = np.random.default_rng(100 + seed)
    shape = tuple(int(extent) for extent in rng.integers(1, (300, 300, 200)))
    batch = (int(rng.integers(2, 4)),) if rng.random() < 0.3 else ()
    configs = [None, *(config for chip, config in CONFIGS.values() if chip == target)]
    chosen = configs[int(rng.integers(len(configs)))]
    try:
        check(target, chosen, shape, batch, seed)
    except ConfigError:
        assert chosen is not None
        check(target, None, shape, batch, seed)
