"""Encoding tensor maps for CUDA: a description becomes the 128 bytes that the copy engine reads."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from tilekit.emulator import TensorMap
from tilekit.errors import ArgumentError, DriverError
from tilekit.runtime import driver
from tilekit.runtime.parameters import TENSOR_MAP_BYTES

__all__ = ["encode"]

_SWIZZLES = {
    None: "NONE",
    "32B": "32B",
    "64B": "64B",
    "128B": "128B",
    "128B_atom_32B": "128B_ATOM_32B",
    "128B_atom_32B_flip_8B": "128B_ATOM_32B_FLIP_8B",
    "128B_atom_64B": "128B_ATOM_64B",
}
_L2_PROMOTIONS = {None: "NONE", "64B": "L2_64B", "128B": "L2_128B", "256B": "L2_256B"}
_OOB_FILLS = {None: "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}

# Drivers up to 13.1 set a bit that selects the address arithmetic for out-of-bounds elements even where the tensor is
# smaller than 128 KiB, for which it must be clear. Source: CUTLASS, include/cute/atom/copy_traits_sm90_tma.hpp and
# copy_traits_sm90_im2col.hpp; Triton does the same. Hopper reserves the bit, Blackwell reads it.
_LAST_DRIVER_WITH_WRONG_BIT = 13010
_SMALL_TENSOR = 131072
_WRONG_BIT = 1 << 21


@lru_cache(maxsize=4096)
def encode(description: TensorMap) -> bytes:
    """Return the driver's encoding of a tensor map; the most recent ones are kept.

    Parameters
    ----------
    description : TensorMap
        Global address, type, dimensions, box, swizzle and so on.

    Returns
    -------
    bytes
        128 bytes, to be placed at a multiple of 64 (`ParameterBlock` does).

    Raises
    ------
    ArgumentError
        When the description breaks a rule; lists all of them.
    DriverError
        When the driver refuses it all the same.
    """
    problems = description.problems()
    if problems:
        raise ArgumentError("not a legal tensor map:\n  " + "\n  ".join(problems), code="TK-MAP-001")
    encoded = _encode(driver.bindings(), description)
    if driver.driver_version() <= _LAST_DRIVER_WITH_WRONG_BIT and _footprint(description) < _SMALL_TENSOR:
        encoded = _with_bit_cleared(encoded)
    return encoded


def _encode(cuda: Any, m: TensorMap) -> bytes:
    common = (
        [cuda.cuuint32_t(step) for step in m.element_strides],
        getattr(cuda.CUtensorMapInterleave, f"CU_TENSOR_MAP_INTERLEAVE_{m.interleave or 'NONE'}"),
        getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[m.swizzle]}"),
        getattr(cuda.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{_L2_PROMOTIONS[m.l2_promotion]}"),
        getattr(cuda.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_OOB_FILLS[m.oob_fill]}"),
    )
    tensor = (
        cuda.CUtensorMapDataType(m.element.code),
        m.rank,
        m.address,
        [cuda.cuuint64_t(extent) for extent in m.dims],
        # The driver reads rank - 1 strides, but wants an array even where that is none.
        [cuda.cuuint64_t(stride) for stride in m.strides or (0,)],
    )
    try:
        if m.pixels is None:
            box = [cuda.cuuint32_t(extent) for extent in m.box]
            encoded = driver.call("cuTensorMapEncodeTiled", *tensor, box, *common)
        else:
            corners = (list(m.pixels.lower), list(m.pixels.upper))
            counts = (m.pixels.channels_per_pixel, m.pixels.pixels_per_column)
            encoded = driver.call("cuTensorMapEncodeIm2col", *tensor, *corners, *counts, *common)
    except DriverError as error:
        error.message = f"{error.message} for {m}"
        raise
    return ctypes.string_at(encoded.getPtr(), TENSOR_MAP_BYTES)


def _footprint(m: TensorMap) -> int:
    """Return the bytes from the first element of the tensor to the end of its last."""
    outer = sum((extent - 1) * stride for extent, stride in zip(m.dims[1:], m.strides, strict=True))
    return outer + m.dims[0] // m.element.atom * m.element.global_bytes


def _with_bit_cleared(encoded: bytes) -> bytes:
    second = int.from_bytes(encoded[8:16], "little") & ~_WRONG_BIT
    return encoded[:8] + second.to_bytes(8, "little") + encoded[16:]
