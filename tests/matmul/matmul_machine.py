"""Where a matmul runs in these tests: on the emulator with NumPy arrays, or on a GPU with torch tensors.

Both place arrays in a memory of their own with known bytes in the gaps of the strides and around, so that a stray read
meets NaN and a stray write is seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tests.matmul.matmul_case import Layout
from tilekit.dtypes import DType, as_dtype

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

GUARD = 512
"""Bytes before and after an array."""


class Image:
    """The bytes of an array in its surroundings: guards, gaps, elements."""

    def __init__(self, values: Array, layout: Layout, gaps: Bytes) -> None:
        self.dtype: DType = as_dtype(values.dtype)
        self.layout = layout
        self.bytes = aligned(span_bytes(layout, self.dtype))
        self.bytes[:] = np.resize(gaps, self.bytes.size)
        self.elements(self.bytes)[...] = values

    def elements(self, memory: Bytes) -> Array:
        """The array, as a view of memory laid out like this image."""
        first = GUARD + self.layout.lead * self.dtype.bytes
        strides = tuple(stride * self.dtype.bytes for stride in self.layout.strides)
        return np.ndarray(self.layout.shape, self.dtype.numpy, memory, first, strides)

    def outside(self, memory: Bytes) -> Bytes:
        """A copy of memory with the elements blanked."""
        rest = memory.copy()
        view = self.elements(rest).view(np.dtype(f"u{self.dtype.bytes}"))
        view[...] = 0
        return rest


class Placed:
    """An array on a machine.

    Attributes
    ----------
    array
        What tilekit is given.
    """

    def __init__(self, machine: Machine, image: Image) -> None:
        self._machine = machine
        self._image = image
        self._memory = machine.upload(image.bytes)
        self.array = machine.view(self._memory, image)

    def read(self) -> Array:
        """The elements, as they are now."""
        return self._image.elements(self._machine.download(self._memory)).copy()

    def check_surroundings(self) -> None:
        """Assert that no byte around the elements has changed."""
        now, before = (self._image.outside(m) for m in (self._machine.download(self._memory), self._image.bytes))
        changed = np.flatnonzero(now != before)
        assert changed.size == 0, (
            f"{changed.size} bytes around the array changed; the first is {changed[0] - GUARD} and the last "
            f"{changed[-1] - GUARD} bytes from its start"
        )

    def check_unchanged(self) -> None:
        """Assert that neither the elements nor the bytes around them have changed."""
        assert np.array_equal(self._machine.download(self._memory), self._image.bytes), "an input was written to"


class Machine(ABC):
    """Places arrays, and computes references in float64 where that is quick."""

    name: ClassVar[str]

    def place(self, values: Array, layout: Layout | None = None) -> Placed:
        """An operand: its surroundings are all ones, NaN in every floating type."""
        return Placed(self, Image(values, layout or plain(values.shape), np.full(1, 0xFF, np.uint8)))

    def place_output(self, dtype: DType, layout: Layout) -> Placed:
        """An output full of NaN; its surroundings tell one byte from the next."""
        poison = np.full(layout.shape, np.nan, np.float32).astype(dtype.numpy)
        return Placed(self, Image(poison, layout, (np.arange(251) * 37 % 251 + 1).astype(np.uint8)))

    @abstractmethod
    def upload(self, memory: Bytes) -> Any:
        """Copy bytes to the machine."""

    @abstractmethod
    def download(self, memory: Any) -> Bytes:
        """Copy them back."""

    @abstractmethod
    def view(self, memory: Any, image: Image) -> Any:
        """The array inside uploaded memory, in the machine's library."""

    @abstractmethod
    def read(self, array: Any) -> Array:
        """The elements of an array that tilekit made."""

    @abstractmethod
    def wide(self, array: Array) -> Any:
        """A host array in float64, where products are quick."""

    @abstractmethod
    def narrow(self, array: Any) -> Array:
        """A float64 array on the host again."""


class Emulator(Machine):
    """NumPy arrays, computed by the emulator."""

    name = "emulator"

    def upload(self, memory: Bytes) -> Bytes:
        copy = aligned(memory.size)
        copy[:] = memory
        return copy

    def download(self, memory: Bytes) -> Bytes:
        return memory

    def view(self, memory: Bytes, image: Image) -> Array:
        return image.elements(memory)

    def read(self, array: Array) -> Array:
        return array

    def wide(self, array: Array) -> Array:
        return array.astype(np.float64)

    def narrow(self, array: Array) -> Array:
        return array


class Cuda(Machine):
    """torch tensors on the first GPU."""

    name = "cuda"

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def upload(self, memory: Bytes) -> Any:
        return self.torch.from_numpy(memory).cuda()

    def download(self, memory: Any) -> Bytes:
        host: Bytes = memory.cpu().numpy()
        return host

    def view(self, memory: Any, image: Image) -> Any:
        size = image.dtype.bytes
        words = memory.view({1: self.torch.uint8, 2: self.torch.int16, 4: self.torch.int32}[size])
        layout = image.layout
        strided = words.as_strided(layout.shape, layout.strides, GUARD // size + layout.lead)
        return strided.view(getattr(self.torch, image.dtype.long_name))

    def read(self, array: Any) -> Array:
        dtype = as_dtype(array.dtype)
        words = array.contiguous().view({1: self.torch.uint8, 2: self.torch.int16, 4: self.torch.int32}[dtype.bytes])
        host: Array = words.cpu().numpy().view(dtype.numpy)
        return host

    def wide(self, array: Array) -> Any:
        return self.torch.from_numpy(array.astype(np.float32)).cuda().double()

    def narrow(self, array: Any) -> Array:
        host: Array = array.cpu().numpy()
        return host


def plain(shape: tuple[int, ...]) -> Layout:
    """C order, without gaps."""
    strides = [1]
    for extent in shape[:0:-1]:
        strides.insert(0, strides[0] * max(extent, 1))
    return Layout(shape, tuple(strides[: len(shape)]))


def aligned(size: int) -> Bytes:
    """Uninitialised host bytes at a multiple of 256."""
    raw = np.empty(size + 256, np.uint8)
    return raw[-raw.ctypes.data % 256 :][:size]


def span_bytes(layout: Layout, dtype: DType) -> int:
    """Bytes that a layout covers, its guards included; a multiple of 16."""
    reach = 0 if 0 in layout.shape else sum((e - 1) * s for e, s in zip(layout.shape, layout.strides, strict=True)) + 1
    return 2 * GUARD + -(-(reach + layout.lead) * dtype.bytes // 16) * 16
