"""Encoding tensor maps: what the driver is given, the correction afterwards, and the memory of encoded maps."""

from __future__ import annotations

from typing import Any

import pytest

from tilekit.emulator.ptx.memory.tensor_map import ELEMENT_TYPES, TensorMap
from tilekit.errors import ArgumentError, DriverError
from tilekit.runtime.tensor_map import _SWIZZLES, encode

ONES = b"\xff" * 128


def tiled(rows: int = 1024, **options: Any) -> TensorMap:
    return TensorMap.tiled(0x7F0000000000, "bf16", (256, rows), (512,), (64, 128), **options)


def test_tiled_map_reaches_the_driver_argument_by_argument(cuda: Any) -> None:
    """Every field of the description arrives in its place, as the type the bindings want."""
    cuda.answers["cuTensorMapEncodeTiled"] = cuda.map_of(bytes(range(128)))
    options = {"swizzle": "128B", "oob_fill": "nan", "l2_promotion": "256B", "element_strides": (1, 2)}
    assert encode(tiled(**options)) == bytes(range(128))
    ((dtype, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill),) = cuda.named(
        "cuTensorMapEncodeTiled"
    )
    assert dtype == cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    assert (rank, address) == (2, 0x7F0000000000)
    numbers = [[int(value) for value in values] for values in (dims, strides, box, steps)]
    assert numbers == [[256, 1024], [512], [64, 128], [1, 2]]
    assert interleave.name == "CU_TENSOR_MAP_INTERLEAVE_NONE"
    assert swizzle.name == "CU_TENSOR_MAP_SWIZZLE_128B"
    assert promotion.name == "CU_TENSOR_MAP_L2_PROMOTION_L2_256B"
    assert fill.name == "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA"


def test_im2col_map_reaches_the_driver_argument_by_argument(cuda: Any) -> None:
    """Corners and counts arrive in the order of cuTensorMapEncodeIm2col."""
    cuda.answers["cuTensorMapEncodeIm2col"] = cuda.map_of(ONES)
    corners: dict[str, Any] = {"lower": (-1, -2), "upper": (-3, -4)}
    counts: dict[str, Any] = {"channels_per_pixel": 64, "pixels_per_column": 128}
    encode(TensorMap.im2col(0x1000, "f16", (64, 56, 28, 8), (128, 7168, 200704), **corners, **counts))
    ((_, rank, _, dims, _, lower, upper, channels, column, steps, *_),) = cuda.named("cuTensorMapEncodeIm2col")
    assert (rank, lower, upper, channels, column) == (4, [-1, -2], [-3, -4], 64, 128)
    assert [int(extent) for extent in dims] == [64, 56, 28, 8]
    assert [int(step) for step in steps] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "version", "cleared"),
    [(255, 13010, True), (256, 13010, False), (255, 13020, False), (1, 12000, True)],
)
def test_one_bit_is_corrected_for_small_tensors_and_old_drivers(
    cuda: Any, rows: int, version: int, cleared: bool
) -> None:
    """Bit 21 of the second word is cleared below 128 KiB on drivers up to 13.1, and no other bit ever."""
    cuda.answers |= {"cuTensorMapEncodeTiled": cuda.map_of(ONES), "cuDriverGetVersion": version}
    expected = int.from_bytes(ONES, "little") & ~(1 << (64 + 21)) if cleared else int.from_bytes(ONES, "little")
    assert int.from_bytes(encode(tiled(rows)), "little") == expected


def test_equal_descriptions_are_encoded_once(cuda: Any) -> None:
    """The memory of encoded maps is by value, and bounded."""
    cuda.answers["cuTensorMapEncodeTiled"] = cuda.map_of(ONES)
    assert encode(tiled()) is encode(tiled())
    encode(tiled(1000))
    assert len(cuda.named("cuTensorMapEncodeTiled")) == 2
    assert encode.cache_info().maxsize is not None


def test_illegal_description_never_reaches_the_driver(cuda: Any) -> None:
    """All broken rules are listed at once."""
    wrong = TensorMap(8, "bf16", (256, 4), (500,), (64, 300), None, (1, 1))
    with pytest.raises(ArgumentError) as caught:
        encode(wrong)
    for name in ("address", "strides[0]", "box[1]"):
        assert name in str(caught.value)
    assert not cuda.named("cuTensorMapEncodeTiled")


def test_refusal_by_the_driver_shows_the_description(cuda: Any) -> None:
    """If the driver knows a rule that the description's check does not, the error shows the whole map."""
    cuda.results["cuTensorMapEncodeTiled"] = ["CUDA_ERROR_INVALID_VALUE"]
    with pytest.raises(DriverError, match=r"CUDA_ERROR_INVALID_VALUE.*TensorMap\(address="):
        encode(tiled())


def test_every_choice_has_an_enumerator(cuda: Any) -> None:
    """Element types, swizzles, fills and promotions of the description all exist in the driver's enumerations."""
    names = {"u8": "UINT8", "s32": "INT32", "f16": "FLOAT16", "bf16": "BFLOAT16", "f32_ftz": "FLOAT32_FTZ"}
    names |= {"tf32": "TFLOAT32", "16u4_align8B": "16U4_ALIGN8B", "16u6_align16B": "16U6_ALIGN16B"}
    for name, enumerator in names.items():
        code = ELEMENT_TYPES[name].code
        assert cuda.CUtensorMapDataType(code).name == f"CU_TENSOR_MAP_DATA_TYPE_{enumerator}"
    for swizzle in _SWIZZLES.values():
        assert hasattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}")


def test_rank_one_map_still_passes_an_array_of_strides(cuda: Any) -> None:
    """A vector has no strides, but the driver wants an array."""
    cuda.answers["cuTensorMapEncodeTiled"] = cuda.map_of(ONES)
    encode(TensorMap.tiled(0, "f32", (1024,), (), (64,)))
    ((_, _, _, _, strides, *_),) = cuda.named("cuTensorMapEncodeTiled")
    assert [int(stride) for stride in strides] == [0]
