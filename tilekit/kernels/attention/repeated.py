"""Arrays that repeat one batch entry or one head, with a stride of 0: what the copy engine is told instead.

A tensor map has no stride of 0. An axis that repeats has an extent of 1 there, and loads leave its coordinate at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilekit.arrays import ArrayView
from tilekit.tiles.heads import REPEATABLE


def one_head(views: Mapping[str, ArrayView]) -> dict[str, ArrayView]:
    """The same arrays, where all heads of keys and of values are one: with a single head of both, that queries share.

    Few queries of all heads are then rows of one tile.
    """
    if all(_repeats(views[name], REPEATABLE["head"]) for name in "kv"):
        return {**views} | {name: replace(views[name], shape=_with_one_head(views[name].shape)) for name in "kv"}
    return {**views}


def repeated_axes(views: Mapping[str, ArrayView], *, paged: bool) -> tuple[tuple[str, str], ...]:
    """Which axes of which arrays repeat; blocks of a cache that is `paged` are numbered by the table, batch or no."""
    return tuple(
        (name, axis)
        for name in "qkv"
        for axis, place in REPEATABLE.items()
        if _repeats(views[name], place) and not (paged and name != "q" and axis == "batch")
    )


def _repeats(view: ArrayView, axis: int) -> bool:
    return 0 not in view.shape and view.shape[axis] > 1 and view.strides[axis] == 0


def _with_one_head(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:2], 1, *shape[3:])
