"""What columns have of their own, fetched by a warp together: the same results, by a few loads a tile."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit import BlackwellConfig, MatmulConfig, OwnComponents
from tilekit.epilogue import column, column_sum, row_sum, where

BF16 = ml_dtypes.bfloat16
CONFIGS = {
    "a block": ("sm_90a", MatmulConfig((128, 192), (1, 1))),
    "two blocks": ("sm_90a", MatmulConfig((128, 64), (1, 1), schedule="pingpong")),
    "part of a run": ("sm_90a", MatmulConfig((64, 96), (1, 1), consumers=1)),
    "tensor memory": ("sm_100a", BlackwellConfig((128, 128), (1, 1), cta_group=1)),
    "a pair": ("sm_100a", BlackwellConfig((128, 256), (2, 1))),
}
M, N, K = 136, 328, 64


def operands() -> tuple[Any, Any, Any]:
    """A product of small integers."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, shape).astype(BF16) for shape in ((M, K), (K, N)))
    return a, b, a.astype("f4") @ b.astype("f4")


@tilekit.epilogue
def computed(x, bias, factor):  # type: ignore[no-untyped-def]
    """What follows from columns is an f32 that lanes hand each other; a place is no value that they would."""
    y = x + (bias + 1.0) * 2.0 + factor
    return y, row_sum(y), where(column(x) == 7, y, 0.0).astype("f32")


@tilekit.epilogue
def asked(x, bias):  # type: ignore[no-untyped-def]
    """A condition of columns is none, so that their operands are handed on."""
    y = where((bias > 0) & (column(x) > 5), x + bias, 0.0 - x)
    return y, column_sum(y)


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_position_coded_columns(name: str, out: str) -> None:
    """Every column gets what is its own, to N and no further, of tiles that N does not divide."""
    target, config = CONFIGS[name]
    a, b, product = operands()
    bias, factor = np.arange(N, dtype=np.float32) % 64 - 20, (np.arange(N) % 3).astype(BF16)
    for call in (computed(bias, factor), asked(bias)):
        found = tilekit.matmul(a, b, epilogue=call, target=target, config=config, out_dtype=out)
        for one, wanted in zip(found, call.reference(product), strict=True):
            assert (one == np.asarray(wanted).astype(one.dtype)).all()


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("out", [BF16, ml_dtypes.float8_e4m3fn])
def test_bias_and_scale_of_columns(name: str, out: type) -> None:
    """The built-in functions take them in the same way, of each matrix of a batch its own bias."""
    target, config = CONFIGS[name]
    a, b, product = operands()
    bias = np.stack([np.arange(N) % 64, np.arange(N) % 3]).astype(np.float32)
    scale = 2.0 ** (np.arange(N, dtype=np.float32) % 3 - 1)
    how = {"target": target, "config": config, "out_dtype": np.dtype(out)}
    found = tilekit.matmul(np.stack([a, a]), b, bias=bias, scale_b=scale, **how)
    assert (found == (product * scale + bias[:, None]).astype(out)).all()


def loads(kernel: Any) -> int:
    """Elements that a thread loads by itself, of a tile."""
    return len([line for line in kernel.ptx.splitlines() if "ld.global.nc.f32" in line])


def test_a_few_loads() -> None:
    """A thread loads two elements of 64 columns, where it works with 16."""
    a, b, _ = operands()
    bias = np.zeros(N, np.float32)
    kernel = tilekit.kernel_for(a, b, bias=bias, config=MatmulConfig((128, 192), (1, 1)), target="sm_90a")
    assert loads(kernel) == 2 * 192 // 64


class Shifted(tk.Elementwise):
    """Other columns than those of its base."""

    def columns(self, w: tk.Writer, column: tk.Value, *, apart: int = 1, batch: Any = 0) -> Any:
        """Those behind them."""
        return super().columns(w, column + 1, apart=apart, batch=batch)


def test_a_subclass_with_columns_of_its_own_is_asked_for_them() -> None:
    """What its base would have a warp fetch is not what it says."""

    def made(w: tk.Writer, *, columns: Any, precise: bool, **_: Any) -> Shifted:
        return Shifted(w, tk.ElementwiseSpec(bias=tk.F32), columns=columns, precise=precise)

    a, b, _ = operands()
    own = OwnComponents(functions=made)
    kernel = tilekit.kernel_for(a, b, components=own, target="sm_90a", config=MatmulConfig((128, 64), (1, 1)))
    assert loads(kernel) == 64 // 4
