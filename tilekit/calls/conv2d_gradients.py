"""Gradients of `tilekit.conv2d`: plain products where filters are one place, else convolutions of rearranged arrays.

That of the images is a convolution of the result's gradient with filters turned round, their two channel dimensions
exchanged: one for each remainder of the stride, with the places of the filter that meet it. That of the filters is one
whose channels are the images of a batch: filters are the result's gradient, whose pixels lie a stride apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, TypedDict, Unpack

from tilekit.annotations import checked_values, takes
from tilekit.arrays import ArrayView, c_strides, new_arrays, require_same_place, resolve_stream, view_of
from tilekit.calls.conv2d import conv2d
from tilekit.calls.conv2d_products import images_product, is_product, launch, weights_over_pixels, weights_product
from tilekit.dtypes import DType
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import in_c_order, result_type
from tilekit.kernels.conv2d.arguments import read_groups, require_divided, require_extents
from tilekit.kernels.conv2d.axes import read_axes, read_extents
from tilekit.kernels.conv2d.filter_gradient import goes_over_pixels
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.phased import PhasedArguments
from tilekit.kernels.conv2d.pixels import read_pixels
from tilekit.kernels.conv2d.turned import ImageGradientArguments, turns_filters
from tilekit.kernels.matmul.legal import check_floats, check_types
from tilekit.kernels.rearrange import Dimension, rearrange
from tilekit.kernels.resolve import resolve_target
from tilekit.runtime.emulated import Work, noting
from tilekit.targets import PlaceName, Target
from tilekit.tile_io.tma import TMA_ALIGNMENT

__all__ = ["conv2d_input_gradient", "conv2d_weight_gradient"]


class GradientKeywords(TypedDict, total=False):
    """What both gradients take by keyword, but for ``stream``: as `tilekit.conv2d` takes it."""

    stride: Any
    padding: Any
    dilation: Any
    groups: int
    scale: Any
    out_dtype: Any
    target: PlaceName | None


@takes(GradientKeywords)
def conv2d_input_gradient(
    dy: Any, w: Any, extents: Any, *, stream: Any = None, **keywords: Unpack[GradientKeywords]
) -> Any:
    """Return the gradient of the images of a convolution, accumulated in f32.

    Parameters
    ----------
    dy
        The gradient of the result, (N, P, Q, K), of torch (N, K, P, Q) in ``channels_last`` memory.
    w
        Filters, as `conv2d` takes them.
    extents
        Lines of the images, and pixels of a line: with a stride several convolve to the same result.
    stride, padding, dilation, groups, scale, target, stream
        Of the convolution, as `conv2d` takes them.
    out_dtype
        By default that of `dy`, and of 8-bit operands bf16.

    Returns
    -------
    array
        (N, H, W, C), of torch (N, C, H, W) in ``channels_last`` memory.

    Raises
    ------
    ArgumentError
        As `conv2d` does; ``TK-CONV-001`` where `dy` is not what the convolution would return.

    Notes
    -----
    Of 1x1 filters without stride and padding it is a plain product. Without a stride it is one convolution; where there
    are multiples of 64 filters, of multiples of 8 channels, they are turned as they are loaded (sm_90a, sm_100a), and
    else copied in another order. With a stride it is one launch for such filters, nothing copied, whose batch are the
    remainders of the stride, down times along. Else there are as many convolutions, each of copied filters, and each
    is copied to its pixels.

    Examples
    --------
    >>> import numpy as np, tilekit
    >>> dy, w = np.ones((1, 3, 3, 8), np.float16), np.ones((8, 3, 3, 16), np.float16)
    >>> tilekit.conv2d_input_gradient(dy, w, (6, 6), stride=2, padding=1).shape
    (1, 6, 6, 16)
    """
    given: dict[str, Any] = checked_values(GradientKeywords, keywords)
    dy_view, w_view = read_pixels(dy, "dy"), read_pixels(w, "w")
    groups, pair = given.get("groups", 1), read_extents(extents, "extents")
    check_types(dy_view.dtype, w_view.dtype, ("dy", "w"))
    require_extents("w", w_view)
    require_divided(groups, {"filters of w": w_view.shape[0]})
    x = in_c_order(dy_view, (dy_view.shape[0], *pair, w_view.shape[3] * groups), dy_view.dtype)
    call = _Call.read(x, w_view, dy_view, given, ("w", w_view), stream)
    found = call.new((x.shape[0], *pair, x.shape[3]))
    call.compute("conv2d_input_gradient", lambda: call.input_gradient((dy, dy_view), (w, w_view), found))
    return call.images(found)


@takes(GradientKeywords)
def conv2d_weight_gradient(
    x: Any, dy: Any, taps: Any, *, stream: Any = None, **keywords: Unpack[GradientKeywords]
) -> Any:
    """Return the gradient of the filters of a convolution, accumulated in f32.

    Parameters
    ----------
    x
        Images, as `conv2d` takes them.
    dy
        The gradient of the result, (N, P, Q, K), of torch (N, K, P, Q) in ``channels_last`` memory.
    taps
        Lines of a filter, and places of a line.
    stride, padding, dilation, groups, scale, target, stream
        Of the convolution, as `conv2d` takes them.
    out_dtype
        By default that of `x`, and of 8-bit operands bf16.

    Returns
    -------
    array
        (K, R, S, C / groups), of torch (K, C / groups, R, S) in ``channels_last`` memory.

    Raises
    ------
    ArgumentError
        As `conv2d` does; ``TK-CONV-001`` where `dy` is not what the convolution would return.

    Notes
    -----
    Of 1x1 filters without stride and padding it is a plain product, whose sum over pixels may be made in parts and
    added. Else images and `dy` are copied with the batch behind the pixels, filled up to whole 16 bytes: a batch of a
    few images multiplies more zeros than numbers. There is one convolution a group. Images of more than 128 pixels
    along or down are beyond the copy engine's boxes, and threads load them.

    Examples
    --------
    >>> import numpy as np, tilekit
    >>> x, dy = np.ones((8, 6, 6, 16), np.float16), np.ones((8, 3, 3, 8), np.float16)
    >>> tilekit.conv2d_weight_gradient(x, dy, (3, 3), stride=2, padding=1).shape
    (8, 3, 3, 16)
    """
    given: dict[str, Any] = checked_values(GradientKeywords, keywords)
    x_view, dy_view = read_pixels(x, "x"), read_pixels(dy, "dy")
    groups, pair = given.get("groups", 1), read_extents(taps, "taps")
    check_types(x_view.dtype, dy_view.dtype, ("x", "dy"))
    require_extents("x", x_view)
    require_divided(groups, {"channels of x": x_view.shape[3], "of dy": dy_view.shape[3]})
    w = in_c_order(x_view, (dy_view.shape[3], *pair, x_view.shape[3] // groups), x_view.dtype)
    call = _Call.read(x_view, w, dy_view, given, ("x", x_view), stream)
    found = call.new(w.shape)
    call.compute("conv2d_weight_gradient", lambda: call.weight_gradient((x, x_view), (dy, dy_view), found))
    return call.images(found)


@dataclass(frozen=True)
class _Remainder:
    """Pixels of an image that are as far from a multiple of the stride, and the convolution that gives their gradient.

    Attributes
    ----------
    first, step, count
        The first of them, from one to the next, and how many.
    tap, tap_step, taps
        Places of the filter that meet them, likewise.
    apart, pad, skip
        Dilation and padding of the convolution, and of what it returns the first that counts.
    """

    first: int
    step: int
    count: int
    tap: int
    tap_step: int
    taps: int
    apart: int = 1
    pad: int = 0
    skip: int = 0

    def all_of(self, axis: Axis) -> bool:
        """Whether these are all pixels there are, and the convolution returns them alone."""
        returned = axis.out + 2 * self.pad - self.apart * (self.taps - 1)
        return self.step == 1 and not self.skip and returned == axis.extent

    def over(self, axis: Axis) -> Axis:
        """How the filters that meet them go over the gradient of the result."""
        return Axis(axis.name, axis.out, self.taps, pad=self.pad, apart=self.apart)


def _remainders(axis: Axis) -> list[_Remainder]:
    """What pixels there are, by what they leave divided by the stride.

    A pixel h is met by the place r from the output pixel (h + pad - r apart) / step, where that is whole.
    """
    found = []
    for first in range(min(axis.step, axis.extent)):
        count, place = -(-(axis.extent - first) // axis.step), first + axis.pad
        shared = gcd(axis.step, axis.apart)
        tap_step, apart = axis.step // shared, axis.apart // shared
        tap = next((r for r in range(min(tap_step, axis.taps)) if (place - r * axis.apart) % axis.step == 0), axis.taps)
        taps = -(-(axis.taps - tap) // tap_step)
        part = _Remainder(first, axis.step, count, tap, tap_step, taps)
        if taps:
            reach = apart * (taps - 1)
            low = reach - (place - tap * axis.apart) // axis.step
            pad = max(low, count + reach - low - axis.out, 0)
            part = replace(part, apart=apart, pad=pad, skip=pad - low)
        found.append(part)
    return found


@dataclass(frozen=True)
class _Call:
    """A call, read: how filters go over images, and where and when what is to be done is done."""

    axes: list[Axis]
    groups: int
    like: ArrayView
    dtype: DType
    chip: Target
    device: str | None
    place: PlaceName | None
    stream: Any
    scale: Any

    @classmethod
    def read(
        cls,
        x: ArrayView,
        w: ArrayView,
        dy: ArrayView,
        given: dict[str, Any],
        other: tuple[str, ArrayView],
        stream: Any,
    ) -> _Call:
        """Check images, filters and the result's gradient against each other; of one of the first two is the layout."""
        groups = read_groups(x, w, given.get("groups", 1))
        axes = read_axes(x, w, given, images="extents" if other[0] == "w" else "x")
        expected = (x.shape[0], axes[0].out, axes[1].out, w.shape[0])
        if dy.shape != expected:
            raise ArgumentError(
                f"dy has shape {dy.shape} (channels last): the convolution returns {expected}; pass its gradient",
                code="TK-CONV-001",
            )
        require_same_place([other, ("dy", dy)])
        chip, device = resolve_target(other[1], given.get("target"))
        (first, a), (second, b) = [("dy", dy), other] if other[0] == "w" else [other, ("dy", dy)]
        check_floats(chip, a.dtype, b.dtype, (first, second))
        if stream is not None or (dy.library != "torch" and dy.device != "cpu"):
            stream = resolve_stream(stream, dy)
        dtype = result_type(a, None, given.get("out_dtype"))
        return cls(axes, groups, dy, dtype, chip, device, given.get("target"), stream, given.get("scale"))

    def new(self, shape: tuple[int, ...], dtype: DType | None = None) -> Any:
        """A new array in C order."""
        return new_arrays(self.like, shape, dtype or self.dtype)(self.stream)

    def images(self, array: Any) -> Any:
        """The array as `conv2d` takes and returns it: of torch with its channels second."""
        return array.permute(0, 3, 1, 2) if self.like.library == "torch" else array

    @property
    def how(self) -> dict[str, Any]:
        """What a convolution or a product is called with beside its arrays."""
        return {"stream": self.stream, "target": self.place, "scale": self.scale}

    def convolved(self, x: Any, w: Any, **how: Any) -> Any:
        """The convolution of arrays with their channels last."""
        return conv2d(x, self.images(w), out_dtype=self.dtype, **self.how, **how)

    def copied(self, source: ArrayView, out: Any, dimensions: list[Dimension], read: int, write: int = 0) -> None:
        """Copy elements, from one of each array on."""
        place: dict[str, Any] = {"target": self.chip, "device": self.device, "stream": self.stream}
        rearrange(source, out, dimensions, read_from=read, write_from=write, **place)

    def compute(self, name: str, launches: Callable[[], None]) -> None:
        """Launch what computes a gradient; on the emulator not before the time of all launches is known.

        Raises
        ------
        EmulationTooLong
            Where together they exceed `settings.emulator_limit`.
        """
        if self.like.device == "cpu" and self.device is None:
            with noting() as works:
                launches()
            sum(works, Work(0, 0)).refuse_if_too_long(f"{name}, launches: {len(works)}")
        launches()

    def input_gradient(self, dy: tuple[Any, ArrayView], w: tuple[Any, ArrayView], found: Any) -> None:
        """Compute the gradient of the images; arrays come with their views."""
        if not w[1].shape[0]:
            self.zeros(found)
        elif is_product(self.axes, self.chip, (dy[1], self.groups), (w[1], 1)):
            images_product(dy, w, found, self.groups, **self.how)
        elif not self.input_phases(dy[1], w[1], found):
            for down in _remainders(self.axes[0]):
                for along in _remainders(self.axes[1]):
                    self.input_part(dy[0], w[1], found, down, along)

    def zeros(self, found: Any) -> None:
        """Write what a sum of nothing is."""
        self.copied(self.like, found, [Dimension(prod(_shape(found)), 0, 1, count=0)], 0)

    def weight_gradient(self, x: tuple[Any, ArrayView], dy: tuple[Any, ArrayView], found: Any) -> None:
        """Compute the gradient of the filters, likewise."""
        where: dict[str, Any] = {"chip": self.chip, "device": self.device}
        if is_product(self.axes, self.chip, (x[1], self.groups), (dy[1], self.groups)):
            weights_product(x, dy, found, self.groups, **where, **self.how)
        elif goes_over_pixels(x[1], dy[1], self.axes, self.groups, self.chip):
            weights_over_pixels(x[1], dy[1], found, self.axes, scale=self.scale, stream=self.stream, **where)
        else:
            for group in range(self.groups):
                self.weight_part(x[1], dy[1], found, group)

    def input_phases(self, dy: ArrayView, w: ArrayView, found: Any) -> bool:
        """Compute the gradient of all pixels at once, if there is a stride and nothing has to be copied."""
        if all(axis.step == 1 for axis in self.axes) or not turns_filters(w, self.groups, self.chip):
            return False
        where: dict[str, Any] = {"target": self.chip, "device": self.device, "result": found}
        call = PhasedArguments.phased(dy, w, self.axes, view_of(found), scale=self.scale, **where)
        if call is not None:
            launch(call, self.stream)
        return call is not None

    def input_part(self, dy: Any, w: ArrayView, found: Any, down: _Remainder, along: _Remainder) -> None:
        """Compute the gradient of some of the pixels."""
        count, height, width, channels = _shape(found)
        lines = Dimension(down.count, 0, down.step * width * channels, count=0)
        if not (down.taps and along.taps):
            zeros = [Dimension(count, 0, height * width * channels), lines]
            zeros += [Dimension(along.count, 0, along.step * channels), Dimension(channels, 0, 1)]
            self.copied(self.like, found, zeros, 0, (down.first * width + along.first) * channels)
            return
        whole = down.all_of(self.axes[0]) and along.all_of(self.axes[1])
        axes = [part.over(axis) for part, axis in zip((down, along), self.axes, strict=True)]
        part = found if whole else self.new((count, axes[0].out, axes[1].out, channels))
        if not self.turned_part(w, part, down, along, axes):
            filters, each = w.shape[0] // self.groups, channels // self.groups
            turned = self.new((channels, down.taps, along.taps, filters), w.dtype)
            strides, (k, r, s, _) = c_strides(_shape(turned)), w.strides
            self.copied(
                w,
                turned,
                [
                    Dimension(self.groups, filters * k, each * strides[0]),
                    Dimension(each, 1, strides[0]),
                    Dimension(down.taps, down.tap_step * r, strides[1], turned=True),
                    Dimension(along.taps, along.tap_step * s, strides[2], turned=True),
                    Dimension(filters, k, 1),
                ],
                down.tap * r + along.tap * s,
            )
            how = {"padding": (down.pad, along.pad), "dilation": (down.apart, along.apart), "groups": self.groups}
            self.convolved(dy, turned, out=self.images(part), **how)
        if whole:
            return
        image, line, pixel, _ = c_strides(_shape(part))
        self.copied(
            view_of(part),
            found,
            [
                Dimension(count, image, height * width * channels),
                Dimension(down.count, line, down.step * width * channels),
                Dimension(along.count, pixel, along.step * channels),
                Dimension(channels, 1, 1),
            ],
            down.skip * line + along.skip * pixel,
            (down.first * width + along.first) * channels,
        )

    def turned_part(self, w: ArrayView, part: Any, down: _Remainder, along: _Remainder, axes: list[Axis]) -> bool:
        """Compute it with filters that are turned as they are loaded, if that can be: all their places."""
        if (down.taps, along.taps) != w.shape[1:3] or not turns_filters(w, self.groups, self.chip):
            return False
        where: dict[str, Any] = {"target": self.chip, "device": self.device, "result": part}
        call = ImageGradientArguments.turned(self.like, w, axes, view_of(part), scale=self.scale, **where)
        if call is not None:
            launch(call, self.stream)
        return call is not None

    def weight_part(self, x: ArrayView, dy: ArrayView, found: Any, group: int) -> None:
        """Compute the gradient of a group's filters."""
        if 0 in x.shape:
            self.zeros(found)
            return
        down, along = self.axes
        count, unit = x.shape[0], TMA_ALIGNMENT // x.dtype.bytes
        padded = -(-count // unit) * unit
        arrays = []
        for view in (x, dy):
            channels = view.shape[3] // self.groups
            image, line, pixel, _ = view.strides
            array = self.new((channels, *view.shape[1:3], padded), view.dtype)
            strides = c_strides((channels, *view.shape[1:3], padded))
            order = [Dimension(channels, 1, strides[0]), Dimension(view.shape[1], line, strides[1])]
            order += [Dimension(view.shape[2], pixel, strides[2]), Dimension(padded, image, 1, count=count)]
            self.copied(view, array, order, group * channels)
            arrays.append(array)
        steps = {"stride": (down.apart, along.apart), "dilation": (down.step, along.step)}
        part = self.convolved(self.images(arrays[0]), arrays[1], padding=(down.pad, along.pad), **steps)
        view = read_pixels(part, "dw")
        strides, shape = view.strides, _shape(found)
        filters, out = shape[0] // self.groups, c_strides(shape)
        order = [Dimension(filters, 1, out[0]), Dimension(shape[1], strides[1], out[1])]
        order += [Dimension(shape[2], strides[2], out[2]), Dimension(shape[3], strides[0], 1)]
        self.copied(view, found, order, 0, group * filters * out[0])


def _shape(array: Any) -> tuple[int, ...]:
    """The shape of an array, as numbers."""
    return tuple(int(extent) for extent in array.shape)
