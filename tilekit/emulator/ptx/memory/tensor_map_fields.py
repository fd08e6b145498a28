"""One field of a tensor map replaced in its 128 bytes, as ``tensormap.replace`` does (PTX ISA 9.7.9.27.6).

128 zero bytes count as a map of which no field has been set: compilers that build maps on the device start from them.
Whether the whole is a legal map is checked where it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tilekit.emulator.ptx.memory.swizzle import Swizzle
from tilekit.emulator.ptx.memory.tensor_map import CODES, INTERLEAVES, OOB_FILLS, SWIZZLES
from tilekit.emulator.ptx.memory.tensor_map_encoding import blank_encoding, open_encoding, seal_encoding

_ELEMENTS = (
    *("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32", "tf32_ftz"),
    *("16u4_align8B", "16u4_align16B", "16u6_align16B"),
)
_MODES: tuple[Swizzle | None, ...] = (None, "32B", "64B", "128B")
_ATOMS: tuple[Swizzle, ...] = ("128B", "128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B")
_PLACES = {"global_address": 7, "global_dim": 8, "global_stride": 13, "box_dim": 17, "element_stride": 22}
_LENGTHS = {"global_address": 1, "global_dim": 5, "global_stride": 4, "box_dim": 5, "element_stride": 5}
_CODES: dict[str, tuple[int, Sequence[int]]] = {
    "rank": (2, (1, 2, 3, 4, 5)),
    "elemtype": (1, [CODES[name] for name in _ELEMENTS]),
    "interleave_layout": (3, range(len(INTERLEAVES))),
    "swizzle_mode": (4, [SWIZZLES.index(mode) for mode in _MODES]),
    "swizzle_atomicity": (4, [SWIZZLES.index(mode) for mode in _ATOMS]),
    "fill_mode": (5, range(len(OOB_FILLS))),
}
"""Place of each field that takes a code, and what the encoding writes for each code."""


def replace_field(data: bytes, field: str, ordinal: int, value: int) -> bytes:
    """Return the map's bytes with one field changed.

    Parameters
    ----------
    field
        As the instruction writes it, such as ``global_dim``.
    ordinal
        Dimension, for the fields that have one a dimension; else 0.
    value
        As the instruction takes it: the rank less one, strides in bytes, codes of modes and types.

    Raises
    ------
    ValueError
        If the bytes are no map, or the ordinal or the value is not one that the field can hold.
    """
    fields = open_encoding(data) if any(data) else blank_encoding()
    if field in _CODES:
        place, meanings = _CODES[field]
        if value >= len(meanings):
            raise ValueError(f"{field} = {value}: must lie in 0 to {len(meanings) - 1}")
        fields[place] = meanings[value]
    else:
        if ordinal >= _LENGTHS[field]:
            raise ValueError(f"{field} of dimension {ordinal}: must lie in 0 to {_LENGTHS[field] - 1}")
        fields[_PLACES[field] + ordinal] = value
    try:
        return seal_encoding(fields)
    except struct.error:
        raise ValueError(f"{field} = {value}: too large") from None
