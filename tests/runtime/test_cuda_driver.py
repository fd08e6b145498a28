"""The driver layer: no driver, errors, contexts; and faults that other kernels caused."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tilekit.errors import ArgumentError, DriverError, KernelFault
from tilekit.runtime import device_faults, driver


def probe(monkeypatch: pytest.MonkeyPatch, *, init: str = "CUDA_SUCCESS", version: int = 13000) -> None:
    """Let `bindings` run its real probe against a library that loads and answers so."""
    real = pytest.importorskip("cuda.bindings.driver")
    import cuda.bindings
    import cuda.pathfinder

    fake = SimpleNamespace(
        cuInit=lambda flags: (getattr(real.CUresult, init),),
        cuDriverGetVersion=lambda: (real.CUresult.CUDA_SUCCESS, version),
        cuGetErrorString=lambda result: (real.CUresult.CUDA_SUCCESS, b"no CUDA-capable device is detected"),
    )
    monkeypatch.setattr(cuda.pathfinder, "load_nvidia_dynamic_lib", lambda name: None)
    monkeypatch.setattr(cuda.bindings, "driver", fake)


@pytest.fixture(autouse=True)
def unprobed() -> Any:
    """Forget a probe's answer before and after each test."""
    driver.bindings.cache_clear()
    yield
    if hasattr(driver.bindings, "cache_clear"):
        driver.bindings.cache_clear()


def test_without_a_driver_every_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library means a DriverError with a reason, at once and every time, never a hang."""
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def missing(name: str) -> None:
        raise RuntimeError(f"{name} not found")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    for _ in range(2):
        with pytest.raises(DriverError, match="no NVIDIA driver") as caught:
            driver.bindings()
        assert caught.value.code == "TK-DRV-003"
    assert "no NVIDIA driver" in (driver.why_unavailable() or "")


@pytest.mark.parametrize("there", [True, False])
def test_a_missing_package_is_named_where_there_is_a_driver(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    """Without a driver nothing is said of packages: one line, the same as with them."""
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(driver, "_driver_is_there", lambda: there)
    with pytest.raises(DriverError) as caught:
        driver.bindings()
    if there:
        assert "pip install 'cuda-bindings>=13'" in caught.value.message
    else:
        assert caught.value.message == "no NVIDIA driver on this machine"


def test_old_driver_is_named_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver before CUDA 12.0 is refused, saying what it supports and what is needed."""
    probe(monkeypatch, version=11080)
    with pytest.raises(DriverError, match=r"supports CUDA 11\.8; tilekit's kernels need 12\.0") as caught:
        driver.bindings()
    assert caught.value.code == "TK-DRV-004"


def test_driver_without_a_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing cuInit is reported by its name."""
    probe(monkeypatch, init="CUDA_ERROR_NO_DEVICE")
    with pytest.raises(DriverError, match=r"cuInit returned CUDA_ERROR_NO_DEVICE \(no CUDA-capable"):
        driver.bindings()


def test_working_driver_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new enough driver passes the probe."""
    probe(monkeypatch, version=12000)
    assert driver.bindings().cuDriverGetVersion()[1] == 12000


def test_failed_call_names_call_result_and_purpose(cuda: Any) -> None:
    """A CUresult becomes an exception that says what was called, for what, and how it ended."""
    cuda.results["cuLibraryUnload"] = ["CUDA_ERROR_INVALID_VALUE"]
    with pytest.raises(DriverError) as caught:
        driver.call("cuLibraryUnload", 1, during="matmul 128x256")
    assert str(caught.value).startswith(
        "matmul 128x256: cuLibraryUnload returned CUDA_ERROR_INVALID_VALUE (described by the driver)"
    )
    assert (caught.value.call, caught.value.result) == ("cuLibraryUnload", "CUDA_ERROR_INVALID_VALUE")


def test_results_are_unpacked(cuda: Any) -> None:
    """Nothing, one value or several come back as None, the value or a tuple."""
    cuda.answers["cuLibraryUnload"] = None
    assert driver.call("cuLibraryUnload", 1) is None
    assert driver.call("cuDeviceGetCount") == 2


