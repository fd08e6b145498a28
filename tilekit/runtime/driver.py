"""The CUDA driver: loading it, its errors, its devices, and whose context a call runs in.

Nothing here touches the driver before it is asked to, and without one every call raises `DriverError` at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilekit.errors import ArgumentError, DriverError
from tilekit.runtime import device_faults

__all__ = [
    "MINIMUM_DRIVER",
    "Context",
    "DeviceInfo",
    "activated",
    "bindings",
    "call",
    "context_for",
    "device_of",
    "devices",
    "driver_version",
    "synchronize",
    "why_unavailable",
]

MINIMUM_DRIVER = 12000
"""Oldest driver that has tensor maps and clusters and loads sm_90a images: CUDA 12.0, as cuDriverGetVersion counts."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One GPU.

    Attributes
    ----------
    ordinal : int
        The driver's number of the device.
    name : str
        For example ``NVIDIA H200``.
    compute_capability : tuple of int
        For example ``(9, 0)``.
    sms : int
        Streaming multiprocessors.
    memory, l2 : int
        Bytes of global memory and of L2 cache.
    driver_version : tuple of int
        Newest CUDA version that the driver supports, e.g. ``(13, 0)``.
    """

    ordinal: int
    name: str
    compute_capability: tuple[int, int]
    sms: int
    memory: int
    l2: int
    driver_version: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Context:
    """A CUDA context and the device it is on."""

    handle: Any
    ordinal: int


_NO_DRIVER = "no NVIDIA driver on this machine"


def _driver_is_there() -> bool:
    """Whether the driver's library can be loaded, by whatever name the system gives it."""
    for name in ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False


@cache
def bindings() -> Any:
    """Return the module `cuda.bindings.driver`, with the driver loaded, initialised and new enough.

    Raises
    ------
    DriverError
        When cuda-bindings is not installed (``TK-DRV-002``), there is no driver or no device (``TK-DRV-003``), or the
        driver is older than `MINIMUM_DRIVER` (``TK-DRV-004``).
    """
    try:
        from cuda.bindings import driver
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError as error:
        if not _driver_is_there():
            raise DriverError(_NO_DRIVER, code="TK-DRV-003") from None
        message = "an NVIDIA driver is on this machine, and the Python package cuda-bindings is not: pip install "
        raise DriverError(f"{message}'cuda-bindings>=13' cuda-pathfinder", code="TK-DRV-002") from error
    try:
        # Asking for the library first: driver calls without one are not all safe to make.
        load_nvidia_dynamic_lib("cuda")
    except RuntimeError as error:
        raise DriverError(_NO_DRIVER, code="TK-DRV-003") from error
    (result,) = driver.cuInit(0)
    if result:
        name = _name(result)
        message = f"the NVIDIA driver cannot be used: cuInit returned {name} ({_describe(driver, result)})"
        raise DriverError(message, call="cuInit", result=name, code="TK-DRV-003")
    result, version = driver.cuDriverGetVersion()
    if result or version < MINIMUM_DRIVER:
        has, needs = _version(version), _version(MINIMUM_DRIVER)
        message = (
            f"the NVIDIA driver supports CUDA {has[0]}.{has[1]}; tilekit's kernels need {needs[0]}.{needs[1]} or later"
        )
        raise DriverError(message, call="cuDriverGetVersion", code="TK-DRV-004")
    return driver


def why_unavailable() -> str | None:
    """Return why no CUDA device can be used, or None if one can."""
    try:
        return None if devices() else "the NVIDIA driver finds no device"
    except DriverError as error:
        return error.message


def call(name: str, *arguments: Any, during: str = "") -> Any:
    """Call a driver function and return its results without the CUresult: None, one value, or a tuple.

    Parameters
    ----------
    name : str
        For example ``cuDeviceGet``.
    *arguments
        As cuda.bindings takes them.
    during : str, optional
        What was being done, with the kernel and its configuration, for the message of an error.

    Raises
    ------
    KernelFault
        When the result says that a kernel launched earlier died.
    DriverError
        For every other result but CUDA_SUCCESS.
    """
    result, *values = getattr(bindings(), name)(*arguments)
    if result:
        raise error_of(name, result, during)
    return values[0] if len(values) == 1 else tuple(values) or None


