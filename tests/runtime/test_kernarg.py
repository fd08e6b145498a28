"""Laying arguments out as a code object's metadata says."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tilekit.errors import AssemblerError
from tilekit.runtime.kernarg import KernargLayout, no_tensor_map
from tilekit.runtime.parameters import U32, Pointer


def test_slots_are_where_the_metadata_has_them() -> None:
    """Some compilers pad every argument to 16 bytes; hidden ones are the runtime's, and stay zero."""
    arguments = [
        {".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
        {".offset": 16, ".size": 4, ".value_kind": "by_value"},
        {".offset": 32, ".size": 4, ".value_kind": "hidden_block_count_x"},
    ]
    layout = KernargLayout.of("k", {".kernarg_segment_size": 48, ".args": arguments})
    packed = layout.pack([Pointer(5), U32(6)], no_tensor_map)
    assert packed.data == struct.pack("<QxxxxxxxxI", 5, 6) + bytes(28)
    assert packed.offsets == (0, 16)


@pytest.mark.parametrize(
    "arguments", [[{".size": 8}], [{".offset": 0}], [{".offset": "here", ".size": 8}], [7], 7], ids=str
)
def test_metadata_that_is_damaged_is_not_guessed_at(arguments: Any) -> None:
    """Neither an offset nor a size is made up."""
    with pytest.raises(AssemblerError, match="metadata of k does not list its arguments as it should") as caught:
        KernargLayout.of("k", {".kernarg_segment_size": 48, ".args": arguments})
    assert caught.value.code == "TK-ASM-010"
