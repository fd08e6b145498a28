"""Arrays of a convolution, channels last: images, filters, results; pixels as rows of a matrix, or of one a group."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tilekit.arrays import ArrayView, c_strides, view_of
from tilekit.errors import ArgumentError
from tilekit.kernels.conv2d.problem import one_pitch


def read_pixels(array: Any, name: str) -> ArrayView:
    """View images or filters with their channels last: torch's have them second."""
    view = view_of(array, name)
    if len(view.shape) != 4:
        layout = {"w": "(K, R, S, C)"}.get(name, "(N, H, W, C)")
        raise ArgumentError(
            f"{name} has shape {view.shape}: conv2d takes {layout}, of torch with channels second; nearest: "
            "reshape it to four dimensions",
            code="TK-CONV-001",
        )
    if view.library == "torch":
        shape, strides = (tuple(numbers[axis] for axis in (0, 2, 3, 1)) for numbers in (view.shape, view.strides))
        view = replace(view, shape=shape, strides=strides)
    if 0 in view.shape:
        return replace(view, strides=c_strides(view.shape))
    if (view.shape[3] > 1 and view.strides[3] != 1) or min(view.strides) < 0:
        way = f"{'cupy' if view.library == 'cupy' else 'numpy'}.ascontiguousarray({name})"
        if view.library == "torch":
            way = f"{name}.contiguous(memory_format=torch.channels_last)"
        raise ArgumentError(
            f"{name} has strides {view.strides} (elements; channels last): its channels must lie behind each other, "
            f"and nothing run backwards. It would have to be copied; pass {way}",
            code="TK-CONV-005",
        )
    return view


def as_rows(view: ArrayView, name: str, groups: int) -> ArrayView:
    """Pixels as rows of a matrix, or of one a group."""
    *extents, channels = view.shape
    found = one_pitch(view)
    if found is None:
        raise ArgumentError(
            f"{name} has strides {view.strides} (elements; channels last): its pixels must lie equally far apart; pass "
            f"a whole array, and copy the part that is needed",
            code="TK-CONV-005",
        )
    if groups == 1:
        return replace(view, shape=(prod(extents), channels), strides=(found, 1))
    each = channels // groups
    return replace(view, shape=(groups, prod(extents), each), strides=(max(1, each), found, 1))


def of_filters(view: ArrayView, name: str, count: int, groups: int) -> ArrayView:
    """A value a filter; of groups, a row of values each."""
    if view.shape != (count,) or (count > 1 and view.strides != (1,)):
        raise ArgumentError(
            f"{name} has shape {view.shape} and strides {view.strides}: one contiguous value for each of the {count} "
            f"filters is needed, shape ({count},)",
            code="TK-MM-017",
        )
    each = count // groups
    return view if groups == 1 else replace(view, shape=(groups, each), strides=(each, 1))