def test_sticky_result_becomes_a_kernel_fault_with_recent_launches(cuda: Any) -> None:
    """A dead context is reported with the kernels launched last, the latest first, repetitions counted."""
    for label in ("first", "second", "second"):
        device_faults.remember(label)
    cuda.results["cuStreamSynchronize"] = ["CUDA_ERROR_ILLEGAL_INSTRUCTION"]
    with pytest.raises(KernelFault) as caught:
        driver.synchronize(5)
    assert caught.value.launches == ("second (2 times)", "first")
    assert "second (2 times)\n  first" in str(caught.value)
    assert caught.value.result == "CUDA_ERROR_ILLEGAL_INSTRUCTION"
    assert cuda.named("cuStreamSynchronize") == [(5,)]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        ValueError("CUDADriverError: CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address"),
        RuntimeError("cudaErrorIllegalInstruction: an illegal instruction was encountered"),
    ],
)
def test_other_libraries_faults_are_explained(error: Exception) -> None:
    """A fault that torch or CuPy reports becomes a KernelFault that keeps their exception as its cause."""
    device_faults.remember("suspect")
    with pytest.raises(KernelFault, match="suspect") as caught, device_faults.explained():
        raise error
    assert caught.value.__cause__ is error


def test_other_exceptions_pass_unchanged() -> None:
    """What is no fault on the device is left alone."""
    with pytest.raises(RuntimeError, match=r"^CUDA out of memory$"), device_faults.explained():
        raise RuntimeError("CUDA out of memory")
    with pytest.raises(ValueError, match=r"^misaligned address of a house$"), device_faults.explained():
        raise ValueError("misaligned address of a house")


def test_only_so_many_launches_are_remembered() -> None:
    """The ring is bounded."""
    for number in range(1000):
        device_faults.remember(str(number))
    assert device_faults.recent()[0] == "999"
    assert len(device_faults.recent()) == 32


def test_current_context_is_used(cuda: Any) -> None:
    """With a current context on the device, no other is made or made current."""
    context = driver.context_for()
    assert (int(context.handle), context.ordinal) == (0x77, 0)
    assert driver.context_for(0) == context
    assert not cuda.named("cuDevicePrimaryCtxRetain")


def test_without_a_context_the_primary_one_becomes_current(cuda: Any) -> None:
    """A thread without a context gets the device's primary one, retained once."""
    cuda.answers["cuCtxGetCurrent"] = cuda.CUcontext(0)
    assert driver.context_for(1).ordinal == 1
    assert driver.context_for(1).ordinal == 1
    assert len(cuda.named("cuDevicePrimaryCtxRetain")) == 1
    assert [int(arguments[0]) for arguments in cuda.named("cuCtxSetCurrent")] == [0x99, 0x99]


def test_another_devices_context_leaves_the_current_one_alone(cuda: Any) -> None:
    """Working on device 1 while 0 is current changes nothing for the caller; a block pushes and pops."""
    context = driver.context_for(1)
    assert (int(context.handle), context.ordinal) == (0x99, 1)
    assert not cuda.named("cuCtxSetCurrent")
    with pytest.raises(KeyError), driver.activated(context):
        raise KeyError
    assert len(cuda.named("cuCtxPushCurrent")) == len(cuda.named("cuCtxPopCurrent")) == 1


def test_device_that_does_not_exist(cuda: Any) -> None:
    """An ordinal beyond the last device names the legal ones."""
    with pytest.raises(ArgumentError, match=r"0 to 1; nearest legal: 1"):
        driver.context_for(7)


def test_device_of_an_address(cuda: Any) -> None:
    """Device memory has an ordinal; a host address is an argument error."""
    assert driver.device_of(0x7F00) == 1
    cuda.results["cuPointerGetAttribute"] = ["CUDA_ERROR_INVALID_VALUE"]
    with pytest.raises(ArgumentError, match="0x1234"):
        driver.device_of(0x1234)


def test_devices_are_described(cuda: Any) -> None:
    """Names, capability and sizes come from the attributes that bear their names."""
    kinds = cuda.CUdevice_attribute
    attributes = {
        kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9,
        kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0,
        kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: 132,
        kinds.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: 60 << 20,
    }
    cuda.answers |= {
        "cuDeviceGetAttribute": lambda kind, device: attributes[kind],
        "cuDeviceGetName": b"NVIDIA H200\0\0",
        "cuDeviceTotalMem": 141 << 30,
    }
    first, second = driver.devices()
    assert first == driver.DeviceInfo(0, "NVIDIA H200", (9, 0), 132, 141 << 30, 60 << 20, (13, 0))
    assert second.ordinal == 1
