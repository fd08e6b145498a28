"""Block-scaled products of CuPy's arrays, with a stand-in for CuPy: read in place, results found again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.calls import kept
from tilekit.calls import scaled as calls
from tilekit.kernels import launch_cache
from tilekit.kernels.block_scaled import arguments
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.runtime import driver as runtime_driver
from tilekit.runtime.parameters import TensorMap
from tilekit.targets import SM_100A

M, N, K = 64, 96, 256
PAIRS = np.empty((M, K // 2), np.uint8), np.empty((N, K // 2), np.uint8).T
LAID = np.empty(1024, np.uint8)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The parameters of each launch that was prepared."""
    found: list[list[Any]] = []

    def prepare(_config: Any, parameters: Any, **_options: Any) -> Any:
        found.append(list(parameters))
        return lambda _stream: None

    monkeypatch.setattr(MatmulKernel, "cuda", property(lambda _: SimpleNamespace(prepare=prepare)))
    monkeypatch.setattr(MatmulKernel, "resident_clusters", lambda _self, _ordinal: 74)
    monkeypatch.setattr(arguments, "resolve_target", lambda _a, _target, memory: (SM_100A, None))
    monkeypatch.setattr(kept, "tuned_or_timed", lambda *_problem, **_sizes: None)
    monkeypatch.setattr(runtime_driver, "devices", lambda: (SimpleNamespace(name="NVIDIA B200"),))
    monkeypatch.setattr(calls, "_launches", launch_cache.LaunchCache())
    return found


def given(cupy: Any) -> tuple[Any, ...]:
    """Pairs of e2m1 as bytes, and scales that are laid out."""
    arrays = zip((0x10000, 0x20000, 0x30000, 0x40000), (*PAIRS, LAID, LAID), strict=True)
    return tuple(cupy.ndarray(address, like) for address, like in arrays)


def test_arrays_are_read_where_they_lie(cupy: Any, prepared: list[list[Any]]) -> None:
    """Maps are of the operands' and scales' own memory; the second call finds the launch by the result's address."""
    results = [tilekit.scaled_matmul(*given(cupy), out_dtype="f32") for _ in range(2)]
    (parameters,) = prepared
    addresses = {one.address for one in parameters if isinstance(one, TensorMap)}
    assert addresses == {0x10000, 0x20000, 0x30000, 0x40000, results[0].data.ptr}
    assert isinstance(results[1], cupy.ndarray)
    assert results[1].shape == (M, N)


@pytest.mark.parametrize(("layout", "shape"), [("rows", (M, N // 32)), ("128x4", (1, 1, 32, 4, 4))])
def test_quantised_results_are_bytes(cupy: Any, prepared: list[list[Any]], layout: str, shape: Any) -> None:
    """CuPy has no narrow floats: pairs and scales that are powers of two are uint8."""
    values, scales = tilekit.scaled_matmul(*given(cupy), out_dtype="mxfp4", scale_layout=layout)
    assert [(one.shape, one.dtype) for one in (values, scales)] == [((M, N // 2), np.uint8), (shape, np.uint8)]
    assert len(prepared) == 1
