"""Host arrays on a device for the length of a launch, byte for byte: same strides, same gaps, same misalignment.

Copying the span of memory that an array covers, rather than its elements, keeps the device's rules honest: what TMA
would refuse of a device array it refuses of this copy too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from tilekit.arrays.view import ArrayView, host_array
from tilekit.runtime import driver, hip
from tilekit.runtime.scratch import DeviceScratch, HipScratch

if TYPE_CHECKING:
    from tilekit.emulator import Buffer, Device

_ALIGNMENT = 256
"""What device allocations are aligned to, on hardware and in the emulator."""

_KEPT = 16
"""The part of a host address's misalignment that is kept: every rule of TMA is about 16 bytes."""


class Staging(Protocol):
    """A device's memory, as a launch of host arrays needs it."""

    def upload(self, view: ArrayView, name: str) -> int:
        """Copy the array's span to the device; return the address of element zero. Reports call it `name`."""

    def scratch(self, name: str, size: int) -> int:
        """Return the address of `size` zero bytes, to be known as `name`."""

    def read_scratch(self, name: str) -> bytes:
        """Wait for the launch and return what is there now."""

    def download(self, view: ArrayView) -> None:
        """Copy the span of an uploaded array back."""


def _span(view: ArrayView) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], int]:
    """The bytes an array covers, and where element zero lies among them."""
    array = host_array(view)
    if array.size == 0:
        return np.zeros(0, np.uint8), 0
    low, high = np.lib.array_utils.byte_bounds(array)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low)), view.address - low


class EmulatedStaging:
    """Memory of an emulated device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._buffers: dict[int, Buffer] = {}
        self._scratch: dict[str, Buffer] = {}

    def upload(self, view: ArrayView, name: str = "") -> int:
        """Copy the array's span into a buffer of its own, which the same array's other uses share."""
        span, first = _span(view)
        gap = (view.address - first) % _KEPT
        known = self._buffers.get(view.address)
        if known is not None and known.nbytes == gap + span.size:
            return known.address + gap + first
        buffer = self.device.buffer(np.concatenate([np.zeros(gap, np.uint8), span]), name)
        self._buffers[view.address] = buffer
        return buffer.address + gap + first

    def protect(self, written: Iterable[ArrayView]) -> None:
        """Let a kernel write only to these of the arrays uploaded: one that writes to another faults."""
        addresses = {view.address for view in written}
        for address, buffer in self._buffers.items():
            buffer.writable = address in addresses

    def scratch(self, name: str, size: int) -> int:
        """Return the address of `size` zero bytes, to be known as `name`."""
        self._scratch[name] = self.device.buffer(np.zeros(size, np.uint8), name)
        return self._scratch[name].address

    def read_scratch(self, name: str) -> bytes:
        """Return what is there now."""
        return self._scratch[name].read().tobytes()

    def download(self, view: ArrayView) -> None:
        """Copy the span back."""
        span, first = _span(view)
        gap = (view.address - first) % _KEPT
        span[:] = self._buffers[view.address].read()[gap:]


class CudaStaging:
    """Memory of the current CUDA device (or device 0), freed when the block ends."""

    def __init__(self) -> None:
        context = driver.context_for(None)
        self.ordinal = context.ordinal
        self._activation = driver.activated(context)
        self._allocations: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}
        self._scratch: dict[str, DeviceScratch] = {}

    def __enter__(self) -> Self:
        self._activation.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for address in self._allocations.values():
            driver.call("cuMemFree", address)
        self._activation.__exit__(kind, error, trace)

    def upload(self, view: ArrayView, name: str = "") -> int:
        """Copy the array's span into an allocation of its own, which the same array's other uses share."""
        span, first = _span(view)
        gap = (view.address - first) % _KEPT
        if self._sizes.get(view.address) == span.size:
            return int(self._allocations[view.address]) + gap + first
        self._sizes[view.address] = span.size
        address = driver.call("cuMemAlloc", span.size + _ALIGNMENT, during="copying arrays to the GPU")
        self._allocations[view.address] = address
        if span.size:
            driver.call("cuMemcpyHtoD", int(address) + gap, span.ctypes.data, span.size)
        return int(address) + gap + first

    def scratch(self, name: str, size: int) -> int:
        """Return the address of `size` zero bytes, to be known as `name`."""
        self._scratch[name] = DeviceScratch(size, self.ordinal)
        return self._scratch[name].address

    def read_scratch(self, name: str) -> bytes:
        """Wait for the launch and return what is there now."""
        return self._scratch[name].read()

    def download(self, view: ArrayView) -> None:
        """Wait for the launch and copy the span back."""
        span, first = _span(view)
        gap = (view.address - first) % _KEPT
        driver.call("cuMemcpyDtoH", span.ctypes.data, int(self._allocations[view.address]) + gap, span.size)


class HipStaging:
    """Memory of the current AMD GPU, freed when the block ends."""

    def __init__(self) -> None:
        self._activation = hip.activated(None)
        self._held: list[hip.HipBuffer] = []
        self._buffers: dict[int, hip.HipBuffer] = {}
        self._scratch: dict[str, HipScratch] = {}

    def __enter__(self) -> Self:
        self.ordinal = self._activation.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for buffer in self._held:
            buffer.free()
        self._activation.__exit__(kind, error, trace)

    def upload(self, view: ArrayView, name: str = "") -> int:
        """Copy the array's span into an allocation of its own, which the same array's other uses share."""
        span, first = _span(view)
        gap = (view.address - first) % _KEPT
        known = self._buffers.get(view.address)
        if known is None or known.size != gap + span.size:
            self._held.append(known := hip.HipBuffer(max(gap + span.size, 1)))
            known.write(bytes(gap) + span.tobytes() if gap + span.size else bytes(1))
            self._buffers[view.address] = known
        return known.address + gap + first

    def scratch(self, name: str, size: int) -> int:
        """Return the address of `size` zero bytes, to be known as `name`."""
        self._scratch[name] = HipScratch(size, self.ordinal)
        return self._scratch[name].address

    def read_scratch(self, name: str) -> bytes:
        """Wait for the launch and return what is there now."""
        return self._scratch[name].read()

    def download(self, view: ArrayView) -> None:
        """Wait for the launch and copy the span back."""
        span, first = _span(view)
        gap = (view.address - first) % _KEPT
        hip.synchronize()
        span[:] = np.frombuffer(self._buffers[view.address].read(), np.uint8)[gap : gap + span.size]
