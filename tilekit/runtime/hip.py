"""The HIP runtime: loading it, its errors, its devices, memory, streams and events.

Nothing here touches ROCm before it is asked to, and without one every call raises `HipError` at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from tilekit.errors import ArgumentError, HipError
from tilekit.runtime import device_faults

__all__ = [
    "HipBuffer",
    "HipDevice",
    "HipEvent",
    "HipStream",
    "activated",
    "bindings",
    "call",
    "device_of",
    "devices",
    "error_of",
]
__all__ += ["synchronize", "why_unavailable"]

_SUCCESS = 0
_STICKY = frozenset(
    {
        "hipErrorAssert",
        "hipErrorECCNotCorrectable",
        "hipErrorIllegalAddress",
        "hipErrorIllegalState",
        "hipErrorLaunchFailure",
        "hipErrorLaunchTimeOut",
    }
)


@dataclass(frozen=True, slots=True)
class HipDevice:
    """One AMD GPU.

    Attributes
    ----------
    ordinal : int
        The runtime's number of the device.
    name : str
        For example ``AMD Instinct MI300X``.
    chip : str
        For example ``gfx942``, without the features that the runtime names beside.
    features : str
        Those: ``sramecc+:xnack-``.
    compute_units : int
        Compute units.
    memory, lds : int
        Bytes of global memory, and of LDS a workgroup may have.
    """

    ordinal: int
    name: str
    chip: str
    features: str
    compute_units: int
    memory: int
    lds: int


@cache
def bindings() -> Any:
    """Return hip-python's module `hip`, with the runtime loaded and initialised.

    Raises
    ------
    HipError
        When hip-python is not installed (``TK-HIP-002``), or there is no ROCm runtime or no device (``TK-HIP-003``).
    """
    try:
        from hip import hip
    except ImportError as error:
        raise HipError(
            f"HIP needs the package hip-python ({error}); pip install 'tilekit-gpu[hip]'", code="TK-HIP-002"
        ) from error
    runtime: Any = hip
    try:
        (result,) = runtime.hipInit(0)
    except RuntimeError as error:
        raise HipError(
            "no ROCm runtime on this machine: libamdhip64.so cannot be loaded. Set ROCM_PATH where it is elsewhere "
            "than in /opt/rocm; without one, kernels for AMD GPUs run on the emulator: tilekit.runtime.emulated",
            code="TK-HIP-003",
        ) from error
    if int(result) != _SUCCESS:
        raise HipError(
            f"the ROCm runtime cannot be used: hipInit returned {result.name}",
            call="hipInit",
            result=result.name,
            code="TK-HIP-003",
        )
    return runtime


def why_unavailable() -> str | None:
    """Return why no HIP device can be used, or None if one can."""
    try:
        return None if devices() else "the ROCm runtime finds no device"
    except HipError as error:
        return error.message


def call(name: str, *arguments: Any, during: str = "") -> Any:
    """Call a function of the runtime and return its results without the hipError_t: None, one value, or a tuple.

    Parameters
    ----------
    name : str
        For example ``hipModuleLoadData``.
    *arguments
        As hip-python takes them.
    during : str, optional
        What was being done, with the kernel and its configuration, for the message of an error.

    Raises
    ------
    KernelFault
        When the result says that a kernel launched earlier died.
    HipError
        For every other result but hipSuccess.
    """
    result, *values = getattr(bindings(), name)(*arguments)
    if int(result) != _SUCCESS:
        raise error_of(name, result, during)
    return values[0] if len(values) == 1 else tuple(values) or None


def error_of(name: str, result: Any, during: str = "") -> Exception:
    """Return the exception for a hipError_t that is not hipSuccess."""
    code = str(getattr(result, "name", f"hipError_t {result}"))
    _, text = bindings().hipGetErrorString(result)
    described = _text(text)
    what = f"{during}: " if during else ""
    message = f"{what}{name} returned {code} ({described})"
    if code in _STICKY:
        return device_faults.fault(message, call=name, result=code)
    return HipError(message, call=name, result=code)


@cache
def devices() -> tuple[HipDevice, ...]:
    """Return every AMD GPU that this process sees.

    Raises
    ------
    HipError
        When there is no usable runtime.
    """
    return tuple(_device(ordinal) for ordinal in range(int(call("hipGetDeviceCount"))))


def _device(ordinal: int) -> HipDevice:
    properties = call("hipGetDeviceProperties", ordinal)
    chip, _, features = _text(properties.gcnArchName).partition(":")
    return HipDevice(
        ordinal=ordinal,
        name=_text(properties.name),
        chip=chip,
        features=features,
        compute_units=int(properties.multiProcessorCount),
        memory=int(properties.totalGlobalMem),
        lds=int(properties.sharedMemPerBlock),
    )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def device_of(address: int) -> int:
    """Return the ordinal of the device that an address belongs to.

    Raises
    ------
    ArgumentError
        When the address is not one of device memory.
    """
    try:
        return int(call("hipPointerGetAttributes", address).device)
    except HipError as error:
        if error.result == "hipErrorInvalidValue":
            raise ArgumentError.of("address", hex(address), legal="an address of an AMD GPU's memory") from error
        raise


@contextmanager
def activated(ordinal: int | None) -> Iterator[int]:
    """Make a device current inside a ``with`` block; None is the one that is. Yields its number.

    Raises
    ------
    ArgumentError
        When there is no such device.
    """
    before = int(call("hipGetDevice"))
    if ordinal is None or ordinal == before:
        yield before
        return
    last = len(devices()) - 1
    if not 0 <= ordinal <= last:
        raise ArgumentError.of("ordinal", ordinal, legal=f"0 to {last}", nearest=min(max(ordinal, 0), last))
    call("hipSetDevice", ordinal)
    try:
        yield ordinal
    finally:
        call("hipSetDevice", before)


def synchronize() -> None:
    """Wait for everything that the current device was asked to do."""
    call("hipDeviceSynchronize")


class HipStream:
    """A stream of the current device, until `destroy` or the end of a ``with`` block.

    Attributes
    ----------
    handle : int
        To launch into.
    """

    def __init__(self) -> None:
        self._stream = call("hipStreamCreate")
        self.handle = int(self._stream)

    def synchronize(self) -> None:
        """Wait for everything in the stream."""
        call("hipStreamSynchronize", self._stream)

    def destroy(self) -> None:
        """Give the stream back; its work goes on to its end."""
        call("hipStreamDestroy", self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


class HipEvent:
    """A mark in a stream, of which the time is taken when the device comes to it."""

    def __init__(self) -> None:
        self._event = call("hipEventCreate")

    def record(self, stream: int = 0) -> None:
        """Put the mark behind what is in a stream, given by its handle; 0 is the default stream."""
        call("hipEventRecord", self._event, stream or None)

    def synchronize(self) -> None:
        """Wait until the device has come to the mark."""
        call("hipEventSynchronize", self._event)

    def milliseconds_since(self, earlier: HipEvent) -> float:
        """Return the time between two marks, both of which the device has come to."""
        return float(call("hipEventElapsedTime", earlier._event, self._event))

    def destroy(self) -> None:
        """Give the event back."""
        call("hipEventDestroy", self._event)


class HipBuffer:
    """Bytes of the current device's memory, until `free` or the end of a ``with`` block.

    Parameters
    ----------
    size : int
        How many.

    Attributes
    ----------
    address : int
        Of the first one.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = call("hipMalloc", size, during=f"allocating {size} bytes")
        self.address = int(self._memory)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Replace the contents; as many bytes as there are."""
        self._require(len(data))
        held = ctypes.create_string_buffer(bytes(data), len(data))
        kind = bindings().hipMemcpyKind.hipMemcpyHostToDevice
        call("hipMemcpy", self._memory, ctypes.addressof(held), len(data), kind)

    def read(self) -> bytes:
        """Return the contents."""
        held = ctypes.create_string_buffer(self.size)
        kind = bindings().hipMemcpyKind.hipMemcpyDeviceToHost
        call("hipMemcpy", ctypes.addressof(held), self._memory, self.size, kind)
        return held.raw

    def free(self) -> None:
        """Give the memory back; a kernel that still uses the address faults."""
        call("hipFree", self._memory)

    def _require(self, size: int) -> None:
        if size != self.size:
            raise ArgumentError.of("data", f"{size} bytes", legal=f"{self.size} bytes")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()
