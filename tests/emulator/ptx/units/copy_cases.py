"""Random legal tensor maps, and the copies they describe, one element at a time."""

from __future__ import annotations

import random
from itertools import product

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilekit.emulator.ptx.memory.tensor_map import ELEMENT_TYPES, TensorMap

SPAN = {None: 256, "32B": 32, "64B": 64, "128B": 128}
PLAIN = [name for name, element in ELEMENT_TYPES.items() if element.atom == 1]


def end_of(tensor_map: TensorMap) -> int:
    """The address after the tensor's last row, whole 16-byte units included."""
    size = tensor_map.element.global_bytes
    last = sum((d - 1) * s for d, s in zip(tensor_map.dims[1:], tensor_map.strides, strict=True))
    return tensor_map.address + last + -(-tensor_map.dims[0] * size // 16) * 16


def random_strides(rng: random.Random, dims: list[int], size: int) -> list[int]:
    """Row pitches with and without padding."""
    strides, pitch = [], dims[0] * size
    for extent in dims[1:]:
        pitch = -(-pitch // 16) * 16 + 16 * rng.choice([0, 0, 1, 3])
        strides.append(pitch)
        pitch *= extent
    return strides


def random_tiled(rng: random.Random) -> TensorMap:
    """A tiled map of rank 1 to 5, with a box that may be larger than the tensor."""
    while True:
        dtype, rank, swizzle = (
            rng.choice(PLAIN),
            rng.choice([1, 2, 2, 3, 4, 5]),
            rng.choice([None, "32B", "64B", "128B"]),
        )
        size = ELEMENT_TYPES[dtype].shared_bytes
        row = SPAN[swizzle] if rng.random() < 0.4 and swizzle else 16 * rng.randint(1, SPAN[swizzle] // 16)
        if row // size > 256:
            continue
        box = [row // size] + [rng.randint(1, 4 if rank > 3 else 7) for _ in range(rank - 1)]
        dims = [rng.randint(1, 2 * box[0])] + [rng.randint(1, 2 * extent) for extent in box[1:]]
        return TensorMap.tiled(
            16 * rng.randint(0, 9),
            dtype,
            dims,
            random_strides(rng, dims, size),
            box,
            element_strides=[rng.randint(1, 8)] + [rng.choice([1, 1, 2, 3, 8]) for _ in range(rank - 1)],
            swizzle=swizzle,  # type: ignore[arg-type]
            oob_fill="nan" if ELEMENT_TYPES[dtype].floating and rng.random() < 0.3 else None,
        )


def random_coords(rng: random.Random, tensor_map: TensorMap, lowest: int) -> list[int]:
    """Coordinates inside, across and beyond every side (``lowest`` = 0 forbids negative ones)."""
    unit = 16 // tensor_map.element.global_bytes
    coords = [
        rng.randint(max(lowest, -extent - 1), dim + 1)
        for extent, dim in zip(tensor_map.box, tensor_map.dims, strict=True)
    ]
    return [coords[0] // unit * unit, *coords[1:]]


def random_im2col(rng: random.Random) -> TensorMap:
    """An im2col map of rank 3 to 5."""
    while True:
        dtype, spatial = rng.choice(["u8", "f16", "bf16", "f32", "tf32"]), rng.choice([1, 2, 2, 3])
        swizzle = rng.choice([None, "32B", "64B", "128B"])
        size = ELEMENT_TYPES[dtype].shared_bytes
        channels = 16 * rng.randint(1, SPAN[swizzle] // 16) // size
        dims = [rng.randint(1, 2 * channels), *(rng.randint(2, 7) for _ in range(spatial)), rng.randint(1, 3)]
        lower = [rng.randint(-3, 2) for _ in range(spatial)]
        upper = [rng.randint(-3, 2) for _ in range(spatial)]
        if any(dim - 1 + last < first for dim, first, last in zip(dims[1:], lower, upper, strict=False)):
            continue
        return TensorMap.im2col(
            16 * rng.randint(0, 9),
            dtype,
            dims,
            random_strides(rng, dims, size),
            lower=lower,
            upper=upper,
            channels_per_pixel=channels,
            pixels_per_column=rng.randint(1, 24),
            element_strides=[1, *(rng.choice([1, 1, 2, 3]) for _ in range(spatial)), 1],
            swizzle=swizzle,  # type: ignore[arg-type]
            oob_fill="nan" if ELEMENT_TYPES[dtype].floating and rng.random() < 0.3 else None,
        )


def walk(tensor_map: TensorMap, coords: list[int]) -> list[list[int]]:
    """The pixels (w, [h, [d,]] n) of an im2col column, one step at a time."""
    box = tensor_map.pixels
    assert box is not None
    cursor, result = list(coords[1:]), []
    for _ in range(box.pixels_per_column):
        result.append(list(cursor))
        for axis in range(tensor_map.rank - 2):
            cursor[axis] += tensor_map.element_strides[axis + 1]
            if cursor[axis] <= tensor_map.dims[axis + 1] - 1 + box.upper[axis]:
                break
            cursor[axis] = box.lower[axis]
        else:
            cursor[-1] += 1
    return result


def elements(tensor_map: TensorMap, coords: list[int], offsets: list[int]) -> list[tuple[int, list[int]]]:
    """For every element of the box: its linear offset in bytes in the unswizzled image, and its index in the tensor."""
    size = tensor_map.element.shared_bytes
    if tensor_map.pixels is not None:
        return [
            (
                row * tensor_map.row_pitch + c * size,
                [coords[0] + c, *(p + o for p, o in zip(pixel[:-1], offsets, strict=True)), pixel[-1]],
            )
            for row, pixel in enumerate(walk(tensor_map, coords))
            for c in range(tensor_map.pixels.channels_per_pixel)
        ]
    steps = (1, *tensor_map.element_strides[1:])
    counts = [-(-extent // step) for extent, step in zip(tensor_map.box, steps, strict=True)]
    result = []
    for row, outer in enumerate(product(*(range(count) for count in reversed(counts[1:])))):
        for inner in range(counts[0]):
            index = [c + i * s for c, i, s in zip(coords, [inner, *reversed(outer)], steps, strict=True)]
            result.append((row * tensor_map.row_pitch + inner * size, index))
    return result


def swizzled_offset(offset: int, shared_address: int, swizzle: str | None) -> int:
    """Where a linear offset of the image lies: address bits 7 to 9 XORed into bits 4 to 6."""
    mask = {None: 0, "32B": 1, "64B": 3, "128B": 7}[swizzle]
    address = shared_address + offset
    return (address ^ (address >> 7 & mask) << 4) - shared_address


def inside(tensor_map: TensorMap, index: list[int], *, whole_units: bool = False) -> bool:
    """Whether an element is in bounds; a store's last 16-byte unit of a row counts as inside."""
    dims = list(tensor_map.dims)
    if whole_units:
        unit = 16 // tensor_map.element.global_bytes
        dims[0] = -(-dims[0] // unit) * unit
    return all(0 <= i < dim for i, dim in zip(index, dims, strict=True))


def address_of(tensor_map: TensorMap, index: list[int]) -> int:
    """Global address of an element."""
    strides = (tensor_map.element.global_bytes, *tensor_map.strides)
    return tensor_map.address + sum(i * stride for i, stride in zip(index, strides, strict=True))


def to_tf32(word: bytes) -> bytes:
    """An f32 rounded to tf32, as a load of that type does."""
    value = np.frombuffer(word, np.float32)
    if np.isnan(value[0]):
        return np.uint32(0x7FFFE000).tobytes()
    bits = int(value.view(np.uint32)[0])
    return np.uint32((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).tobytes()


def load_by_element(
    tensor_map: TensorMap, coords: list[int], offsets: list[int], memory: npt.NDArray[np.uint8], shared_address: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """The image of a load and which of its bytes are written."""
    size = tensor_map.element.shared_bytes
    image = np.zeros(tensor_map.shared_bytes, np.uint8)
    written = np.zeros(tensor_map.shared_bytes, np.bool_)
    fill = (b"\xf7\x7f" * 4 if tensor_map.oob_fill else bytes(8))[:size]
    for offset, index in elements(tensor_map, coords, offsets):
        word = fill
        if inside(tensor_map, index):
            address = address_of(tensor_map, index)
            word = memory[address : address + size].tobytes()
            if tensor_map.dtype.startswith("tf32"):
                word = to_tf32(word)
        place = swizzled_offset(offset, shared_address, tensor_map.swizzle)
        image[place : place + size] = np.frombuffer(word, np.uint8)
        written[place : place + size] = True
    return image, written


NUMBERS = {
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "f32": np.float32, "f32_ftz": np.float32,
    "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
}  # fmt: skip
