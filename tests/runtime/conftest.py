"""What the runtime's tests share: a small kernel, a cache of their own, and a CUDA driver that only records."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilekit.runtime import device_faults, driver, tensor_map

SMALL_KERNEL = """\
.version 8.0
.target sm_90a
.address_size 64
.shared .align 16 .b8 scratch[256];
.visible .entry small(.param .u64 out, .param .u32 value)
.maxntid 384
.minnctapersm 1
{
  .reg .u64 %address;
  .reg .u32 %v, %s, %cta;
  .reg .pred %first;
  setmaxnreg.dec.sync.aligned.u32 24;
  ld.param.u64 %address, [out];
  ld.param.u32 %v, [value];
  bar.sync 1, 384;
  mov.u32 %s, %tid.x;
  mov.u32 %cta, %ctaid.x;
  or.b32 %s, %s, %cta;
  setp.eq.u32 %first, %s, 0;
  mov.u32 %s, scratch;
  @%first st.shared.u32 [%s], %v;
  @%first st.global.u32 [%address], %v;  //@ store Storer.store tile_io/store.py:12
  ret;
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test out of the user's cache."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small_kernel() -> str:
    """PTX of one entry, `small(u64 out, u32 value)`, whose first thread writes the value; 384 threads."""
    return SMALL_KERNEL


class FakeCuda:
    """A stand-in for `cuda.bindings.driver`: its enumerations and structures, but recorded and scripted calls.

    Calls succeed and return what `answers` says, by function name; `results` names the
    CUresults of the next calls instead.
    """

    def __init__(self, real: Any) -> None:
        self.real = real
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.results: dict[str, list[str]] = {}
        self.answers: dict[str, Any] = {
            "cuCtxGetCurrent": real.CUcontext(0x77),
            "cuCtxGetDevice": 0,
            "cuDeviceGet": 0,
            "cuDeviceGetAttribute": 232448,
            "cuDeviceGetCount": 2,
            "cuDevicePrimaryCtxRetain": real.CUcontext(0x99),
            "cuDriverGetVersion": 13000,
            "cuFuncGetAttribute": 1024,
            "cuGetErrorString": b"described by the driver",
            "cuKernelGetFunction": real.CUfunction(0x3),
            "cuLibraryGetKernel": real.CUkernel(0x2),
            "cuLibraryLoadData": real.CUlibrary(0x1),
            "cuOccupancyMaxActiveClusters": 66,
            "cuPointerGetAttribute": 1,
        }

    def __getattr__(self, name: str) -> Any:
        if not (name.startswith("cu") and name[2].isupper()):
            return getattr(self.real, name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            pending = self.results.get(name)
            if pending:
                return (getattr(self.real.CUresult, pending.pop(0)),)
            answer = self.answers.get(name)
            if callable(answer):
                answer = answer(*arguments)
            return (self.real.CUresult.CUDA_SUCCESS,) if answer is None else (self.real.CUresult.CUDA_SUCCESS, answer)

        return function

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of every call of one function."""
        return [arguments for called, arguments in self.calls if called == name]

    def map_of(self, content: bytes) -> Any:
        """Return an encoded tensor map with these 128 bytes."""
        result = self.real.CUtensorMap()
        ctypes.memmove(result.getPtr(), content, 128)
        return result


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """Put a `FakeCuda` in the driver's place, with nothing remembered from other tests."""
    fake = FakeCuda(pytest.importorskip("cuda.bindings.driver"))
    monkeypatch.setattr(driver, "bindings", lambda: fake)
    caches = (driver.driver_version, driver.devices, driver._primary_context, tensor_map.encode)
    for function in caches:
        function.cache_clear()
    device_faults._recent.clear()
    yield fake
    for function in caches:
        function.cache_clear()
    device_faults._recent.clear()
