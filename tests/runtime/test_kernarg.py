"""Laying arguments out as a code object's metadata says."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tilekit.errors import ArgumentError, AssemblerError
from tilekit.runtime.kernarg import KernargLayout, no_tensor_map
from tilekit.runtime.parameters import U32, BufferDescriptor, Pointer
from tilekit.runtime.prepared import LaunchConfig

SHAPE = LaunchConfig((5, 6, 7), (64, 2, 3), shared_bytes=1024)


def test_slots_are_where_the_metadata_has_them() -> None:
    """Some compilers pad every argument to 16 bytes; hidden ones are filled in."""
    arguments = [
        {".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
        {".offset": 16, ".size": 4, ".value_kind": "by_value"},
        {".offset": 32, ".size": 4, ".value_kind": "hidden_block_count_x"},
    ]
    layout = KernargLayout.of("k", {".kernarg_segment_size": 48, ".args": arguments})
    packed = layout.pack([Pointer(5), U32(6)], no_tensor_map, SHAPE)
    assert packed.data == struct.pack("<QxxxxxxxxI", 5, 6) + bytes(12) + struct.pack("<I", 5) + bytes(12)
    assert packed.offsets == (0, 16)


def test_hidden_arguments_are_those_of_the_launch() -> None:
    """Counts, sizes, dimensions and dynamic LDS, in fields of their sizes; what only a runtime has is zero."""
    kinds = [(f"{what}_{axis}", size) for what, size in (("block_count", 4), ("group_size", 2), ("remainder", 2))
             for axis in "xyz"]  # fmt: skip
    kinds += [("grid_dims", 2), ("dynamic_lds_size", 4), ("printf_buffer", 8), ("global_offset_x", 8)]
    places, at = [], 0
    for kind, size in kinds:
        places.append({".offset": at, ".size": size, ".value_kind": f"hidden_{kind}"})
        at += size
    layout = KernargLayout.of("k", {".kernarg_segment_size": at, ".args": places})
    data = layout.of_launch(SHAPE)([], no_tensor_map).data
    assert struct.unpack("<3I6HHIQQ", data) == (5, 6, 7, 64, 2, 3, 0, 0, 0, 3, 1024, 0, 0)


LISTED = KernargLayout.of(
    "k",
    {
        ".kernarg_segment_size": 32,
        ".args": [
            {".name": "out", ".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
            {".name": "wide", ".offset": 8, ".size": 8, ".value_kind": "by_value"},
            {".name": "words", ".offset": 16, ".size": 16, ".value_kind": "by_value"},
        ],
    },
)


def test_parameters_of_another_kind() -> None:
    """A pointer's place takes a pointer; other places of 8 bytes take what has 8 bytes."""
    words = BufferDescriptor(0x1234_5678_9ABC, 256)
    packed = LISTED.pack([Pointer(1), Pointer(2), words], no_tensor_map, SHAPE)
    assert packed.data == struct.pack("<QQ4I", 1, 2, 0x5678_9ABC, 0x1234, 256, 0x20000)
    with pytest.raises(ArgumentError, match=r"parameters\[0\].*'BufferDescriptor of 16 bytes'.*a Pointer, 8 bytes at"):
        LISTED.pack([words, Pointer(2), words], no_tensor_map, SHAPE)
    pair = KernargLayout.of("k", {".kernarg_segment_size": 16, ".args": [
        {".offset": 0, ".size": 16, ".value_kind": "global_buffer"}]})  # fmt: skip
    with pytest.raises(ArgumentError, match="a Pointer, 16 bytes at offset 0"):
        pair.pack([words], no_tensor_map, SHAPE)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_without_a_list_the_segment_must_be_full(count: int) -> None:
    """Padding apart: a missing argument would be a null pointer, or zero."""
    layout = KernargLayout.of("k", {".kernarg_segment_size": 32})
    with pytest.raises(ArgumentError, match="32 bytes, the kernarg segment of k, less its padding") as caught:
        layout.pack([Pointer(1)] * count, no_tensor_map, SHAPE)
    assert caught.value.code == "TK-PAR-004"
    assert layout.pack([Pointer(1)] * 3, no_tensor_map, SHAPE).data == struct.pack("<QQQQ", 1, 1, 1, 0)


def test_a_place_outside_of_the_segment() -> None:
    """Metadata that contradicts itself is refused when it is read."""
    for offset in (-4, 30, 1 << 40):
        place = {".offset": offset, ".size": 4, ".value_kind": "by_value"}
        with pytest.raises(AssemblerError, match="of a segment of 32"):
            KernargLayout.of("k", {".kernarg_segment_size": 32, ".args": [place]})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"records": 1 << 32}, "4294967296; legal: an integer, 0 to 4294967295; nearest.*4294967295"),
        ({"records": -1}, "nearest.*0"),
        ({"address": 1 << 48}, "address of a buffer descriptor"),
        ({"address": (1 << 48) - 8, "records": 9}, "at most 8 bytes behind address 0xfffffffffff8"),
        ({"stride": 1 << 14}, "stride of a buffer descriptor"),
        ({"stride": 64, "records": 1 << 26}, "less than 4 GB.*a descriptor each.*67108863 records"),
        ({"format": 0}, "bits 18:15 are not all 0.*0x20000"),
        ({"format": 1 << 30}, "format of a buffer descriptor"),
        ({"records": 1.5}, "an integer"),
        ({"records": True}, "an integer"),
        ({"records": np.arange(2)}, "an integer"),
        ({"address": int}, "an integer"),
    ],
)
def test_descriptors_that_reach_too_far(values: dict[str, Any], says: str) -> None:
    """Offsets have 32 bits and addresses 48; what a descriptor cannot say is refused where it is made."""
    with pytest.raises(ArgumentError, match="(?s)" + says) as caught:
        BufferDescriptor(**{"address": 0x1000, "records": 64, **values})
    assert caught.value.code == "TK-PAR-001"


DAMAGED: list[Any] = [
    [{".size": 8}],
    [{".offset": 0}],
    [{".offset": "here", ".size": 8}],
    [{".offset": float("inf"), ".size": 8}],
    [{".offset": 8, ".size": -4}],
    [7],
    7,
]


@pytest.mark.parametrize("arguments", DAMAGED, ids=str)
def test_metadata_that_is_damaged_is_not_guessed_at(arguments: Any) -> None:
    """Neither an offset nor a size is made up."""
    with pytest.raises(AssemblerError, match="metadata of k does not list its arguments as it should") as caught:
        KernargLayout.of("k", {".kernarg_segment_size": 48, ".args": arguments})
    assert caught.value.code == "TK-ASM-010"
    with pytest.raises(AssemblerError, match="a segment of"):
        KernargLayout.of("k", {".kernarg_segment_size": 1 << 40})
