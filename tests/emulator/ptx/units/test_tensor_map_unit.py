"""Tensor maps: their rules, one by one, and their encoding."""

from __future__ import annotations

import dataclasses
import random

import pytest
from copy_cases import random_im2col, random_tiled

from tilekit.emulator.ptx.memory.tensor_map import PixelBox, TensorMap

TILED = TensorMap.tiled(0x1000, "bf16", (256, 128, 4), (512, 65536), (64, 32, 1), swizzle="128B")
IM2COL = TensorMap.im2col(
    0x1000, "f16", (64, 14, 14, 2), (128, 1792, 25088), lower=(-1, -1), upper=(-1, -1), channels_per_pixel=64,
    pixels_per_column=128, swizzle="128B",
)  # fmt: skip
PIXELS = IM2COL.pixels
assert PIXELS is not None


@pytest.mark.parametrize(
    ("tensor_map", "changes", "message"),
    [
        (TILED, {"dtype": "f8"}, "dtype = 'f8': must be one of 'u8'"),
        (TILED, {"swizzle": "256B"}, "swizzle = '256B': must be one of None, '32B'"),
        (TILED, {"interleave": 16}, "interleave = 16: must be one of"),
        (TILED, {"oob_fill": 0}, "oob_fill = 0: must be one of None, 'nan'"),
        (TILED, {"l2_promotion": "512B"}, "l2_promotion = '512B'"),
        (TILED, {"dims": ()}, "dims has 0 entries: a map needs 1 to 5 dimensions; nearest legal 1"),
        (TILED, {"dims": (1,) * 6}, "dims has 6 entries: a map needs 1 to 5 dimensions; nearest legal 5"),
        (IM2COL, {"dims": (64, 14)}, "dims has 2 entries: an im2col map needs 3 to 5"),
        (TILED, {"strides": (512,)}, "strides has 1 entries: rank 3 needs 2"),
        (TILED, {"box": (64, 32)}, "box has 2 entries: rank 3 needs 3"),
        (TILED, {"element_strides": (1,)}, "element_strides has 1 entries: rank 3 needs 3"),
        (IM2COL, {"pixels": dataclasses.replace(PIXELS, lower=(0,))}, "lower has 1 entries: rank 4 needs 2"),
        (TILED, {"address": 0x1008}, "address = 4104: must be a multiple of 16 bytes"),
        (TILED, {"dims": (256, 0, 4)}, "dims[1] = 0: must lie in 1 to 4294967296; nearest legal 1"),
        (TILED, {"dims": (256, 2**32 + 1, 4)}, "dims[1] = 4294967297: must lie in 1 to 4294967296"),
        (
            TILED,
            {"strides": (520, 65536)},
            "strides[0] = 520: must be a multiple of 16 bytes in 0 to 1099511627760; nearest legal 528",
        ),
        (TILED, {"strides": (512, 2**40)}, "strides[1] = 1099511627776: must be a multiple of 16"),
        (TILED, {"box": (64, 257, 1)}, "box[1] = 257: must lie in 1 to 256; nearest legal 256"),
        (
            TILED,
            {"box": (60, 32, 1)},
            "box[0] = 60: 60 bf16 are 120 bytes, which must be a multiple of 16; nearest legal 64",
        ),
        (
            TILED,
            {"box": (72, 32, 1)},
            "box[0] = 72: 72 bf16 are 144 bytes, more than swizzle 128B spans; nearest legal 64",
        ),
        (TILED, {"element_strides": (1, 9, 1)}, "element_strides[1] = 9: must lie in 1 to 8; nearest legal 8"),
        (TILED, {"dtype": "u16", "oob_fill": "nan"}, "oob_fill = 'nan': only floating-point types"),
        (TILED, {"interleave": "32B"}, "swizzle = '128B': interleave '32B' needs swizzle '32B'"),
        (TILED, {"dtype": "16u4_align16B", "box": (64, 32, 1)}, "box[0] = 64: 16u4_align16B needs 128"),
        (
            TILED,
            {"dtype": "16u4_align16B", "box": (128, 32, 1), "address": 0x1010},
            "address = 4112: must be a multiple of 32",
        ),
        (
            TILED,
            {"dtype": "16u6_align16B", "box": (128, 32, 1), "swizzle": "64B"},
            "swizzle = '64B': 16u6_align16B needs one of",
        ),
        (
            TILED,
            {"dtype": "16u6_align16B", "box": (128, 32, 1), "dims": (200, 128, 4)},
            "dims[0] = 200: must be a multiple of 128",
        ),
        (TILED, {"dtype": "16u4_align8B", "dims": (255, 128, 4)}, "dims[0] = 255: must be a multiple of 2 elements"),
        (
            IM2COL,
            {"pixels": dataclasses.replace(PIXELS, channels_per_pixel=0)},
            "channels_per_pixel = 0: must lie in 1 to 256",
        ),
        (
            IM2COL,
            {"pixels": dataclasses.replace(PIXELS, channels_per_pixel=68)},
            "channels_per_pixel = 68: 68 f16 are 136 bytes",
        ),
        (
            IM2COL,
            {"pixels": dataclasses.replace(PIXELS, pixels_per_column=1025)},
            "pixels_per_column = 1025: must lie in 1 to 1024",
        ),
        (
            IM2COL,
            {"pixels": dataclasses.replace(PIXELS, lower=(-129, -1))},
            "lower[0] = -129: must lie in -128 to 127 at rank 4",
        ),
        (
            IM2COL,
            {"pixels": dataclasses.replace(PIXELS, upper=(-1, -15))},
            "upper[1] = -15: the box along dimension 2 runs from -1 to -2",
        ),
    ],
)
def test_each_rule(tensor_map: TensorMap, changes: dict, message: str) -> None:
    """Breaking one rule gives exactly one problem, which names the argument, what was given and what is legal."""
    problems = dataclasses.replace(tensor_map, **changes).problems()
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(
    ("changes", "count"),
    [({"address": 1, "dims": (0, 128, 4), "box": (65, 300, 1)}, 4), ({"dims": (2**32, 1, 1), "strides": (0, 16)}, 0)],
)
def test_all_problems_are_reported_together(changes: dict, count: int) -> None:
    """Every broken rule is listed at once; extreme but legal values are accepted, as the driver accepts them."""
    assert len(dataclasses.replace(TILED, **changes).problems()) == count


