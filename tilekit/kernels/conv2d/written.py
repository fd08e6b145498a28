"""A Python epilogue of a convolution: operands as those of a product, and what is stored beside the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from tilekit.arrays import ArrayView, c_strides, is_array, require_output, view_of
from tilekit.dtypes import F32, DType
from tilekit.epilogue.graph import Graph
from tilekit.epilogue.python import EpilogueCall
from tilekit.errors import ArgumentError
from tilekit.kernels.conv2d.pixels import as_rows, of_filters, read_pixels
from tilekit.kernels.written_arguments import require_as_many, require_behind

Extents: TypeAlias = tuple[int, int, int, int]
"""Of the result: (N, P, Q, K)."""


def read_operands(call: EpilogueCall, extents: Extents, groups: int) -> dict[int, ArrayView]:
    """A Python epilogue's operands as a product's: like the result, a value a filter, or a value a pixel."""
    views: dict[int, ArrayView] = {}
    filters, function = extents[3], call.function
    for place, (name, kind, given) in enumerate(zip(function.operands, function.kinds, call.operands, strict=True)):
        shape = tuple(given.shape) if is_array(given) and not isinstance(given, np.generic) else ()
        if kind == "s32" or not shape:
            continue
        view = read_pixels(given, name) if len(shape) == 4 else view_of(given, name)
        if prod(shape) == 1 and len(shape) <= 4:
            views[place] = replace(view, shape=(1,), strides=(1,))
        elif view.shape in (extents, (*extents[:3], 1)):
            views[place] = as_rows(view, name, groups if view.shape == extents else 1)
        elif len(shape) <= 4 and prod(shape) == filters and filters in (view.shape[-1], shape[-1]):
            flat = replace(view, shape=(filters,), strides=(view.strides[view.shape.index(filters)],))
            vector, each = of_filters(flat, name, filters, groups), filters // groups
            views[place] = replace(vector, shape=(groups, 1, each), strides=(each, 0, 1)) if groups > 1 else vector
        else:
            raise ArgumentError(
                f"{name} has shape {shape}: with conv2d legal are the result's, {extents} (N, P, Q, K), one value a "
                f"filter, {(filters,)} or {(1, 1, 1, filters)}, one a pixel, {(*extents[:3], 1)}, and one element",
                code="TK-EPI-004",
            )
    return views


@dataclass(frozen=True)
class Stored:
    """What is stored beside a convolution's result, as its caller knows it.

    Attributes
    ----------
    shape, dtype
        Of the array.
    pixels
        Whether it is like the result; else it is a vector, or one a group.
    """

    shape: tuple[int, ...]
    dtype: DType
    pixels: bool


def stored_beside(graph: Graph, extents: Extents, dtype: DType, groups: int) -> list[Stored]:
    """What a graph stores beside a result of type `dtype`, in its order.

    A total of columns has a value a filter; one of rows a value a pixel, and of several groups so many each, which lie
    behind each other.
    """
    totals = {"column": extents[3:], "row": extents[:3] if groups == 1 else (groups, *extents[:3])}
    return [
        Stored(extents, graph.dtypes[index] or dtype, pixels=True)
        if kind == "output"
        else Stored(totals[graph.totals[index].along], F32, pixels=False)
        for kind, index in graph.order[1:]
    ]


def read_stored(graph: Graph, arrays: Sequence[Any], extents: Extents, dtype: DType, groups: int) -> list[ArrayView]:
    """Check arrays for what is `stored_beside` the result, and view them as a kernel does, which knows matrices.

    Raises
    ------
    ArgumentError
        ``TK-EPI-004`` for too few or too many, and for totals that lie apart; of an array what its result would raise.
    """
    require_as_many(graph, arrays)
    views = []
    for index, (stored, array) in enumerate(zip(stored_beside(graph, extents, dtype, groups), arrays, strict=True), 1):
        name = f"out[{index}]"
        view = read_pixels(array, name) if stored.pixels else view_of(array, name)
        require_output(view, stored.shape, stored.dtype, (), name)
        if stored.pixels:
            views.append(as_rows(view, name, groups))
            continue
        require_behind(view, name)
        size = prod(stored.shape)
        shape = (size,) if groups == 1 else (groups, size // groups)
        views.append(replace(view, shape=shape, strides=c_strides(shape)))
    return views
