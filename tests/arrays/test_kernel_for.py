"""The kernel that a call launches, without the call."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.errors import ArgumentError
from tilekit.kernels.compiled import CompiledKernel

BF16 = ml_dtypes.bfloat16


def array(*shape: int, dtype: Any = BF16) -> Any:
    """Small integers."""
    return np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(dtype)


CALLS: dict[str, dict[str, Any]] = {
    "matmul": {"a": array(40, 64), "b": array(64, 48)},
    "gemv": {"a": array(3, 64), "b": array(48, 64).T},
    "odd": {"a": array(40, 61), "b": array(61, 47), "bias": array(47, dtype=np.float32), "activation": "relu"},
    "batched": {"a": array(2, 40, 64), "b": array(64, 48), "out_dtype": "f32", "scale": 0.5},
    "blackwell": {"a": array(40, 64), "b": array(64, 48), "target": "sm_100a"},
    "tf32": {"a": array(40, 64, dtype=np.float32), "b": array(48, 64, dtype=np.float32).T, "precision": "tf32"},
    "configured": {"a": array(4, 64), "b": array(64, 48), "config": tilekit.MatmulConfig((64, 64), (1, 1), 1)},
    "residual": {"a": array(40, 64), "b": array(64, 48), "residual": array(40, 48)},
}


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("given_out", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_it_is_the_kernel_that_matmul_binds(name: str, given_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every kind of call, with an output of the caller's in odd places too, both name the same object."""
    call = CALLS[name]
    bound: list[CompiledKernel] = []
    plan = CompiledKernel.plan

    def note(kernel: CompiledKernel, *arguments: Any, **options: Any) -> Any:
        bound.append(kernel)
        return plan(kernel, *arguments, **options)

    monkeypatch.setattr(CompiledKernel, "plan", note)
    made = tilekit.matmul(**call)
    if given_out:
        around = np.zeros((*made.shape[:-1], made.shape[-1] + 3), made.dtype)
        call = {**call, "out": around[..., 1:-2]}
        np.testing.assert_array_equal(tilekit.matmul(**call), made)
    assert tilekit.kernel_for(**call) is bound[-1]


def test_what_it_shows_can_be_bound() -> None:
    """The kernel explains itself, and bound it computes what the call does."""
    a, b = CALLS["gemv"]["a"], CALLS["gemv"]["b"]
    kernel = tilekit.kernel_for(a, b)
    assert kernel.name == "gemv_bf16_bf16_bf16_kk_m4"
    assert "tokens" in kernel.explain()
    np.testing.assert_array_equal(kernel.bind(a, b)(), tilekit.matmul(a, b))


def test_what_matmul_refuses_is_refused() -> None:
    """Without a launch, the same errors."""
    for bad in ({"b": array(32, 48)}, {"out": np.zeros((40, 47), BF16)}, {"out_dtype": "f64"}, {"bias": array(3)}):
        call: dict[str, Any] = {**CALLS["matmul"], **bad}
        with pytest.raises(ArgumentError) as refused:
            tilekit.matmul(**call)
        with pytest.raises(ArgumentError) as again:
            tilekit.kernel_for(**call)
        assert again.value.code == refused.value.code
