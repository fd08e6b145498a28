"""What columns need of a staged epilogue, spread over the lanes of a warp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.dtypes import BF16, E4M3, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

ALL = ElementwiseSpec(scale_a=True, scale_b=True, bias=F32, activation="relu")
TURNS = MatmulConfig((128, 88), (1, 1), schedule="pingpong")
SHARED = MatmulConfig((64, 64), (1, 1), consumers=1, cluster_k=2)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("config", [TURNS, SHARED], ids=["in turn", "a sum shared in a cluster"])
def test_each_column_has_its_own(config: MatmulConfig, swapped: bool) -> None:
    """Tiles end inside of the output's rows and columns, and pieces are no multiple of a warp's lanes."""
    rng = np.random.default_rng(7)
    m, n, k = 150, 200, 64
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    rows, columns = (2.0 ** rng.integers(-2, 3, shape).astype(np.float32) for shape in ((m, 1), (1, n)))
    bias = rng.integers(-8, 9, n).astype(np.float32)
    given: dict[str, Any] = {"scale_a": rows, "scale_b": columns, "bias": bias, "activation": "relu"}
    found = tilekit.matmul(a, b.T, out_dtype="f32", config=config.changed(swap_ab=swapped), target="sm_90a", **given)
    wanted = (a.astype(np.float32) @ b.T.astype(np.float32)) * rows * columns + bias
    np.testing.assert_array_equal(found, np.maximum(wanted, 0))


def test_a_warp_loads_each_once() -> None:
    """Of 168 columns in pieces of 64, 64 and 40 six loads, and as many of the bias, for each of two blocks of rows."""
    spec = MatmulSpec(E4M3, E4M3, BF16, functions=ElementwiseSpec(scale_b=True, bias=F32))
    ptx = tilekit.compile(spec, config=MatmulConfig((128, 168), (1, 1), schedule="pingpong")).ptx
    assert ptx.count("ld.global.nc.f32") == 2 * 2 * 6


def test_wide_tiles_in_turn_have_registers_for_them() -> None:
    """176 columns are legal with all of them and spill nothing, and 184 are not."""
    spec = MatmulSpec(E4M3, E4M3, BF16, functions=ALL)
    wide = MatmulConfig((128, 176), (1, 1), schedule="pingpong")
    assert wide.legal(SM_90A, spec)
    (problem,) = wide.changed(tile=(128, 184)).problems(SM_90A, spec)
    assert "nearest: tile=(128, 176)" in problem
    assert tilekit.compile(spec, config=wide).resources.spill_store_bytes == 0
