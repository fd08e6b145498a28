"""The box of a tensor map as it lies in shared memory: padded types, chunks moved by the swizzle, fill, conversion."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.formats import encode
from tilekit.emulator.ptx.memory.swizzle import PERIOD, SPAN, chunk_places, chunk_size
from tilekit.emulator.ptx.memory.tensor_map import TensorMap

__all__ = ["Bytes", "check_shared", "converted", "filled", "placed", "spread", "unplaced"]

Bytes: TypeAlias = npt.NDArray[np.uint8]


def check_shared(address: int) -> None:
    """Check that an image begins where the copy engine writes one."""
    if address % 128:
        nearest = (address + 64) // 128 * 128
        raise ValueError(
            f"shared_address = {address:#x}: a tensor copy needs a multiple of 128; nearest legal {nearest:#x}"
        )


def converted(tensor_map: TensorMap, data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a contiguous copy of in-bounds data, as a load converts it: tf32 is rounded, nothing is flushed."""
    if tensor_map.dtype not in ("tf32", "tf32_ftz"):
        return data.copy()
    values = np.ascontiguousarray(data).view(np.float32)
    return encode(values, "tf32").view(data.dtype).reshape(data.shape)


def filled(tensor_map: TensorMap, size: int) -> Bytes:
    """Packed elements of what lies out of bounds."""
    if tensor_map.oob_fill is None:
        return np.zeros(size, np.uint8)
    return np.full(size // 2, 0x7FF7, np.uint16).view(np.uint8)  # A NaN of every type, repeated.


def spread(tensor_map: TensorMap, packed: Bytes) -> Bytes:
    """Insert the gaps of the padded types."""
    element = tensor_map.element
    if element.global_bytes == element.shared_bytes:
        return packed
    image = np.zeros((packed.size // element.global_bytes, element.shared_bytes), np.uint8)
    image[:, : element.global_bytes] = packed.reshape(-1, element.global_bytes)
    return image.reshape(-1)


def _places(tensor_map: TensorMap, shared_address: int) -> npt.NDArray[np.intp]:
    """Where each chunk of the dense rows lies in the image, in chunks."""
    size = chunk_size(tensor_map.swizzle)
    if tensor_map.row_bytes == tensor_map.row_pitch:
        rows, chunks = tensor_map.shared_bytes // SPAN[tensor_map.swizzle], SPAN[tensor_map.swizzle] // size
    else:
        rows, chunks = tensor_map.shared_bytes // tensor_map.row_pitch, tensor_map.row_bytes // size
    return chunk_places(tensor_map.swizzle, shared_address % PERIOD, rows, chunks)


def placed(tensor_map: TensorMap, linear: Bytes, shared_address: int) -> Bytes:
    """Move dense rows to where they lie in the image."""
    if tensor_map.swizzle is None:
        return linear
    places = _places(tensor_map, shared_address)
    chunks = linear.view(np.dtype((np.void, chunk_size(tensor_map.swizzle))))
    if linear.size == tensor_map.shared_bytes:
        return chunks.take(places).view(np.uint8)
    image = np.zeros(tensor_map.shared_bytes, np.uint8)
    image.view(chunks.dtype)[places] = chunks
    return image


def unplaced(tensor_map: TensorMap, image: Bytes, shared_address: int) -> Bytes:
    """Return the packed elements of an image."""
    check_shared(shared_address)
    if image.size != tensor_map.shared_bytes:
        raise ValueError(f"image has {image.size} bytes: the tensor map's box has {tensor_map.shared_bytes}")
    linear = np.ascontiguousarray(image)
    if tensor_map.swizzle is not None:
        record = np.dtype((np.void, chunk_size(tensor_map.swizzle)))
        linear = linear.view(record).take(_places(tensor_map, shared_address)).view(np.uint8)
    element = tensor_map.element
    if element.global_bytes == element.shared_bytes:
        return linear
    return np.ascontiguousarray(linear.reshape(-1, element.shared_bytes)[:, : element.global_bytes]).reshape(-1)
