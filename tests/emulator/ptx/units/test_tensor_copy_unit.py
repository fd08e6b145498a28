"""Bulk tensor copies against copies of one element at a time, over random legal maps."""

from __future__ import annotations

import random

import numpy as np
import pytest
from copy_cases import (
    NUMBERS,
    address_of,
    elements,
    end_of,
    inside,
    load_by_element,
    random_coords,
    random_im2col,
    random_tiled,
    swizzled_offset,
)

from tilekit.emulator.ptx.arithmetic.reductions import ReduceOp, reduction
from tilekit.emulator.ptx.copies.tensor_copy import footprint, load_box, reduce_box, store_box, written_bytes
from tilekit.emulator.ptx.memory.tensor_map import ELEMENT_TYPES, TensorMap

BASE = 48  # Where the tensors' address zero lies in the allocation.


def memory_for(tensor_map: TensorMap, seed: int) -> np.ndarray:
    """An allocation that ends where the tensor ends."""
    return np.random.default_rng(seed).integers(0, 256, BASE + end_of(tensor_map), dtype=np.uint8)


def cursor(rng: random.Random, tensor_map: TensorMap) -> tuple[list[int], list[int]]:
    """Coordinates in the pixel box, which may start below or beyond the channels and images, and offsets."""
    box = tensor_map.pixels
    assert box is not None
    unit = 16 // tensor_map.element.global_bytes
    pixel = [
        rng.randint(first, extent - 1 + last)
        for first, last, extent in zip(box.lower, box.upper, tensor_map.dims[1:], strict=False)
    ]
    channel = rng.randint(-1, tensor_map.dims[0] // unit + 1) * unit
    return [channel, *pixel, rng.randint(-1, tensor_map.dims[-1])], [rng.randint(0, 3) for _ in pixel]


@pytest.mark.parametrize("seed", range(12))
def test_tiled_loads(seed: int) -> None:
    """Any box of any legal map gives the image that copying its elements one by one gives, and touches only those."""
    rng = random.Random(seed)
    for _ in range(10):
        tensor_map = random_tiled(rng)
        coords, shared_address = random_coords(rng, tensor_map, -(2**31)), 128 * rng.randint(0, 16)
        memory = memory_for(tensor_map, seed)
        image, written = load_by_element(tensor_map, coords, [], memory[BASE:], shared_address)
        found = load_box(tensor_map, coords, memory, BASE + tensor_map.address, shared_address)
        np.testing.assert_array_equal(found, image, err_msg=f"{tensor_map} {coords}")
        mask = written_bytes(tensor_map, shared_address)
        np.testing.assert_array_equal(np.ones_like(written) if mask is None else mask, written)
        assert tensor_map.transaction_bytes == written.sum()
        check_footprint(tensor_map, coords, [], stores=False)


@pytest.mark.parametrize("seed", range(12))
def test_im2col_loads(seed: int) -> None:
    """Any im2col column equals a walk of its pixels one by one, with offsets and out-of-bounds pixels and channels."""
    rng = random.Random(100 + seed)
    for _ in range(10):
        tensor_map = random_im2col(rng)
        coords, offsets = cursor(rng, tensor_map)
        memory, shared_address = memory_for(tensor_map, seed), 128 * rng.randint(0, 16)
        image, written = load_by_element(tensor_map, coords, offsets, memory[BASE:], shared_address)
        found = load_box(tensor_map, coords, memory, BASE + tensor_map.address, shared_address, offsets)
        np.testing.assert_array_equal(found, image, err_msg=f"{tensor_map} {coords} {offsets}")
        assert tensor_map.transaction_bytes == written.sum()
        check_footprint(tensor_map, coords, offsets, stores=False)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", [random_tiled, random_im2col])
def test_stores(seed: int, make) -> None:  # type: ignore[no-untyped-def]
    """A store writes each element inside the tensor and the rest of each row's last 16-byte unit, and nothing else."""
    rng = random.Random(200 + seed)
    for _ in range(6):
        tensor_map = make(rng)
        coords = cursor(rng, tensor_map)[0] if tensor_map.pixels else random_coords(rng, tensor_map, 0)
        memory, shared_address = memory_for(tensor_map, seed), 128 * rng.randint(0, 16)
        image = np.random.default_rng(seed).integers(0, 256, tensor_map.shared_bytes, dtype=np.uint8)
        expected, size = memory.copy(), tensor_map.element.shared_bytes
        for offset, index in elements(tensor_map, coords, [0] * (tensor_map.rank - 2)):
            if inside(tensor_map, index, whole_units=True):
                place = swizzled_offset(offset, shared_address, tensor_map.swizzle)
                address = BASE + address_of(tensor_map, index)
                expected[address : address + size] = image[place : place + size]
        store_box(tensor_map, coords, memory, BASE + tensor_map.address, image, shared_address)
        np.testing.assert_array_equal(memory, expected, err_msg=f"{tensor_map} {coords}")
        check_footprint(tensor_map, coords, [], stores=True)


def check_footprint(tensor_map: TensorMap, coords: list[int], offsets: list[int], *, stores: bool) -> None:
    """The footprint covers exactly the bytes of the elements in bounds."""
    size = tensor_map.element.global_bytes
    expected = set()
    for _, index in elements(tensor_map, coords, offsets or [0] * (tensor_map.rank - 2)):
        if inside(tensor_map, index, whole_units=stores):
            address = address_of(tensor_map, index)
            expected.update(range(address, address + size))
    found = footprint(tensor_map, coords, offsets, stores=stores)
    covered = {byte for start in found.starts.tolist() for byte in range(start, start + found.run)}
    assert covered == expected
    assert (found.begin, found.end) == ((min(expected), max(expected) + 1) if expected else (0, 0))


INTEGER = ["add", "min", "max", "and", "or", "xor"]
REDUCTIONS: dict[str, list[ReduceOp]] = {
    "u32": [*INTEGER, "inc", "dec"], "s32": INTEGER, "u64": INTEGER, "s64": ["min", "max"], "f32": ["add"],
    "f32_ftz": ["add"], "f64": ["add"], "f16": ["add", "min", "max"], "bf16": ["add", "min", "max"],
}  # type: ignore[dict-item]  # fmt: skip


def reduced(op: str, held: np.generic, added: np.generic) -> np.generic:
    """One element's reduction, in the type's own arithmetic."""
    one = held.dtype.type(1)
    return {
        "add": lambda: held + added,
        "min": lambda: min(held, added),
        "max": lambda: max(held, added),
        "and": lambda: held & added,
        "or": lambda: held | added,
        "xor": lambda: held ^ added,
        "inc": lambda: held.dtype.type(0) if held >= added else held + one,
        "dec": lambda: added if held == 0 or held > added else held - one,
    }[op]()


@pytest.mark.parametrize(("dtype", "op"), [(dtype, op) for dtype, ops in REDUCTIONS.items() for op in ops])
def test_reductions(dtype: str, op: ReduceOp) -> None:
    """Each reduction combines each element in bounds, in the map's type, and leaves the others alone."""
    kind = np.dtype(NUMBERS[dtype])
    unit = 16 // kind.itemsize
    tensor_map = TensorMap.tiled(0, dtype, (3 * unit, 9), (4 * 16,), (2 * unit, 5), swizzle="32B")
    values = np.random.default_rng(3).integers(0, 50, (2, 9 * 4 * unit)).astype(np.float64).astype(kind)
    memory = values[0].copy()
    image = values[1][: 10 * unit].copy().view(np.uint8)
    expected = memory.copy()
    for offset, index in elements(tensor_map, [unit, 6], []):
        if inside(tensor_map, index):
            place = swizzled_offset(offset, 128, "32B") // kind.itemsize
            at = address_of(tensor_map, index) // kind.itemsize
            with np.errstate(over="ignore"):
                expected[at] = reduced(op, expected[at], image.view(kind)[place])
    reduce_box(tensor_map, [unit, 6], memory.view(np.uint8), 0, image, 128, op)
    np.testing.assert_array_equal(memory, expected)
    assert (memory != values[0]).any()


@pytest.mark.parametrize("dtype", list(ELEMENT_TYPES))
def test_illegal_reductions_are_refused(dtype: str) -> None:
    """Types and operations that the hardware faults on are refused, with those that exist."""
    for op in ("add", "min", "max", "inc", "dec", "and", "or", "xor"):
        if op not in REDUCTIONS.get(dtype, []):
            with pytest.raises(ValueError, match=f"op = '{op}': the reductions of {dtype} are"):
                reduction(dtype, op)  # type: ignore[arg-type]


def test_float_reductions_of_nan_and_overflow() -> None:
    """f32 sums make one NaN, f16 minima prefer numbers, and sums overflow to infinity."""
    nan, one = np.float32("nan"), np.float32(1)
    _, add = reduction("f32", "add")
    assert add(np.array([-nan, 3e38], np.float32), np.array([one, 3e38], np.float32)).view(np.uint32).tolist() == [
        0x7FFFFFFF,
        0x7F800000,
    ]
    _, least = reduction("f16", "min")
    assert least(np.array([0xFE01, 0x3C00], np.uint16), np.array([0x4000, 0x7C01], np.uint16)).tolist() == [
        0x4000,
        0x3C00,
    ]


@pytest.mark.parametrize("dtype", ["16u4_align8B", "16u4_align16B", "16u6_align16B"])
def test_packed_types(dtype: str) -> None:
    """Packed 4- and 6-bit elements arrive in their padded groups of 16, and go back without the gaps."""
    element = ELEMENT_TYPES[dtype]
    groups = 128 // element.atom
    pitch = groups * element.global_bytes * 2
    tensor_map = TensorMap.tiled(0, dtype, (256, 6), (pitch,), (128, 4))
    memory = np.random.default_rng(4).integers(0, 256, 6 * pitch, dtype=np.uint8)
    image = load_box(tensor_map, (128, 3), memory, 0, 256)
    rows = memory.reshape(6, 2, groups, element.global_bytes)[:, 1]
    expected = np.zeros((4, groups, element.shared_bytes), np.uint8)
    expected[:3, :, : element.global_bytes] = rows[3:]
    np.testing.assert_array_equal(image, expected.reshape(-1))
    mask = written_bytes(tensor_map, 256)
    assert (
        tensor_map.transaction_bytes
        == (image.size if mask is None else mask.sum())
        == 4 * groups * element.global_bytes
    )
    target = np.zeros_like(memory)
    store_box(tensor_map, (128, 3), target, 0, image, 256)
    np.testing.assert_array_equal(target.reshape(6, 2, -1)[3:, 1], memory.reshape(6, 2, -1)[3:, 1])
    assert not target.reshape(6, 2, -1)[:, 0].any()


@pytest.mark.parametrize(("interleave", "size", "swizzle"), [("16B", 16, None), ("32B", 32, "32B")])
def test_interleaved_tensors(interleave: str, size: int, swizzle: str | None) -> None:
    """With interleave, dimension 0 counts slices of 16 or 32 bytes (as on an H200)."""
    tensor_map = TensorMap.tiled(
        0,
        "u16",
        (5, 4, 3),
        (size * 6, size * 24),
        (16, 2, 2),
        interleave=interleave,
        swizzle=swizzle,  # type: ignore[arg-type]
    )
    memory = np.random.default_rng(5).integers(0, 256, size * 72, dtype=np.uint8)
    image = load_box(tensor_map, (3, 1, 2), memory, 0, 0)
    assert image.size == tensor_map.shared_bytes == tensor_map.transaction_bytes == 64 * size
    expected = np.zeros((2, 2, 16, size), np.uint8)
    expected[0, :, :2] = memory.reshape(3, 4, 6, size)[2, 1:3, 3:5]
    linear = np.empty_like(image)
    for chunk in range(image.size // 16):
        place = swizzled_offset(16 * chunk, 0, swizzle)
        linear[16 * chunk : 16 * chunk + 16] = image[place : place + 16]
    np.testing.assert_array_equal(linear, expected.reshape(-1))


def test_copies_that_the_hardware_faults_on_are_refused() -> None:
    """Each rule of the instruction is an error that names the argument and the nearest legal value."""
    tiled = TensorMap.tiled(0, "bf16", (64, 64), (128,), (64, 8), swizzle="128B")
    column = TensorMap.im2col(
        0, "bf16", (64, 8, 8, 2), (128, 1024, 8192), lower=(-1, 0), upper=(-1, 0), channels_per_pixel=64,
        pixels_per_column=16,
    )  # fmt: skip
    memory, image = np.zeros(16384, np.uint8), np.zeros(1024, np.uint8)
    with pytest.raises(
        ValueError, match=r"coords\[0\] = 4: .* multiple of 16 bytes, which is 8 elements.*nearest legal 0"
    ):
        load_box(tiled, (4, 0), memory, 0, 0)
    with pytest.raises(ValueError, match=r"coords has 1 entries: the tensor map has rank 2"):
        load_box(tiled, (0,), memory, 0, 0)
    with pytest.raises(ValueError, match=r"shared_address = 0x50: .*128; nearest legal 0x80"):
        load_box(tiled, (0, 0), memory, 0, 80)
    with pytest.raises(ValueError, match=r"coords\[1\] = -1: a store's coordinates must not be negative"):
        store_box(tiled, (0, -1), memory, 0, image, 0)
    with pytest.raises(ValueError, match=r"image has 512 bytes: .* 1024"):
        store_box(tiled, (0, 0), memory, 0, image[:512], 0)
    with pytest.raises(ValueError, match=r"coords\[1\] = 7: must lie in the map's pixel box, -1 to 6; nearest legal 6"):
        load_box(column, (0, 7, 0, 0), memory, 0, 0, (0, 0))
    with pytest.raises(ValueError, match=r"offsets has 1 entries: rank 4 has 2"):
        load_box(column, (0, 0, 0, 0), memory, 0, 0, (0,))


def test_stores_do_not_touch_holes_or_read_only_memory() -> None:
    """A whole box is stored without copying what lies around it, and read-only memory is an error."""
    tensor_map = TensorMap.tiled(0, "f32", (16, 4), (128,), (16, 4))
    memory = np.zeros(512, np.uint8)
    store_box(tensor_map, (0, 0), memory, 0, np.full(256, 7, np.uint8), 0)
    assert memory.reshape(4, 128)[:, :64].all()
    assert not memory.reshape(4, 128)[:, 64:].any()
    memory.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        store_box(tensor_map, (0, 0), memory, 0, np.full(256, 7, np.uint8), 0)
