"""Device memory of launches, zeroed once: a launch's own, or one block for all launches of a stream."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilekit.runtime import driver, hip


class DeviceScratch:
    """`size` zero bytes in a device's memory, freed with the last reference.

    Parameters
    ----------
    size
        Bytes.
    ordinal
        The device.
    """

    def __init__(self, size: int, ordinal: int) -> None:
        context = driver.context_for(ordinal)
        with driver.activated(context), _while_capturing():
            memory = driver.call("cuMemAlloc", size, during="allocating the memory of a launch")
            stream = driver.call("cuStreamCreate", driver.bindings().CUstream_flags.CU_STREAM_NON_BLOCKING)
            driver.call("cuMemsetD8Async", memory, 0, size, stream)
            driver.call("cuStreamSynchronize", stream)
            driver.call("cuStreamDestroy", stream)
        self.address = int(memory)
        self.size = size
        self._context = context
        # Freeing waits for work that may still use it.
        weakref.finalize(self, _free, context, memory).atexit = False

    def read(self) -> bytes:
        """Wait for the device and return what is there now."""
        data = np.empty(self.size, np.uint8)
        with driver.activated(self._context):
            driver.call("cuCtxSynchronize", during="waiting for a launch")
            driver.call("cuMemcpyDtoH", data.ctypes.data, self.address, self.size)
        return data.tobytes()

    def clear(self) -> None:
        """Wait for the device and make all bytes zero."""
        with driver.activated(self._context):
            driver.call("cuCtxSynchronize", during="waiting for a launch")
            driver.call("cuMemsetD8", self.address, 0, self.size)
            driver.call("cuCtxSynchronize")


class HipScratch:
    """The same of an AMD GPU.

    Parameters
    ----------
    size
        Bytes.
    ordinal
        The device.
    """

    def __init__(self, size: int, ordinal: int) -> None:
        with hip.activated(ordinal):
            self._memory = hip.HipBuffer(max(size, 1))
            self._memory.write(bytes(max(size, 1)))
        self.address = self._memory.address
        self.size = size
        self._ordinal = ordinal
        # Freeing waits for work that may still use it.
        weakref.finalize(self, self._memory.free).atexit = False

    def read(self) -> bytes:
        """Wait for the device and return what is there now."""
        with hip.activated(self._ordinal):
            hip.synchronize()
            return self._memory.read()[: self.size]

    def clear(self) -> None:
        """Wait for the device and make all bytes zero."""
        with hip.activated(self._ordinal):
            hip.synchronize()
            self._memory.write(bytes(max(self.size, 1)))


@dataclass(frozen=True)
class StreamScratch:
    """What a launch shares with the others of its stream, which follow each other.

    Attributes
    ----------
    name
        Launches share a block with those that give it the same name: they must agree in what they leave there.
    size
        Bytes.
    index
        The launch's parameter that points to the block.
    kind
        Whose memory it is.
    """

    name: str
    size: int
    index: int
    kind: type[DeviceScratch] | type[HipScratch] = DeviceScratch

    def address(self, ordinal: int, stream: int) -> int:
        """Return the address of the stream's block, all zeros when it is new.

        It is never freed, since graphs may have recorded its address; but blocks are few, as sizes are powers of two.
        """
        key = self.kind, self.name, ordinal, stream, 1 << max(self.size - 1, 0).bit_length()
        if key not in _blocks:
            _blocks[key] = self.kind(key[4], ordinal)
        return _blocks[key].address


_blocks: dict[tuple[type, str, int, int, int], DeviceScratch | HipScratch] = {}


@contextmanager
def _while_capturing() -> Iterator[None]:
    """Allow allocations, which another stream's capture into a graph forbids as unsafe: these are not in the graph."""
    mode = driver.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = driver.call("cuThreadExchangeStreamCaptureMode", mode)
    try:
        yield
    finally:
        driver.call("cuThreadExchangeStreamCaptureMode", before)


def _free(context: driver.Context, memory: Any) -> None:
    with driver.activated(context):
        driver.call("cuMemFree", memory)
