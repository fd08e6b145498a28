"""The element types of tensor maps and how they lie in memory (CUDA driver API, ``CUtensorMapDataType``)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ELEMENT_TYPES", "ElementType"]


@dataclass(frozen=True)
class ElementType:
    """How elements of one type lie in global and in shared memory.

    Elements are moved in atoms: one element, except for the packed 4- and 6-bit types.

    Attributes
    ----------
    name
        tilekit's name of the ``CUtensorMapDataType``.
    code
        Value of the driver's enumeration.
    atom
        Elements in an atom.
    global_bytes, shared_bytes
        Size of an atom on either side. Where they differ, the rest of the shared atom is a gap of undefined bytes.
    floating
        Whether out-of-bounds elements may be filled with NaN.
    """

    name: str
    code: int
    atom: int
    global_bytes: int
    shared_bytes: int
    floating: bool


ELEMENT_TYPES: dict[str, ElementType] = {
    element.name: element
    for element in (
        ElementType("u8", 0, 1, 1, 1, False),
        ElementType("u16", 1, 1, 2, 2, False),
        ElementType("u32", 2, 1, 4, 4, False),
        ElementType("s32", 3, 1, 4, 4, False),
        ElementType("u64", 4, 1, 8, 8, False),
        ElementType("s64", 5, 1, 8, 8, False),
        ElementType("f16", 6, 1, 2, 2, True),
        ElementType("f32", 7, 1, 4, 4, True),
        ElementType("f64", 8, 1, 8, 8, True),
        ElementType("bf16", 9, 1, 2, 2, True),
        ElementType("f32_ftz", 10, 1, 4, 4, True),
        ElementType("tf32", 11, 1, 4, 4, True),
        ElementType("tf32_ftz", 12, 1, 4, 4, True),
        ElementType("16u4_align8B", 13, 2, 1, 1, False),
        ElementType("16u4_align16B", 14, 16, 8, 16, False),
        ElementType("16u6_align16B", 15, 16, 12, 16, False),
    )
}
"""Element types by tilekit's name, in the order of the driver's enumeration."""
