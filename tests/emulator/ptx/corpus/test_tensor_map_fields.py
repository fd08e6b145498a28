"""Tensor maps built field by field, as `tensormap.replace` does."""

from __future__ import annotations

import pytest

from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.emulator.ptx.memory.tensor_map_fields import replace_field

MAP = TensorMap.tiled(0x1000, "bf16", (96, 40, 7), (192, 8192), (64, 8, 1), swizzle="128B", oob_fill="nan")
FIELDS = [
    ("swizzle_mode", 0, 3), ("rank", 0, 2), ("elemtype", 0, 10), ("interleave_layout", 0, 0), ("fill_mode", 0, 1),
    ("global_address", 0, 0x1000), ("box_dim", 0, 64), ("box_dim", 1, 8), ("box_dim", 2, 1),
    ("global_dim", 0, 96), ("global_dim", 1, 40), ("global_dim", 2, 7), ("global_stride", 0, 192),
    ("global_stride", 1, 8192), *(("element_stride", i, 1) for i in range(3)),
]  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
def test_zeros_become_a_map(order: int) -> None:
    """Replacing every field of 128 zeros, in either order, gives the map that the host would have encoded."""
    data = bytes(128)
    for field, ordinal, value in FIELDS[::order]:
        data = replace_field(data, field, ordinal, value)
    assert TensorMap.decode(data) == MAP


def test_one_field_of_a_map() -> None:
    """A map from the host keeps what is not replaced; a swizzle's atoms refine its mode."""
    changed = TensorMap.decode(replace_field(MAP.encode(), "global_dim", 1, 33))
    assert changed.dims == (96, 33, 7)
    assert changed.box == MAP.box
    assert TensorMap.decode(replace_field(MAP.encode(), "swizzle_atomicity", 0, 1)).swizzle == "128B_atom_32B"


def test_an_unfinished_map_is_refused_where_it_is_used() -> None:
    """A map that lacks fields, or that became illegal, is no tensor map."""
    with pytest.raises(ValueError, match="not a legal tiled tensor map"):
        TensorMap.decode(replace_field(bytes(128), "rank", 0, 1))
    with pytest.raises(ValueError, match=r"strides\[0\] = 200"):
        TensorMap.decode(replace_field(MAP.encode(), "global_stride", 0, 200))


@pytest.mark.parametrize(
    ("field", "ordinal", "value", "message"),
    [
        ("elemtype", 0, 16, "elemtype = 16: must lie in 0 to 15"),
        ("rank", 0, 5, "rank = 5: must lie in 0 to 4"),
        ("global_stride", 4, 16, "global_stride of dimension 4: must lie in 0 to 3"),
        ("box_dim", 0, 1 << 20, "box_dim = 1048576: too large"),
    ],
)
def test_bad_values(field: str, ordinal: int, value: int, message: str) -> None:
    """What a field cannot hold is refused at the instruction."""
    with pytest.raises(ValueError, match=message):
        replace_field(MAP.encode(), field, ordinal, value)


def test_what_is_no_map() -> None:
    """Bytes that are neither zeros nor a map cannot be edited."""
    with pytest.raises(ValueError, match="no tensor map"):
        replace_field(b"\1" * 128, "rank", 0, 1)
