"""Reading DLPack capsules: the address, shape, strides and type of an array from any library, without copying it.

Both structures of the protocol are read, ``DLManagedTensor`` (capsule ``dltensor``) and ``DLManagedTensorVersioned``
(``dltensor_versioned``, since DLPack 1.0), as dlpack.h lays them out. The capsule is never renamed, so its own
destructor gives the tensor back: the capsule keeps the memory alive.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from tilekit.dtypes import DTYPES, DType
from tilekit.errors import ArgumentError

__all__ = ["CPU", "CUDA", "LEGACY_DEFAULT_STREAM", "ROCM", "Exchanged", "c_strides", "device_name", "exchange"]

CPU: Final = 1
"""``kDLCPU``."""
CUDA: Final = 2
"""``kDLCUDA``."""
ROCM: Final = 10
"""``kDLROCM``."""
LEGACY_DEFAULT_STREAM: Final = 1
"""The consumer stream of the CUDA exchange that makes the producer wait for all of its blocking streams."""

_DEVICE_NAMES: Final = {
    1: "host memory",
    2: "CUDA",
    3: "pinned host memory",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    13: "CUDA managed",
}
_READ_ONLY: Final = 1
_DTYPES: Final = {dtype.dlpack: dtype for dtype in DTYPES}


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What a capsule holds.

    Attributes
    ----------
    address : int
        Address of element zero, the byte offset included.
    shape, strides : tuple of int
        In elements; a producer may leave strides out for C order, and they are filled in here.
    dtype : DType
    device : tuple of (int, int)
        ``DLDeviceType`` and ordinal.
    writeable : bool
    capsule : object
        Keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: tuple[int, int]
    writeable: bool
    capsule: object


def device_name(device_type: int) -> str:
    """Return whose memory a ``DLDeviceType`` means, in words."""
    return _DEVICE_NAMES.get(device_type, f"DLPack device type {device_type}")


def exchange(
    array: Any, name: str, stream: int = LEGACY_DEFAULT_STREAM, *, devices: tuple[int, ...] = (CPU, CUDA)
) -> Exchanged:
    """Ask ``array`` for a capsule and read it.

    Parameters
    ----------
    array : object with ``__dlpack__`` and ``__dlpack_device__``
    name : str
        The argument's name, for messages.
    stream : int
        The GPU's stream that will use the memory; the producer orders its own work before it.
    devices : tuple of int
        The ``DLDeviceType`` that it may be on.

    Raises
    ------
    ArgumentError
        ``TK-ARRAY-003`` for another device or a capsule of another major version,
        ``TK-DTYPE-001`` for an element type that tilekit does not know.
    """
    device_type, ordinal = (int(value) for value in array.__dlpack_device__())
    if device_type not in devices:
        raise ArgumentError(
            f"{name} lies in {device_name(device_type)}; tilekit takes CPU and CUDA memory", code="TK-ARRAY-003"
        )
    keywords: dict[str, Any] = {} if device_type == CPU else {"stream": stream}
    try:
        capsule = array.__dlpack__(max_version=(1, 0), **keywords)
    except TypeError:
        # Producers from before DLPack 1.0 do not know max_version.
        capsule = array.__dlpack__(**keywords)
    tensor, writeable = _read(capsule, name)
    kind = tensor.dtype
    dtype = _DTYPES.get((kind.code, kind.bits)) if kind.lanes == 1 else None
    if dtype is None:
        legal = ", ".join(f"{dtype.name} {code}" for code, dtype in _DTYPES.items())
        raise ArgumentError(
            f"{name} has DLPack type (code, bits) ({kind.code}, {kind.bits}) x {kind.lanes} lane(s); known are {legal}",
            code="TK-DTYPE-001",
        )
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else c_strides(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return Exchanged(address, shape, strides, dtype, (device_type, ordinal), writeable, capsule)


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides in elements of a C-ordered array of this shape; an axis of no elements counts as one."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _read(capsule: Any, name: str) -> tuple[_Tensor, bool]:
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise ArgumentError(
                f"{name} came as DLPack {versioned.major}.{versioned.minor}; tilekit reads 0.x and 1.x",
                code="TK-ARRAY-003",
            )
        return versioned.tensor, not versioned.flags & _READ_ONLY
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer(capsule, b"dltensor")), True
    raise ArgumentError(
        f"{name}.__dlpack__() returned {type(capsule).__name__}, not a fresh DLPack capsule", code="TK-ARRAY-003"
    )
