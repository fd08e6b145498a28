"""Arrays in a device's global memory."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.core.memory.memory import GlobalMemory

__all__ = ["Buffer", "Uploads", "as_array", "download"]


class Buffer:
    """An array in the device's global memory, alone in its part of the address space.

    Attributes
    ----------
    address
        Generic address of its first byte, a multiple of 256.
    dtype, shape
        Of the array; C order.
    writable
        Whether kernels may write to it: where not, one that does faults.
    """

    def __init__(self, memory: GlobalMemory, array: npt.NDArray[Any], name: str, *, writable: bool = True) -> None:
        self._memory = memory
        self.dtype = array.dtype
        self.shape = array.shape
        self.nbytes = array.nbytes
        self._allocation = memory.allocate(array.nbytes, name)
        self.address = self._allocation.start
        self.writable = writable
        self.write(array)

    @property
    def writable(self) -> bool:
        """Whether kernels may write to it; the host may at any time."""
        return self._allocation.writable

    @writable.setter
    def writable(self, writable: bool) -> None:
        self._allocation.writable = writable

    def read(self) -> npt.NDArray[Any]:
        """A copy of the contents."""
        return self._allocation.data[: self.nbytes].copy().view(self.dtype).reshape(self.shape)

    def write(self, array: Any) -> None:
        """Replace the contents; the array must have the buffer's shape and type."""
        given = as_array(array)
        if given.shape != self.shape or given.dtype != self.dtype:
            raise LaunchError.argument("array", f"{given.dtype}{given.shape}", f"{self.dtype}{self.shape}")
        flat = np.ascontiguousarray(given).reshape(-1)
        self._allocation.data[: self.nbytes] = flat.view(np.uint8) if self.nbytes else 0

    def free(self) -> None:
        """Give the memory back; a kernel that still uses the address faults."""
        self._memory.free(self._allocation)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


def as_array(given: Any) -> npt.NDArray[Any]:
    """The array that something is, of numbers or of bytes."""
    try:
        array = np.asarray(given)
    except Exception:  # NumPy asks the object, whose methods may fail in any way
        raise LaunchError.argument("array", given, "an array of numbers") from None
    if array.dtype.hasobject:
        raise LaunchError.argument("array", given, "an array of numbers, and none of objects")
    return array


Uploads = list[tuple[npt.NDArray[Any], Buffer]]
"""Arrays among the arguments of a launch, each with the buffer that it was copied to."""


def download(uploads: Uploads) -> None:
    """Bring uploaded arrays up to date and free their buffers."""
    for array, buffer in uploads:
        if buffer.writable:
            array[...] = buffer.read()
        buffer.free()
