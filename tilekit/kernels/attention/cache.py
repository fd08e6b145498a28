"""The arguments that make keys and values a cache: how many are in use, and in which blocks they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilekit.arrays import ArrayView, host_array, view_of_int32
from tilekit.errors import ArgumentError

PAGE_STEP = 8
"""Keys that a block of the cache is a multiple of: an image's swizzle repeats after as many rows."""


def cache_views(
    key_lengths: Any, block_table: Any, batch: int, k: ArrayView, *, memory: bool = True
) -> dict[str, ArrayView]:
    """The views of a call's `key_lengths` and `block_table`, those that are given, checked with the keys `k`.

    What arrays in host memory hold is checked too, where they have `memory`; what the device holds is clamped there.
    None are given where both are None.

    Raises
    ------
    ArgumentError
        ``TK-ATT-007``.
    """
    views: dict[str, ArrayView] = {}
    if key_lengths is None and block_table is None:
        return views
    capacity = k.shape[1]
    if block_table is not None:
        if key_lengths is None:
            raise ArgumentError.of(
                "key_lengths", None, legal="with a block_table, the keys in use of each batch entry",
                nearest="an int32 array of (B,)", code="TK-ATT-007",
            )  # fmt: skip
        views["block_table"] = table = _of_entries("block_table", block_table, 2, batch)
        blocks, size = k.shape[0], k.shape[1]
        if size % PAGE_STEP or not size:
            nearest = max(PAGE_STEP, -(-size // PAGE_STEP) * PAGE_STEP)
            raise ArgumentError.of(
                "k's block size", size, legal=f"multiples of {PAGE_STEP}", nearest=nearest, code="TK-ATT-007"
            )
        for name, count in (("k's blocks", blocks), ("block_table's columns", table.shape[1])):
            if count == 0:
                raise ArgumentError.of(name, 0, legal="from 1 on", nearest=1, code="TK-ATT-007")
        if table.shape[1] > 1 and table.strides[1] != 1:
            raise ArgumentError.of(
                "block_table's stride of columns", table.strides[1], legal="1", nearest="a copy in C order",
                code="TK-ATT-007",
            )  # fmt: skip
        if batch > 1 and table.strides[0] < 0:
            raise ArgumentError.of(
                "block_table's stride of rows", table.strides[0], legal="from 0 on", nearest="a copy in C order",
                code="TK-ATT-007",
            )  # fmt: skip
        capacity = table.shape[1] * size
    views["key_lengths"] = lengths = _of_entries("key_lengths", key_lengths, 1, batch)
    if batch > 1 and lengths.strides[0] != 1:
        raise ArgumentError.of(
            "key_lengths' stride", lengths.strides[0], legal="1", nearest="a copy in C order", code="TK-ATT-007"
        )
    if memory and lengths.device == "cpu":
        _check_held(views, k, capacity)
    return views


def _of_entries(name: str, array: Any, dimensions: int, batch: int) -> ArrayView:
    """View whole numbers, some for each batch entry."""
    view = view_of_int32(array, name, code="TK-ATT-007")
    legal = f"({batch},)" if dimensions == 1 else f"({batch}, blocks of an entry)"
    if len(view.shape) != dimensions or view.shape[0] != batch:
        raise ArgumentError.of(f"{name}'s shape", tuple(view.shape), legal=legal, nearest=legal, code="TK-ATT-007")
    return view


def _check_held(views: dict[str, ArrayView], k: ArrayView, capacity: int) -> None:
    """Check the numbers of arrays in host memory."""
    lengths = host_array(views["key_lengths"]).astype(np.int64)
    wrong = np.flatnonzero((lengths < 0) | (lengths > capacity))
    if wrong.size:
        at = int(wrong[0])
        raise ArgumentError.of(
            f"key_lengths[{at}]", int(lengths[at]), legal=f"0 to {capacity}, the keys there is room for",
            nearest=int(np.clip(lengths[at], 0, capacity)), code="TK-ATT-007",
        )  # fmt: skip
    if "block_table" not in views:
        return
    table = host_array(views["block_table"])
    size, blocks = k.shape[1], k.shape[0]
    used = np.arange(table.shape[1])[None] * size < lengths[:, None]
    outside = np.argwhere(used & ((table < 0) | (table >= blocks)))
    if outside.size:
        row, column = (int(n) for n in outside[0])
        raise ArgumentError.of(
            f"block_table[{row}, {column}]", int(table[row, column]), legal=f"0 to {blocks - 1}, the blocks of k",
            nearest=int(np.clip(table[row, column], 0, blocks - 1)), code="TK-ATT-007",
        )  # fmt: skip
