"""Element types, as far as offsets care: a name and a width in bits."""

from difflib import get_close_matches
from typing import NamedTuple, Protocol

from tilekit.tensor.nested import LayoutError


class ElementType(Protocol):
    """Anything with a name and a width in bits can be the element type of a tile."""

    @property
    def name(self) -> str:
        """The type's name, as in PTX without the leading dot."""

    @property
    def bits(self) -> int:
        """How many bits of storage one element takes."""


class NamedType(NamedTuple):
    """An element type known by its name alone."""

    name: str
    bits: int


_BITS = {
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "tf32": 32,  # 19 significant bits, stored in a 32-bit word
    "e4m3": 8,
    "e5m2": 8,
    "e4m3fnuz": 8,
    "e5m2fnuz": 8,
    "e2m1": 4,
    "e2m1x2": 8,
    "ue8m0": 8,
    "s8": 8,
    "u8": 8,
    "s32": 32,
    "u32": 32,
    "b16": 16,
    "b32": 32,
    "b64": 64,
}


def element_type(dtype: ElementType | str) -> ElementType:
    """Return the element type that `dtype` names, or `dtype` itself if it is one already.

    Raises
    ------
    LayoutError
        If the name is unknown, or the object has no positive width that is a power of two.

    Examples
    --------
    >>> element_type("bf16").bits
    16
    """
    if isinstance(dtype, str):
        if dtype not in _BITS:
            close = get_close_matches(dtype, _BITS, 1, cutoff=0.3)
            hint = f"; nearest: {close[0]!r}" if close else ""
            raise LayoutError(f"dtype {dtype!r} is unknown: it must be one of {', '.join(_BITS)}{hint}")
        return NamedType(dtype, _BITS[dtype])
    bits = getattr(dtype, "bits", None)
    if not isinstance(bits, int) or bits < 1 or bits & (bits - 1):
        raise LayoutError(f"dtype is {dtype!r}; it must be a name or have .name and .bits, a power of two")
    return dtype
