"""Kernel parameters: the vocabulary a launch is described in, and how it is laid out in ``.param`` space.

CUDA and the emulator share both. A tensor map stays a description (`TensorMap`) until a device encodes it.
"""

from __future__ import annotations

import ctypes
import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, TypeAlias, cast

from tilekit.emulator import TensorMap
from tilekit.errors import ArgumentError

__all__ = [
    "F32",
    "PARAMETER_BYTES_LIMIT",
    "S32",
    "TENSOR_MAP_ALIGNMENT",
    "TENSOR_MAP_BYTES",
    "U16",
    "U32",
    "U64",
    "BufferDescriptor",
    "Layout",
    "PackedParameters",
    "Parameter",
    "ParameterBlock",
    "Pointer",
    "TensorMap",
    "pack",
]

TENSOR_MAP_BYTES = 128
"""Size of an encoded tensor map (CUDA driver API, CUtensorMap)."""

TENSOR_MAP_ALIGNMENT = 64
"""Alignment of a tensor map parameter: ``.param .align 64 .b8 map[128]`` (PTX ISA, tensor-map)."""

PARAMETER_BYTES_LIMIT = 32764
"""Size limit of an entry's parameters on sm_70 and later (PTX ISA 8.1, kernel function parameters)."""

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_S32 = struct.Struct("<i")
_F32 = struct.Struct("<f")
_U64 = struct.Struct("<Q")
_WORDS = struct.Struct("<4I")


@dataclass(frozen=True, slots=True)
class U32:
    """A ``.param .u32``: 0 to 2**32 - 1."""

    value: int

    def __post_init__(self) -> None:
        _check_integer("u32 parameter", self.value, 0, 2**32 - 1)


@dataclass(frozen=True, slots=True)
class U16:
    """A ``.param .u16`` or ``.b16``: 0 to 2**16 - 1."""

    value: int

    def __post_init__(self) -> None:
        _check_integer("u16 parameter", self.value, 0, 2**16 - 1)


