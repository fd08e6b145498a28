"""Launches of matmuls on emulated AMD chips: banks of LDS, groups of rows, every door, and what is imported for it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.emulator.gcn.kernel import Kernel
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.plan import EmulatedPlan

CONFIGS: dict[str, type[CdnaConfig]] = {"gfx942": tilekit.Cdna3Config, "gfx950": tilekit.Cdna4Config}
ON_EACH = pytest.mark.parametrize("target", CONFIGS)
BF16 = np.dtype(ml_dtypes.bfloat16)
TILES = (((128, 64), 4, 4), ((64, 48), 1, 2), ((96, 32), 2, 1))
"""Tile, and waves that load and that multiply."""


def operands(seed: int, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Two matrices of small integers in C order, and their product."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype(BF16) for shape in ((m, k), (k, n)))
    return a, b, (a.astype(np.float32) @ b.astype(np.float32)).astype(BF16)


@pytest.mark.sampled(one_in=18)
@ON_EACH
@pytest.mark.parametrize("majors", ["kk", "kn", "mk", "mn"])
def test_no_bank_conflicts(target: str, majors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every access of a launch is counted over the chip's banks; results are exact with every tile."""
    launch = Kernel.launch
    monkeypatch.setattr(Kernel, "launch", lambda kernel, *args, **rest: launch(kernel, *args, statistics=True, **rest))
    for seed, (tile, load, mma) in enumerate(TILES):
        a, b, expected = operands(seed, tile[0] + 1, tile[1] + 8, 72)
        a = a if majors[0] == "k" else np.asfortranarray(a)
        b = b if majors[1] == "n" else np.asfortranarray(b)
        config = CONFIGS[target](tile=tile, load_waves=load, mma_waves=mma)
        plan = tilekit.kernel_for(a, b, target=target, config=config).bind(a, b, seed=seed)
        np.testing.assert_array_equal(plan(), expected)
        assert isinstance(plan, EmulatedPlan)
        assert plan.report.clean
        sites = plan.report.statistics.bank_sites
        assert any("ds_read_b128" in site.text for site in sites)
        assert not [site for site in sites if site.extra]


@ON_EACH
def test_groups_of_rows(target: str) -> None:
    """Each group of rows times a matrix of its own, by ends and by counts; rows of no group stay as they were."""
    rng = np.random.default_rng(5)
    b = rng.integers(-3, 4, (4, 72, 64)).astype(BF16)
    rows = rng.integers(-3, 4, (150, 72)).astype(BF16)
    ends = np.array([40, 40, 99, 147], np.int32)
    out = np.full((150, 64), 7, BF16)
    tilekit.grouped_matmul(rows, b, ends, out=out, target=target)
    first = 0
    for matrix, end in zip(b, ends, strict=True):
        product = rows[first:end].astype(np.float32) @ matrix.astype(np.float32)
        np.testing.assert_array_equal(out[first:end], product.astype(BF16))
        first = end
    assert (out[147:] == 7).all()
    groups, counts = rng.integers(-3, 4, (4, 70, 72)).astype(BF16), np.array([0, 70, 1, 33], np.int32)
    out = np.full((4, 70, 64), 7, BF16)
    tilekit.grouped_matmul(groups, b, counts=counts, out=out, activation="relu", target=target)
    for one, matrix, count, found in zip(groups, b, counts, out, strict=True):
        product = np.maximum(one[:count].astype(np.float32) @ matrix.astype(np.float32), 0)
        np.testing.assert_array_equal(found[:count], product.astype(BF16))
        assert (found[count:] == 7).all()


@pytest.mark.sampled(one_in=4)
@ON_EACH
@pytest.mark.parametrize("store", ["wide", "single"])
@pytest.mark.parametrize("out", ["bf16", "f16", "f32"])
def test_residual_and_everything_else(target: str, out: str, store: str) -> None:
    """Scales, bias, residual and activation together, in batches, stored four neighbours at once or one by one."""
    rng = np.random.default_rng(9)
    n = 72 if store == "wide" else 73
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((3, 50, 40), (3, 40, n)))
    dtype = {"bf16": BF16, "f16": np.float16, "f32": np.float32}[out]
    residual = rng.integers(-9, 10, (3, 50, n)).astype(dtype)
    bias = rng.integers(-9, 10, n).astype(np.float32)
    scale_a, scale_b = (2.0 ** rng.integers(-1, 2, shape).astype(np.float32) for shape in ((3, 50, 1), (3, 1, n)))
    options: dict[str, Any] = {"bias": bias, "residual": residual, "beta": 2.0, "scale": 0.5, "activation": "relu"}
    options |= {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out, "target": target}
    kernel = tilekit.kernel_for(a, b, **options)
    assert any("dwordx" in line for line in kernel.assembly.splitlines() if "global_store" in line) == (store == "wide")
    product = a.astype(np.float32) @ b.astype(np.float32)
    expected = np.maximum(product * 0.5 * scale_a * scale_b + bias + 2 * residual.astype(np.float32), 0)
    np.testing.assert_array_equal(tilekit.matmul(a, b, **options), expected.astype(dtype))


@ON_EACH
def test_times_of_tiles(target: str) -> None:
    """Each role notes when it worked on each tile."""
    a, b, expected = operands(3, 70, 64, 130)
    config = CONFIGS[target](tile=(64, 32), load_waves=1, mma_waves=1, profile_tiles=4)
    plan = tilekit.kernel_for(a, b, target=target, config=config).bind(a, b)
    np.testing.assert_array_equal(plan(), expected)
    traced = plan.trace()
    assert traced.count == 3 * 4  # load, mma and epilogue of four tiles
    assert {"load", "mma", "epilogue"} <= set(traced.summary().split())


IMPORTS = """
import sys
import numpy as np
import tilekit
a = np.ones((16, 16), np.float16)
assert (tilekit.matmul(a, a, target="gfx950") == 16).all()
assert "hip" not in sys.modules and not any(name.startswith("hip.") for name in sys.modules)
assert "cuda.bindings" not in sys.modules
"""


def test_no_binding_is_imported() -> None:
    """What is emulated loads neither vendor's bindings."""
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, timeout=120)
