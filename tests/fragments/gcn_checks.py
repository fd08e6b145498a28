"""Checks of GCN fragments by name, the data that they are given, and when results are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import gcn_matrix
import numpy as np
import numpy.typing as npt
from gcn_alone import THREADS

Array = npt.NDArray[Any]
Check = Callable[[str], None]
CHECKS: dict[str, Check] = dict(gcn_matrix.CHECKS)

LANES = np.arange(THREADS, dtype=np.uint32)
RANDOM = np.random.default_rng(20)
WORDS = RANDOM.integers(0, 1 << 32, THREADS, np.uint32)
OTHERS = RANDOM.integers(0, 1 << 32, THREADS, np.uint32)
EDGES = (0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 448, 480, 57344, 7e4, 65504, 65520, 1e-8, 0.0078125, -3e38, 3e38)
FLOATS = np.concatenate([RANDOM.normal(0, 100, 48), EDGES]).astype(np.float32)
MORE = RANDOM.normal(0, 1e3, THREADS).astype(np.float32)
VALID = LANES % 3 != 0
ALL = np.ones(THREADS, bool)


def check(*names: str) -> Callable[[Check], Check]:
    """Register what runs fragments, ``group.name``; a check of several is made once a chip."""

    def register(function: Check) -> Check:
        once = cache(function)
        for name in names:
            CHECKS[name] = once
        return function

    return register


MEMORY = np.arange(1, 2049, dtype=np.uint32)
PLACES = RANDOM.permutation(THREADS).astype(np.uint32) * 16


def same(found: Array, wanted: Array) -> None:
    """The same bits; of floats any NaN is one."""
    if wanted.dtype.kind == "f" or wanted.dtype.name.startswith(("bfloat", "float")):
        found = found.view(wanted.dtype)
        with np.errstate(all="ignore"):
            nan = np.isnan(wanted.astype(np.float64))
            assert np.isnan(found.astype(np.float64))[nan].all()
        bits = f"u{wanted.dtype.itemsize}"
        assert (found[~nan].view(bits) == wanted[~nan].view(bits)).all(), (found, wanted)
    else:
        assert (found == wanted).all(), (found, wanted)