@dataclass(frozen=True, slots=True)
class U64:
    """A ``.param .u64`` that holds a number: 0 to 2**64 - 1."""

    value: int

    def __post_init__(self) -> None:
        _check_integer("u64 parameter", self.value, 0, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class S32:
    """A ``.param .s32``: -2**31 to 2**31 - 1."""

    value: int

    def __post_init__(self) -> None:
        _check_integer("s32 parameter", self.value, -(2**31), 2**31 - 1)


@dataclass(frozen=True, slots=True)
class F32:
    """A ``.param .f32``: any number; rounded to single precision when packed, infinite beyond its range."""

    value: float

    def __post_init__(self) -> None:
        if not isinstance(self.value, int | float):
            raise ArgumentError.of("f32 parameter", self.value, legal="a Python number", code="TK-PAR-001")


@dataclass(frozen=True, slots=True)
class Pointer:
    """A ``.param .u64`` that holds a device address; 0 is the null pointer."""

    address: int

    def __post_init__(self) -> None:
        _check_integer("pointer parameter", self.address, 0, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class BufferDescriptor:
    """The four words by which instructions of AMD's GPUs know a buffer, for a kernel that takes one by value.

    Parameters
    ----------
    address : int
        Of the first byte; 48 bits.
    records : int
        Bytes of the buffer, or structures where there is a stride: what lies behind is loaded as 0 and not stored to.
    stride : int
        Bytes of a structure; 0 for bytes without structure.
    format : int
        The fourth word, whose data format (bits 18:15) must not be 0: else every load gives 0.

    Raises
    ------
    ArgumentError
        ``TK-PAR-001``. Offsets have 32 bits: a buffer of 4 GB and more takes several descriptors.
    """

    address: int
    records: int
    stride: int = 0
    format: int = 0x0002_0000

    def __post_init__(self) -> None:
        _check_integer("address of a buffer descriptor", self.address, 0, 2**48 - 1)
        _check_integer("records of a buffer descriptor", self.records, 0, 2**32 - 1)
        _check_integer("stride of a buffer descriptor", self.stride, 0, 2**14 - 1)
        _check_integer("format of a buffer descriptor", self.format, 0, 2**30 - 1)
        size = self.records * max(self.stride, 1)
        if size >= 2**32:
            legal = "less than 4 GB from the first byte to the last: give parts of the buffer a descriptor each"
            nearest = f"{(2**32 - 1) // self.stride} records"
            raise ArgumentError.of(
                "buffer descriptor", f"{size} bytes", legal=legal, nearest=nearest, code="TK-PAR-001"
            )
        if self.address + size > 2**48:
            legal = f"at most {2**48 - self.address} bytes behind address {self.address:#x}, of 48 bits"
            raise ArgumentError.of("buffer descriptor", f"{size} bytes", legal=legal, code="TK-PAR-001")
        if not self.format >> 15 & 15:
            raise ArgumentError.of(
                "format of a buffer descriptor", hex(self.format), legal="a word whose bits 18:15 are not all 0",
                nearest=hex(self.format | 0x0002_0000), code="TK-PAR-001",
            )  # fmt: skip

    def __bytes__(self) -> bytes:
        return _WORDS.pack(
            self.address & 0xFFFF_FFFF, self.address >> 32 | self.stride << 16, self.records, self.format
        )


Parameter: TypeAlias = U16 | U32 | U64 | S32 | F32 | Pointer | BufferDescriptor | TensorMap


@dataclass(frozen=True, slots=True)
class PackedParameters:
    """Parameters as bytes, in ``.param`` layout.

    Attributes
    ----------
    data : bytes
        All parameters, padded to the layout's offsets; its address must be a multiple of `TENSOR_MAP_ALIGNMENT`.
    offsets : tuple of int
        Byte offset of each parameter within `data`.
    """

    data: bytes
    offsets: tuple[int, ...]


def pack(parameters: Sequence[Parameter], encode: Callable[[TensorMap], bytes]) -> PackedParameters:
    """Lay parameters out in order, each at the next multiple of its alignment (PTX ISA, kernel function parameters).

    This is the emulator's parameter block. An assembled image has its own offsets: ptxas aligns a tensor map to the
    constant bank, in which sm_90's parameters start at 0x210, so a map alone is at offset 48. Only the driver knows
    those offsets, which is why a CUDA launch hands it one pointer a parameter.

    Parameters
    ----------
    parameters : sequence of Parameter
        In the order of the entry's ``.param`` list.
    encode : callable
        Turns a tensor map's description into the 128 bytes the device understands.

    Raises
    ------
    ArgumentError
        For a value that is no parameter, and when all together exceed `PARAMETER_BYTES_LIMIT`.
    """
    data = bytearray()
    offsets = []
    for position, parameter in enumerate(parameters):
        content, alignment = _encoded(position, parameter, encode)
        data.extend(bytes(-len(data) % alignment))
        offsets.append(len(data))
        data.extend(content)
    if len(data) > PARAMETER_BYTES_LIMIT:
        raise ArgumentError.of(
            "parameters", f"{len(data)} bytes", legal=f"at most {PARAMETER_BYTES_LIMIT} bytes", code="TK-PAR-002"
        )
    return PackedParameters(bytes(data), tuple(offsets))


Layout: TypeAlias = Callable[[Sequence[Parameter], Callable[[TensorMap], bytes]], PackedParameters]
"""What lays parameters out for a kernel: `pack`, or what a code object's metadata says."""


class ParameterBlock:
    """Parameters packed once into fixed memory, to be launched many times and patched in place.

    Parameters
    ----------
    parameters : sequence of Parameter
        In the order of the entry's ``.param`` list.
    encode : callable
        Turns a tensor map's description into the 128 bytes the device understands.
    layout : callable, optional
        Lays the parameters out.

    Notes
    -----
    A patch changes the next launch only: a launch copies the block before it returns.

    Attributes
    ----------
    address : int
        Of the block's first byte.
    """

    def __init__(
        self, parameters: Sequence[Parameter], encode: Callable[[TensorMap], bytes], layout: Layout = pack
    ) -> None:
        packed = layout(parameters, encode)
        size = max(len(packed.data), 1)
        self._kinds = tuple(type(parameter) for parameter in parameters)
        self._storage = ctypes.create_string_buffer(size + TENSOR_MAP_ALIGNMENT)
        base = ctypes.addressof(self._storage)
        shift = -base % TENSOR_MAP_ALIGNMENT
        self._view = memoryview(self._storage).cast("B")[shift : shift + len(packed.data)]
        self._view[:] = packed.data
        self._offsets = packed.offsets
        self.address = base + shift
        addresses = [base + shift + offset for offset in packed.offsets]
        self._pointers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)

    @property
    def pointers(self) -> int:
        """Address of an array with one pointer a parameter: ``kernelParams`` of the driver's launch calls."""
        return ctypes.addressof(self._pointers)

    def __bytes__(self) -> bytes:
        return bytes(self._view)

    def __len__(self) -> int:
        return len(self._kinds)

    def set_pointer(self, index: int, address: int) -> None:
        """Replace the address of the `Pointer` parameter at ``index``."""
        offset = self._offset(index, Pointer)
        try:
            _U64.pack_into(self._view, offset, address)
        except struct.error:
            Pointer(address)  # raises, saying what is legal
            raise

    def set_u32(self, index: int, value: int) -> None:
        """Replace the value of the `U32` parameter at ``index``."""
        offset = self._offset(index, U32)
        try:
            _U32.pack_into(self._view, offset, value)
        except struct.error:
            U32(value)  # raises, saying what is legal
            raise

    def set_tensor_map(self, index: int, encoded: bytes) -> None:
        """Replace the `TensorMap` parameter at ``index`` by 128 bytes the device's encoder made."""
        offset = self._offset(index, TensorMap)
        if len(encoded) != TENSOR_MAP_BYTES:
            given = f"{len(encoded)} bytes"
            raise ArgumentError.of("encoded", given, legal=f"{TENSOR_MAP_BYTES} bytes", code="TK-PAR-001")
        self._view[offset : offset + TENSOR_MAP_BYTES] = encoded

    def _offset(self, index: int, kind: type) -> int:
        if not 0 <= index < len(self._kinds):
            raise ArgumentError.of("index", index, legal=f"0 to {len(self._kinds) - 1}", code="TK-PAR-001")
        if self._kinds[index] is not kind:
            raise ArgumentError(
                f"index: parameter {index} is a {self._kinds[index].__name__}, not a {kind.__name__}", code="TK-PAR-001"
            )
        return self._offsets[index]


def _encoded(position: int, parameter: Parameter, encode: Callable[[TensorMap], bytes]) -> tuple[bytes, int]:
    match parameter:
        case U16(value):
            return _U16.pack(value), 2
        case U32(value):
            return _U32.pack(value), 4
        case U64(value):
            return _U64.pack(value), 8
        case S32(value):
            return _S32.pack(value), 4
        case F32(value):
            return _single(value), 4
        case Pointer(address):
            return _U64.pack(address), 8
        case BufferDescriptor():
            return bytes(parameter), _WORDS.size
        case TensorMap():
            content = encode(parameter)
            if len(content) != TENSOR_MAP_BYTES:
                raise ValueError(f"the tensor map encoder returned {len(content)} bytes, not {TENSOR_MAP_BYTES}")
            return content, TENSOR_MAP_ALIGNMENT
    raise ArgumentError.of(
        f"parameters[{position}]",
        parameter,
        legal="a U16, U32, U64, S32, F32, Pointer, BufferDescriptor or TensorMap",
        code="TK-PAR-001",
    )


def _single(value: float) -> bytes:
    try:
        return _F32.pack(value)
    except OverflowError:
        return _F32.pack(math.copysign(math.inf, value))


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    legal = f"an integer, {low} to {high}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(cast("SupportsIndex", value))
    except Exception:  # the value's own method may fail in any way
        raise ArgumentError.of(name, value, legal=legal, code="TK-PAR-001") from None
    if not low <= number <= high:
        raise ArgumentError.of(name, number, legal=legal, nearest=min(max(number, low), high), code="TK-PAR-001")
