"""Parameters: values, ``.param`` layout, patching."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.errors import ArgumentError
from tilekit.runtime.parameters import F32, S32, U16, U32, U64, Parameter, ParameterBlock, Pointer, TensorMap, pack

MAP = TensorMap.tiled(0x10000, "bf16", dims=(256, 128), strides=(512,), box=(64, 64), swizzle="128B")
SIZES = {U16: (2, 2), U32: (4, 4), U64: (8, 8), S32: (4, 4), F32: (4, 4), Pointer: (8, 8), TensorMap: (128, 64)}


def fake_encode(_: TensorMap) -> bytes:
    return bytes(range(128))


PARAMETERS = st.one_of(
    st.builds(U16, st.integers(0, 2**16 - 1)),
    st.builds(U32, st.integers(0, 2**32 - 1)),
    st.builds(U64, st.integers(0, 2**64 - 1)),
    st.builds(S32, st.integers(-(2**31), 2**31 - 1)),
    st.builds(F32, st.floats()),
    st.builds(Pointer, st.integers(0, 2**64 - 1)),
    st.just(MAP),
)


@given(st.lists(PARAMETERS, max_size=12))
def test_each_parameter_is_at_the_next_multiple_of_its_alignment(parameters: list[Parameter]) -> None:
    """The layout is the PTX ISA's: in order, aligned, no wider gap than alignment asks for."""
    packed = pack(parameters, fake_encode)
    end = 0
    for parameter, offset in zip(parameters, packed.offsets, strict=True):
        size, alignment = SIZES[type(parameter)]
        assert offset % alignment == 0
        assert 0 <= offset - end < alignment
        end = offset + size
    assert len(packed.data) == end


def test_layout_of_a_typical_kernel() -> None:
    """Bytes and offsets of a concrete list, written out by hand."""
    packed = pack([U32(7), MAP, S32(-1), Pointer(0xABCD), F32(1.5)], fake_encode)
    assert packed.offsets == (0, 64, 192, 200, 208)
    assert packed.data[:4] == b"\7\0\0\0"
    assert packed.data[64:192] == bytes(range(128))
    assert packed.data[192:] == struct.pack("<i4xQf", -1, 0xABCD, 1.5)


def test_block_is_aligned_and_its_pointers_reach_each_value() -> None:
    """The driver gets 64-byte aligned maps, and one pointer a parameter that leads to its bytes."""
    block = ParameterBlock([U32(7), MAP, Pointer(0xABCD)], fake_encode)
    addresses = (ctypes.c_void_p * 3).from_address(block.pointers)
    assert addresses[1] is not None
    assert addresses[1] % 64 == 0
    assert ctypes.c_uint32.from_address(addresses[0] or 0).value == 7
    assert ctypes.string_at(addresses[1], 128) == bytes(range(128))
    assert ctypes.c_uint64.from_address(addresses[2] or 0).value == 0xABCD


def test_patches_change_the_memory_the_pointers_reach() -> None:
    """A patch needs no repacking, and touches nothing beside its parameter."""
    block = ParameterBlock([U32(1), MAP, Pointer(2), U32(3)], fake_encode)
    start = block.pointers
    block.set_u32(0, np.uint32(10))  # type: ignore[arg-type]
    block.set_tensor_map(1, bytes(reversed(range(128))))
    block.set_pointer(2, 20)
    expected = struct.pack("<I60x128sQI", 10, bytes(reversed(range(128))), 20, 3)
    assert bytes(block) == expected
    assert block.pointers == start


def test_block_without_parameters() -> None:
    """A kernel without parameters packs to nothing."""
    block = ParameterBlock([], fake_encode)
    assert bytes(block) == b""
    assert len(block) == 0
    assert block.pointers


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: U32(-1), "nearest legal: 0"),
        (lambda: U32(2**32), "nearest legal: 4294967295"),
        (lambda: S32(-(2**31) - 1), "nearest legal: -2147483648"),
        (lambda: U16(2**16), "nearest legal: 65535"),
        (lambda: U64(-1), "nearest legal: 0"),
        (lambda: Pointer(1.0), "an integer"),
        (lambda: U32(True), "an integer"),
        (lambda: F32("1"), "number"),
        (lambda: pack([3], fake_encode), r"parameters\[0\]"),
        (lambda: pack([MAP] * 257, fake_encode), "at most 32764"),
        (lambda: ParameterBlock([U32(0)], fake_encode).set_pointer(0, 1), "is a U32, not a Pointer"),
        (lambda: ParameterBlock([U32(0)], fake_encode).set_u32(1, 1), "0 to 0"),
        (lambda: ParameterBlock([U32(0)], fake_encode).set_u32(0, -5), "nearest legal: 0"),
        (lambda: ParameterBlock([MAP], fake_encode).set_tensor_map(0, b"x"), "128 bytes"),
    ],
)
def test_illegal_parameters_are_refused(make: object, fact: str) -> None:
    """A value out of range or of the wrong kind is refused where it is given, with what is legal."""
    with pytest.raises(ArgumentError, match=fact):
        make()  # type: ignore[operator]


def test_f32_beyond_single_precision_becomes_infinite() -> None:
    """A double too large for f32 packs as the infinity of its sign, as a conversion would give."""
    assert pack([F32(-1e300)], fake_encode).data == struct.pack("<f", -np.inf)


def test_alignment_of_a_map_after_small_values() -> None:
    """A map after one u32 starts at 64, as ptxas lays out `.param .align 64`."""
    assert pack([U32(0), MAP], fake_encode).offsets == (0, 64)