def test_constructors_raise_with_every_problem() -> None:
    """`tiled` and `im2col` raise one ValueError that lists every problem."""
    with pytest.raises(ValueError, match=r"tiled tensor map:\n  address = 8: .*\n  box\[0\] = 7: "):
        TensorMap.tiled(8, "f32", (64,), (), (7,))
    with pytest.raises(ValueError, match=r"im2col tensor map:\n  pixels_per_column = 0: "):
        TensorMap.im2col(0, "f32", (4, 4, 4), (16, 64), lower=[0], upper=[0], channels_per_pixel=4, pixels_per_column=0)


@pytest.mark.parametrize("seed", range(4))
def test_encoding_round_trips(seed: int) -> None:
    """Any legal map comes back from its 128 bytes."""
    rng = random.Random(seed)
    for tensor_map in [random_tiled(rng) for _ in range(25)] + [random_im2col(rng) for _ in range(25)]:
        data = tensor_map.encode()
        assert len(data) == 128
        assert TensorMap.decode(data) == tensor_map


def test_extreme_values_round_trip() -> None:
    """The largest legal values fit the encoding."""
    largest = TensorMap.tiled(
        2**64 - 16, "tf32_ftz", (2**32,) * 5, (2**40 - 16,) * 4, (256, 256, 256, 256, 256), element_strides=(8,) * 5,
        oob_fill="nan", l2_promotion="256B",
    )  # fmt: skip
    assert TensorMap.decode(largest.encode()) == largest


def test_damaged_bytes_are_detected() -> None:
    """Garbage, a wrong size and every single changed byte of the encoding are refused."""
    data = TILED.encode()
    with pytest.raises(ValueError, match="128 bytes, not 64"):
        TensorMap.decode(data[:64])
    with pytest.raises(ValueError, match="no tensor map: they begin with 00 00"):
        TensorMap.decode(bytes(128))
    used = len(data.rstrip(b"\0"))
    for i in range(4, used):
        with pytest.raises(ValueError, match="changed after it was encoded"):
            TensorMap.decode(data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :])


def test_illegal_maps_are_not_encoded() -> None:
    """A map built without checks is checked when it is encoded."""
    with pytest.raises(ValueError, match=r"strides\[0\] = 8"):
        dataclasses.replace(TILED, strides=(8, 65536)).encode()


def test_sizes() -> None:
    """Element strides divide the box, swizzled rows start whole spans, and packed gaps do not count as transferred."""
    strided = TensorMap.tiled(0, "f16", (64, 64), (128,), (16, 20), element_strides=(5, 8), swizzle="128B")
    assert (strided.counts, strided.row_bytes, strided.row_pitch) == ((16, 3), 32, 128)
    assert (strided.shared_bytes, strided.transaction_bytes) == (384, 96)
    dense = dataclasses.replace(strided, swizzle=None)
    assert (dense.row_pitch, dense.shared_bytes) == (32, 96)
    packed = TensorMap.tiled(0, "16u4_align16B", (256, 8), (128,), (128, 2), swizzle="128B")
    assert (packed.shared_bytes, packed.transaction_bytes) == (256, 128)
    assert (IM2COL.counts, IM2COL.shared_bytes) == ((64, 128), 16384)
    assert PixelBox((0,), (0,), 8, 4) != PIXELS


def test_minimum_architecture() -> None:
    """Packed types and swizzles of larger atoms need the copy engine of sm_100."""
    assert TILED.minimum_sm == IM2COL.minimum_sm == 90
    assert TensorMap.tiled(0, "16u4_align8B", (64,), (), (32,)).minimum_sm == 100
    assert dataclasses.replace(TILED, swizzle="128B_atom_32B").minimum_sm == 100
