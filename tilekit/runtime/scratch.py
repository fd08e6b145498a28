"""Device memory that a launch owns: zeroed once, and freed when the last launch that uses it is forgotten."""

from __future__ import annotations

import weakref
from typing import Any

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
            memory = driver.call("cuMemAlloc", size, during="allocating the workspace of a shared sum")
            driver.call("cuMemsetD8", memory, 0, size)
            driver.synchronize()
        self.address = int(memory)
        # Freeing waits for work that may still use it.
        weakref.finalize(self, _free, context, memory).atexit = False


def _free(context: driver.Context, memory: Any) -> None:
    with driver.activated(context):
        driver.call("cuMemFree", memory)
