"""Gradients of convolutions that are products of what is there, without a copy.

The result's gradient is a matrix of a row a pixel; where filters are one place, without stride and padding, so are the
images, and filters are one of a row a filter. Either way of reading them is one that the matmul takes. Of other filters
the copy engine finds the images' pixels. A product whose sum goes over all pixels is cut into
parts where it would keep but a few multiprocessors busy, and these are added by a small kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tilekit.arrays import ArrayView, new_arrays, view_of
from tilekit.calls.matmul import matmul
from tilekit.dtypes import F32
from tilekit.kernels.addition import add_parts
from tilekit.kernels.conv2d.filter_gradient import FilterGradientArguments, parts_of
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.problem import one_pitch
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.family import select
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.tma import TMA_ALIGNMENT

__all__ = ["images_product", "is_product", "launch", "weights_over_pixels", "weights_product"]


def is_product(axes: Sequence[Axis], target: Target, *operands: tuple[ArrayView, int]) -> bool:
    """Whether each pixel of the result is made of one, and the copy engine reads both operands, whichever way round.

    An operand comes with the groups that its channels are in.
    """
    alone = all((axis.taps, axis.step, axis.pad) == (1, 1, 0) for axis in axes)
    return alone and all(
        view.dtype.bits in target.transposed_bits
        and 0 not in view.shape
        and _pitch(view)
        and not (view.address | _pitch(view) * view.dtype.bytes) % TMA_ALIGNMENT
        and (groups == 1 or not view.shape[3] // groups * view.dtype.bytes % TMA_ALIGNMENT)
        for view, groups in operands
    )


def images_product(dy: tuple[Any, ArrayView], w: tuple[Any, ArrayView], found: Any, groups: int, **how: Any) -> None:
    """Compute the images' gradient: pixels by filters, times filters by channels.

    Arrays come with their views, channels last; ``found`` is new. `how` is what `tilekit.matmul` takes beside.
    """
    pixels, filters, channels = prod(dy[1].shape[:3]), w[1].shape[0] // groups, w[1].shape[3]
    out = view_of(found)
    a = _matrix(*dy, (groups, pixels, filters), (filters, _pitch(dy[1]), 1))
    b = _matrix(*w, (groups, filters, channels), (filters * w[1].strides[0], w[1].strides[0], 1))
    matmul(a, b, out=_matrix(found, out, (groups, pixels, channels), (channels, channels * groups, 1)), **how)


def weights_product(
    x: tuple[Any, ArrayView],
    dy: tuple[Any, ArrayView],
    found: Any,
    groups: int,
    *,
    chip: Target,
    device: Any,
    **how: Any,
) -> None:
    """Compute the filters' gradient: filters by pixels, times pixels by channels; as `images_product`."""
    pixels, out = prod(dy[1].shape[:3]), view_of(found)
    filters, channels = dy[1].shape[3] // groups, x[1].shape[3] // groups
    spec = MatmulSpec(a_dtype=dy[1].dtype, b_dtype=x[1].dtype, out_dtype=out.dtype, a_major="mn", b_major="mn")
    parts = 1 if groups > 1 else parts_of(spec, chip, filters, channels, pixels)
    far = [_pitch(view) for view in (dy[1], x[1])]
    step = pixels // parts
    apart = [step * pitch for pitch in far] if groups == 1 else [filters, channels]
    a = _matrix(*dy, (parts * groups, filters, step), (apart[0], 1, far[0]))
    b = _matrix(*x, (parts * groups, step, channels), (apart[1], far[1], 1))
    size = filters * channels
    if parts == 1:
        matmul(a, b, out=_matrix(found, out, (groups, filters, channels), (size, channels, 1)), **how)
        return
    sums = new_arrays(out, (parts, filters, channels), F32)(how["stream"])
    matmul(a, b, out=sums, **how)
    add_parts(sums, found, target=chip, device=device, stream=how["stream"])


def weights_over_pixels(
    x: ArrayView,
    dy: ArrayView,
    found: Any,
    axes: Sequence[Axis],
    *,
    chip: Target,
    device: Any,
    stream: Any,
    scale: Any,
) -> None:
    """Compute the filters' gradient as a product whose images the copy engine goes over; as `weights_product`."""
    out = view_of(found)
    size = (out.shape[0], prod(out.shape[1:]))
    whole = replace(out, shape=size, strides=(size[1], 1))
    one = FilterGradientArguments.over_pixels(x, dy, axes, whole, scale=scale, target=chip, device=device, result=found)
    parts = parts_of(one.spec, chip, *size, one.problem.k, one.problem.read_b)
    call, sums = one, found
    if parts > 1:
        sums = new_arrays(out, (parts, *size), F32)(stream)
        more = {"target": chip, "device": device, "result": sums}
        call = FilterGradientArguments.over_pixels(x, dy, axes, view_of(sums), scale=scale, **more)
    launch(call, stream)
    if parts > 1:
        add_parts(sums, found, target=chip, device=device, stream=stream)


def launch(call: MatmulArguments, stream: Any) -> None:
    """Launch the kernel that the model picks for a call."""
    select(call, None).kernel.plan(call)(stream)


def _pitch(view: ArrayView) -> int:
    """Elements from pixel to pixel; 0 where these are not equally far apart."""
    return one_pitch(view) or 0


def _matrix(array: Any, view: ArrayView, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """The elements of an array as matrices of a batch, or as a matrix alone: of its library, or else a view."""
    first = 1 if shape[0] == 1 else 0
    extents, steps = tuple(shape[first:]), tuple(strides[first:])
    if view.library == "torch":
        return array.as_strided(extents, steps)
    if view.library in ("numpy", "cupy"):
        tricks = sys.modules[view.library].lib.stride_tricks
        return tricks.as_strided(array, extents, [step * view.dtype.bytes for step in steps])
    return replace(view, shape=extents, strides=steps)
