"""Matmuls through HIP that an emulated GPU executes: each function is a test, run by ``test_hip.py``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.runtime.hip_double.double import Double
from tests.runtime.hip_double.emulation import Emulation
from tilekit.epilogue import column_max, column_min, column_sum
from tilekit.errors import ArgumentError
from tilekit.kernels import plan as plans
from tilekit.runtime import hip
from tilekit.runtime.assembler import assemble

SCENARIOS: dict[str, Callable[[Double, Emulation], None]] = {}
CHIPS = ("gfx942", "gfx950")
"""Of the double's devices, in their order."""
CONFIGS = {"gfx942": tilekit.Cdna3Config, "gfx950": tilekit.Cdna4Config}


def scenario(function: Callable[[Double, Emulation], None]) -> Callable[[Double, Emulation], None]:
    """Make a function one of the scenarios."""
    SCENARIOS[function.__name__] = function
    return function


class InMemory:
    """An array in the memory of a device, as libraries without a protocol of their own show theirs."""

    def __init__(self, values: np.ndarray[Any, Any], ordinal: int) -> None:
        self.shape, self.dtype = values.shape, values.dtype
        with hip.activated(ordinal):
            self.buffer = hip.HipBuffer(max(values.nbytes, 1))  # of no element too there is an address
            self.buffer.write(np.ascontiguousarray(values).tobytes() or bytes(1))
        self.ordinal = ordinal
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (self.buffer.address, False),
            "strides": None,
        }

    def read(self) -> np.ndarray[Any, Any]:
        """The elements, once the device has done what it was asked to."""
        with hip.activated(self.ordinal):
            hip.synchronize()
            data = b"" if 0 in self.shape else self.buffer.read()
            return np.frombuffer(data, self.dtype).reshape(self.shape)


def operands(seed: int, m: int, n: int, k: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Two matrices of small integers, and their product."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n)))
    return a, b, a.astype(np.float32) @ b.astype(np.float32)


@scenario
def host_arrays_go_there_and_back(double: Double, emulation: Emulation) -> None:
    """target="hip" computes on the first GPU; its text is the one that the emulator runs for arrays in host memory."""
    texts: list[Any] = []
    module = plans.EmulatedModule

    def kept(device: Any, text: Any) -> Any:
        texts.append(text)
        return module(device, text)

    a, b, expected = operands(1, 70, 48, 96, ml_dtypes.bfloat16)
    bias = np.arange(48, dtype=np.float32)
    d = tilekit.matmul(a, b, bias=bias, out_dtype="f32", target="hip")
    np.testing.assert_array_equal(d, expected + bias)
    (launch,) = double.launches
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "EmulatedModule", kept)
        np.testing.assert_array_equal(tilekit.matmul(a, b, bias=bias, out_dtype="f32", target="gfx942"), d)
    (text,) = texts
    kernel = tilekit.kernel_for(a, b, bias=bias, out_dtype="f32", target="gfx942")
    assert text == kernel.assembly
    assert launch.image == assemble(text, "gfx942", kernel_name=kernel.name).image
    assert len(double.launches) == 1


@scenario
def arrays_of_either_gpu_stay_there(double: Double, emulation: Emulation) -> None:
    """Arrays in a GPU's memory say which chip the kernel is for; shares of sums leave their counters as they were."""
    for ordinal, chip in enumerate(CHIPS):
        a, b, expected = operands(ordinal, 70, 48, 200, np.float16)
        given = [InMemory(x, ordinal) for x in (a, b)]
        out = InMemory(np.full((70, 48), np.nan, np.float32), ordinal)
        for config in (None, CONFIGS[chip](tile=(64, 32), load_waves=1, mma_waves=2, split_k=2)):
            for _ in range(2):
                assert tilekit.matmul(*given, out=out, config=config) is out
                np.testing.assert_array_equal(out.read(), expected)
                assert double.launches[-1].ordinal == ordinal
        plan = tilekit.kernel_for(*given, out=out).bind(*given, out)
        plan()
        np.testing.assert_array_equal(out.read(), expected)
    assert all(report.clean for report in emulation.reports)
    assert hip.call("hipGetDevice") == 0  # as it was


@scenario
def totals_of_nothing_are_filled(double: Double, emulation: Emulation) -> None:
    """Of a product without rows the columns' totals are 0, -inf and inf, in memory of the second GPU; nothing runs."""
    call = tilekit.epilogue(lambda x: (x, column_sum(x), column_max(x), column_min(x)))()
    a, b = (InMemory(np.zeros(shape, np.float16), 1) for shape in ((0, 64), (64, 72)))
    out = [InMemory(np.full(shape, 7, dtype), 1) for shape, dtype in (((0, 72), np.float16), *[(72, np.float32)] * 3)]
    tilekit.matmul(a, b, out=tuple(out), epilogue=call)
    assert [set(one.read().tolist()) for one in out] == [set(), {0.0}, {-np.inf}, {np.inf}]
    assert not double.launches


@scenario
def another_chip_is_refused(double: Double, emulation: Emulation) -> None:
    """A target that is not the GPU's, and a kernel bound to arrays of another GPU, name both chips."""
    a, b, _ = operands(0, 16, 16, 16, np.float16)
    given = [InMemory(x, 1) for x in (a, b)]
    out = InMemory(np.zeros((16, 16), np.float16), 1)
    with pytest.raises(ArgumentError, match=r"target='gfx942', but the arrays are on AMD double 1, which is gfx950"):
        tilekit.matmul(*given, out=out, target="gfx942")
    kernel = tilekit.kernel_for(a, b, target="gfx942")
    with pytest.raises(ArgumentError, match="TK-API-001"):
        kernel.bind(*given, out)
    with pytest.raises(ArgumentError, match=r"device: given 'cuda'(?s:.*)'hip' for arrays in host memory"):
        kernel.bind(a, b, device="cuda")
    np.testing.assert_array_equal(kernel.bind(a, b, device="hip")(), (a.astype("f4") @ b.astype("f4")).astype("f2"))
    assert not double.launches[:-1]


if __name__ == "__main__":
    _double = Double(Path(os.environ["ROCM_PATH"]) / "lib" / "libamdhip64.so")
    SCENARIOS[sys.argv[1]](_double, Emulation(_double))
