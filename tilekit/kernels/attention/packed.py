"""The argument that packs sequences of their own lengths into one array: where each begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilekit.arrays import ArrayView, host_array, view_of_int32
from tilekit.errors import ArgumentError

STARTS = {"query_starts": "q", "key_starts": "k"}
"""As components call the starts of sequences, and the arrays that they are in."""


def packed_views(lengths: Any, positions: Mapping[str, int], *, memory: bool = True) -> dict[str, ArrayView]:
    """The views of a call's `lengths`, one array or two, checked; `positions` has how many q and k have.

    What arrays in host memory hold is checked too, where they have `memory`; what the device holds is clamped there.

    Raises
    ------
    ArgumentError
        ``TK-ATT-008``.
    """
    pair = isinstance(lengths, tuple | list)
    if pair and len(lengths) != 2:
        raise ArgumentError.of(
            "lengths", f"{len(lengths)} arrays", legal="one array, or two: of q, and of k and v",
            nearest=2, code="TK-ATT-008",
        )  # fmt: skip
    given = dict(zip(STARTS, lengths if pair else (lengths, lengths), strict=True))
    names = dict(zip(STARTS, ("lengths[0]", "lengths[1]") if pair else ("lengths", "lengths"), strict=True))
    if not pair and positions["q"] != positions["k"]:
        raise ArgumentError.of(
            "lengths", "one array", legal=f"two, where q has {positions['q']} positions and k has {positions['k']}",
            nearest="(lengths of q, lengths of k)", code="TK-ATT-008",
        )  # fmt: skip
    views = {key: view_of_int32(array, names[key], code="TK-ATT-008") for key, array in given.items()}
    for key, view in views.items():
        _check_layout(names[key], view)
    counts = [view.shape[0] - 1 for view in views.values()]
    if counts[0] != counts[1]:
        raise ArgumentError.of(
            "lengths[1]'s shape", views["key_starts"].shape, legal=f"that of lengths[0], {views['query_starts'].shape}",
            nearest=views["query_starts"].shape, code="TK-ATT-008",
        )  # fmt: skip
    for key, view in views.items():
        if memory and view.device == "cpu":
            _check_held(names[key], view, STARTS[key], positions[STARTS[key]])
    return views


def heads_view(view: ArrayView) -> ArrayView:
    """An array (position, head, element) as one batch entry."""
    return replace(view, shape=(1, *view.shape), strides=(view.shape[0] * view.strides[0], *view.strides))


def _check_layout(name: str, view: ArrayView) -> None:
    if len(view.shape) != 1 or view.shape[0] < 2:
        legal = "(B + 1,): where each of B sequences begins, and where the last ends"
        raise ArgumentError.of(f"{name}'s shape", tuple(view.shape), legal=legal, nearest=(2,), code="TK-ATT-008")
    if view.strides[0] != 1:
        raise ArgumentError.of(
            f"{name}'s stride", view.strides[0], legal="1", nearest="a copy in C order", code="TK-ATT-008"
        )


def _check_held(name: str, view: ArrayView, array: str, positions: int) -> None:
    """Check the numbers of an array in host memory."""
    starts = host_array(view).astype(np.int64)
    at, legal, nearest = None, "", 0
    falling = np.flatnonzero(np.diff(starts) < 0)
    if starts[0]:
        at, legal, nearest = 0, "0, where the first sequence begins", 0
    elif falling.size:
        at = int(falling[0]) + 1
        nearest = int(starts[at - 1])
        legal = f"from {nearest} on, where the sequence begins"
    elif starts[-1] != positions:
        at, legal, nearest = len(starts) - 1, f"{positions}, the positions of {array}", positions
    if at is not None:
        raise ArgumentError.of(f"{name}[{at}]", int(starts[at]), legal=legal, nearest=nearest, code="TK-ATT-008")
