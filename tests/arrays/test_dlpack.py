"""DLPack capsules of both versions, from NumPy and made by hand."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest

from tilekit.arrays import dlpack, host_array, view_of
from tilekit.dtypes import BF16, E5M2, F32
from tilekit.errors import ArgumentError


class OnlyDlpack:
    """An array known by its DLPack methods alone; ``versioned`` False plays a producer from before DLPack 1.0."""

    def __init__(self, array: np.ndarray[Any, Any], versioned: bool = True) -> None:
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        if not self.versioned and "max_version" in keywords:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**keywords)


@pytest.mark.parametrize("versioned", [True, False])
def test_numpys_capsules_of_both_versions(versioned: bool) -> None:
    """A strided float32 array comes through both structures with its address, strides and values."""
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[1:, ::2]
    view = view_of(OnlyDlpack(array, versioned))
    assert view.address == array.__array_interface__["data"][0]
    assert (view.shape, view.strides, view.dtype, view.device) == ((3, 3), (6, 2), F32, "cpu")
    np.testing.assert_array_equal(host_array(view), array)


def test_the_read_only_flag_of_version_1() -> None:
    """DLPACK_FLAG_BITMASK_READ_ONLY makes a view that is not writeable."""
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    assert not view_of(OnlyDlpack(array)).writeable


def test_the_capsule_keeps_the_memory_alive() -> None:
    """The producer's array lives as long as the view and is released with it."""
    released: list[bool] = []

    class Noticed(np.ndarray[Any, Any]):
        def __del__(self) -> None:
            released.append(True)

    view = view_of(OnlyDlpack(np.ones(16, np.float32).view(Noticed)))
    view.owner = view.owner[0]
    gc.collect()
    assert not released
    np.testing.assert_array_equal(host_array(view), 1.0)
    del view
    gc.collect()
    assert released


class Handmade:
    """A producer that fills the C structures itself, for types, devices and versions that NumPy does not export."""

    def __init__(
        self,
        code: int,
        bits: int,
        device: tuple[int, int] = (2, 3),
        lanes: int = 1,
        major: int = 1,
        strides: tuple[int, ...] | None = None,
        name: bytes = b"dltensor_versioned",
    ) -> None:
        self.device, self.name, self.asked = device, name, {}
        self.shape = (ctypes.c_int64 * 2)(4, 8)
        self.strides = (ctypes.c_int64 * 2)(*strides) if strides else None
        self.managed = dlpack._Versioned(major=major, minor=0, flags=0)
        tensor = self.managed.tensor
        tensor.data, tensor.byte_offset, tensor.ndim = 1 << 20, 256, 2
        tensor.device.device_type, tensor.device.device_id = device
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = code, bits, lanes
        tensor.shape = self.shape
        if self.strides is not None:
            tensor.strides = self.strides

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **keywords: Any) -> Any:
        self.asked = keywords
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.managed), self.name, None)


def test_a_device_array_in_c_order() -> None:
    """No strides mean C order, the byte offset is added, and the producer is told which stream will read."""
    producer = Handmade(code=4, bits=16)
    view = view_of(producer)
    assert (view.address, view.shape, view.strides) == ((1 << 20) + 256, (4, 8), (8, 1))
    assert (view.dtype, view.device) == (BF16, ("cuda", 3))
    assert producer.asked == {"max_version": (1, 0), "stream": dlpack.LEGACY_DEFAULT_STREAM}


def test_eight_bit_floats_of_version_1_1() -> None:
    """DLPack's own code for float8_e5m2 is known, and explicit strides are taken."""
    view = view_of(Handmade(code=12, bits=8, strides=(1, 4)))
    assert (view.dtype, view.strides) == (E5M2, (1, 4))


@pytest.mark.parametrize(
    ("producer", "words"),
    [
        (Handmade(code=0, bits=32), r"a has DLPack type \(code, bits\) \(0, 32\)"),
        (Handmade(code=2, bits=32, lanes=4), r"4 lane\(s\)"),
        (Handmade(code=2, bits=32, device=(8, 0)), "a lies in Metal"),
        (Handmade(code=2, bits=32, device=(99, 0)), "DLPack device type 99"),
        (Handmade(code=2, bits=32, major=2), "DLPack 2.0"),
        (Handmade(code=2, bits=32, name=b"used_dltensor"), "not a fresh DLPack capsule"),
    ],
)
def test_what_cannot_be_read_is_refused(producer: Handmade, words: str) -> None:
    """Unknown types, vector lanes, other devices, later majors and used capsules are errors that name the argument."""
    with pytest.raises(ArgumentError, match=words):
        view_of(producer, "a")