def error_of(name: str, result: Any, during: str = "") -> DriverError:
    """Return the exception for a CUresult that is not CUDA_SUCCESS."""
    code = _name(result)
    what = f"{during}: " if during else ""
    message = f"{what}{name} returned {code} ({_describe(bindings(), result)})"
    if code in device_faults.STICKY:
        return device_faults.fault(message, call=name, result=code)
    return DriverError(message, call=name, result=code)


@cache
def driver_version() -> int:
    """Return the newest CUDA version that the driver supports, as cuDriverGetVersion counts: 13000 for 13.0."""
    return int(call("cuDriverGetVersion"))


@cache
def devices() -> tuple[DeviceInfo, ...]:
    """Return every GPU that this process sees.

    Raises
    ------
    DriverError
        When there is no usable driver.
    """
    return tuple(_device_info(ordinal) for ordinal in range(call("cuDeviceGetCount")))


def device_of(address: int) -> int:
    """Return the ordinal of the device that an address belongs to.

    Raises
    ------
    ArgumentError
        When the address is not one of device memory.
    """
    driver = bindings()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    try:
        return int(call("cuPointerGetAttribute", attribute, address))
    except DriverError as error:
        if error.result == "CUDA_ERROR_INVALID_VALUE":
            raise ArgumentError.of("address", hex(address), legal="an address of CUDA device memory") from error
        raise


def context_for(ordinal: int | None = None) -> Context:
    """Return the context to work in: the current one if it is on the device, else the device's primary context.

    This is the rule of the CUDA runtime API, so torch, CuPy and tilekit meet in one context. Where the thread has no
    current context, the primary one becomes current.

    Parameters
    ----------
    ordinal : int, optional
        The device; by default that of the current context, and device 0 where there is none.
    """
    current = call("cuCtxGetCurrent")
    if int(current):
        here = int(call("cuCtxGetDevice"))
        if ordinal is None or ordinal == here:
            return Context(current, here)
    chosen = ordinal or 0
    count = int(call("cuDeviceGetCount"))
    if not 0 <= chosen < count:
        raise ArgumentError.of("ordinal", chosen, legal=f"0 to {count - 1}", nearest=min(max(chosen, 0), count - 1))
    primary = _primary_context(chosen)
    if not int(current):
        call("cuCtxSetCurrent", primary.handle)
    return primary


@contextmanager
def activated(context: Context) -> Iterator[None]:
    """Make a context current for a ``with`` block, and leave the thread's context stack as it was."""
    call("cuCtxPushCurrent", context.handle)
    try:
        yield
    finally:
        call("cuCtxPopCurrent")


def synchronize(stream: int = 0) -> None:
    """Wait for the work of a stream (of the current context).

    Raises
    ------
    KernelFault
        When a kernel died; names the ones launched most recently.
    """
    call("cuStreamSynchronize", stream, during="waiting for a stream")


@cache
def _primary_context(ordinal: int) -> Context:
    return Context(call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal)), ordinal)


def _device_info(ordinal: int) -> DeviceInfo:
    kinds = bindings().CUdevice_attribute
    device = call("cuDeviceGet", ordinal)

    def attribute(name: str) -> int:
        return int(call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    return DeviceInfo(
        ordinal=ordinal,
        name=call("cuDeviceGetName", 256, device).split(b"\0")[0].decode(errors="replace"),
        compute_capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        sms=attribute("MULTIPROCESSOR_COUNT"),
        memory=int(call("cuDeviceTotalMem", device)),
        l2=attribute("L2_CACHE_SIZE"),
        driver_version=_version(driver_version()),
    )


def _version(number: int) -> tuple[int, int]:
    return number // 1000, number % 1000 // 10


def _name(result: Any) -> str:
    return str(getattr(result, "name", f"CUresult {result}"))


def _describe(driver: Any, result: Any) -> str:
    _, text = driver.cuGetErrorString(result)
    return text.decode(errors="replace") if text else "unknown error"
