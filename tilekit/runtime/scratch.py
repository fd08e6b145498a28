"""Device memory that a launch owns: zeroed once, and freed when the last launch that uses it is forgotten."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from tilekit.runtime import driver


class DeviceScratch:
    """`size` zero bytes in a device's memory.

    One launch owns it, so launches of one plan must follow each other in stream order, as they must for their output.

    Parameters
    ----------
    size
        Bytes.
    ordinal
        The device.
    """

    def __init__(self, size: int, ordinal: int) -> None:
        context = driver.context_for(ordinal)
        with driver.activated(context):
            memory = driver.call("cuMemAlloc", size, during="allocating the memory of a launch")
            driver.call("cuMemsetD8", memory, 0, size)
            driver.synchronize()
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


def _free(context: driver.Context, memory: Any) -> None:
    with driver.activated(context):
        driver.call("cuMemFree", memory)
