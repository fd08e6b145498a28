"""Layouts, swizzles and tiles: pure index algebra that every layer above shares. Emits nothing."""

from tilekit.tensor.draw import Picture, picture_of_threads
from tilekit.tensor.dtypes import ElementType, element_type
from tilekit.tensor.layout import Layout, Tiler
from tilekit.tensor.nested import CoordinateError, IntTuple, LayoutError
from tilekit.tensor.swizzle import Swizzle, SwizzledLayout
from tilekit.tensor.tile_tensor import AddressSpace, TileTensor

__all__ = [
    "AddressSpace",
    "CoordinateError",
    "ElementType",
    "IntTuple",
    "Layout",
    "LayoutError",
    "Picture",
    "Swizzle",
    "SwizzledLayout",
    "TileTensor",
    "Tiler",
    "element_type",
    "picture_of_threads",
]
