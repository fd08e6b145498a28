"""Convolutions of CuPy's arrays, with a stand-in for CuPy and the driver: read in place, results found again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.calls import conv2d as calls
from tilekit.errors import ArgumentError
from tilekit.kernels import launch_cache
from tilekit.kernels.conv2d import arguments
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.runtime import driver as runtime_driver
from tilekit.runtime.parameters import TensorMap
from tilekit.targets import SM_90A

X, W = np.empty((2, 9, 7, 64), np.float16), np.empty((32, 3, 3, 64), np.float16)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[list[TensorMap]]:
    """The tensor maps of each launch that was prepared."""
    found: list[list[TensorMap]] = []

    def prepare(_config: Any, parameters: Any, **_options: Any) -> Any:
        found.append([parameter for parameter in parameters if isinstance(parameter, TensorMap)])
        return lambda _stream: None

    monkeypatch.setattr(MatmulKernel, "cuda", property(lambda _: SimpleNamespace(prepare=prepare)))
    monkeypatch.setattr(MatmulKernel, "resident_clusters", lambda _self, _ordinal: 66)
    monkeypatch.setattr(arguments, "resolve_target", lambda _a, _target, memory: (SM_90A, None))
    monkeypatch.setattr(calls, "tuned_config", lambda *_problem, **_sizes: None)
    monkeypatch.setattr(runtime_driver, "devices", lambda: (SimpleNamespace(name="NVIDIA H200"),))
    monkeypatch.setattr(calls, "_launches", launch_cache.LaunchCache())
    return found


def test_arrays_are_read_where_they_lie(cupy: Any, prepared: list[list[TensorMap]]) -> None:
    """The im2col map is of the images' own memory; the second call finds the launch by the result's address."""
    x, w = cupy.ndarray(0x10000, X), cupy.ndarray(0x20000, W)
    results = [tilekit.conv2d(x, w, stride=2, padding=1) for _ in range(2)]
    (maps,) = prepared
    assert isinstance(results[0], cupy.ndarray)
    assert results[0].shape == (2, 5, 4, 32)
    assert [one.address for one in maps] == [0x10000, 0x20000, results[0].data.ptr]
    assert maps[0].dims == (64, 7, 9, 2)
    assert cupy.entered == [("device", 0)] * 2


def test_a_copy_is_cupys_own(cupy: Any, prepared: list[list[TensorMap]]) -> None:
    """Where channels do not lie behind each other, the call that is named copies on the device."""
    first = cupy.ndarray(0x10000, np.empty((2, 64, 9, 7), np.float16).transpose(0, 2, 3, 1))
    with pytest.raises(ArgumentError, match=r"cupy\.ascontiguousarray\(x\)"):
        tilekit.conv2d(first, cupy.ndarray(0x20000, W))
    assert prepared == []
