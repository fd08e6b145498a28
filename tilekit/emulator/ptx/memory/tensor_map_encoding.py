"""The 128 bytes of a tensor map: the emulator's own packing, with a checksum, not the hardware's."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

__all__ = ["blank_encoding", "open_encoding", "seal_encoding"]

# magic, kind, dtype, rank, interleave, swizzle, oob_fill, l2_promotion, address, dims, strides, box,
# element_strides, lower, upper, channels_per_pixel, pixels_per_column; then the CRC-32 of all that.
_ENCODING = struct.Struct("<4s7B x Q 5Q 4Q 5H 5B 3h 3h 2H")
_MAGIC = b"TKTM"
_CHECKSUM = struct.Struct("<I")


def open_encoding(data: bytes) -> list[Any]:
    """Return the fields that an encoded map packs, in the order above.

    Raises
    ------
    ValueError
        If the bytes are no tensor map, or were changed since.
    """
    if len(data) != 128:
        raise ValueError(f"a tensor map has 128 bytes, not {len(data)}")
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"these 128 bytes are no tensor map: they begin with {data[:8].hex(' ')}")
    if _CHECKSUM.unpack_from(data, _ENCODING.size)[0] != zlib.crc32(data[: _ENCODING.size]):
        raise ValueError("the bytes of this tensor map were changed after it was encoded")
    return list(_ENCODING.unpack_from(data)[1:])


def blank_encoding() -> list[Any]:
    """Return the fields of a map of which nothing has been set."""
    return list(_ENCODING.unpack(bytes(_ENCODING.size))[1:])


def seal_encoding(fields: Sequence[Any]) -> bytes:
    """Return the 128 bytes of a map's fields."""
    body = _ENCODING.pack(_MAGIC, *fields)
    return (body + _CHECKSUM.pack(zlib.crc32(body))).ljust(128, b"\0")
