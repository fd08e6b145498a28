"""Gradients of convolutions to run: of a layer's images, or of its filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tilekit.bench.conv2d import ConvWorkload, Unfolded

if TYPE_CHECKING:
    from tilekit.bench.machine import Machine

__all__ = ["Gradient", "GradientWorkload"]

Of = Literal["images", "filters"]


@dataclass(frozen=True, slots=True)
class Gradient:
    """Which gradient, and how filters go over images, as `tilekit.conv2d` takes it."""

    of: Of
    how: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GradientWorkload:
    """The gradient of a layer's images or filters, given that of its result.

    Attributes
    ----------
    layer : ConvWorkload
        With nothing fused.
    of : "images" or "filters"
    """

    layer: ConvWorkload
    of: Of

    @property
    def family(self) -> str:
        """One for both gradients."""
        return "conv2d_gradient"

    @property
    def label(self) -> str:
        """The layer's."""
        return self.layer.label

    @property
    def kind(self) -> str:
        """Types, and which gradient."""
        return f"{self.layer.kind} of {self.of}"

    @property
    def bits(self) -> int:
        """Of an element of the images."""
        return self.layer.bits

    @property
    def flops(self) -> int:
        """As many as of the layer."""
        return self.layer.flops

    @property
    def bytes(self) -> int:
        """Bytes of the result's gradient, of the other operand and of what is computed, each counted once."""
        return self.layer.bytes

    @property
    def error_limit(self) -> float:
        """Largest relative (Frobenius) error of a right answer."""
        return self.layer.error_limit

    @property
    def out_shape(self) -> tuple[int, ...]:
        """That of images or filters."""
        return self.layer.x if self.of == "images" else self.layer.w

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return standard normal operands on a machine, channels last: ``(x, w, dy, gradient, out)``."""
        layer = self.layer
        shapes = (layer.x, layer.a_dtype), (layer.w, layer.b_dtype), (layer.out_shape, layer.out_dtype)
        x, w, dy = (machine.normal(shape, dtype, next(seeds)) for shape, dtype in shapes)
        return x, w, dy, Gradient(self.of, layer.how), machine.empty(self.out_shape, layer.out_dtype)

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the product of all groups; rows of images' gradients are gathered when they are asked for."""
        x, w, dy, _, out = operands
        layer, groups, each = self.layer, self.layer.groups, self.layer.w[3]
        if self.of == "filters":
            a = dy.reshape(layer.m, groups, layer.n).swapaxes(0, 1).swapaxes(1, 2)
            unfolded = Unfolded(layer, x)[..., slice(None), slice(None)]
            return [(a, unfolded, out.reshape(groups, layer.n, -1))]
        places = prod(layer.filters[1:])
        b = w.reshape(groups, layer.n, places, each).swapaxes(1, 2).reshape(groups, places * layer.n, each)
        return [(_Met(layer, dy), b, out.reshape(-1, groups, each).swapaxes(0, 1))]

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return the product: nothing is behind it."""
        return product


class _Met:
    """The result's gradient as a matrix a group, (groups, N H W, R S K / groups): what meets a pixel at each place."""

    def __init__(self, layer: ConvWorkload, dy: Any) -> None:
        self._layer, self._dy = layer, dy
        self.shape = (layer.groups, prod(layer.x[:3]), prod(layer.filters[1:]) * layer.n)

    def __getitem__(self, rows: tuple[Any, slice, slice]) -> Any:
        """Return some rows of every group's matrix, whole."""
        layer, (_, down, along, filters) = self._layer, self._layer.out_shape
        image, *pixel = np.unravel_index(np.arange(self.shape[1])[rows[1]], layer.x[:3])
        places = np.indices(layer.filters[1:]).reshape(2, -1)
        found, outside = [], np.zeros((len(image), places.shape[1]), bool)
        for i, extent in enumerate((down, along)):
            reached = pixel[i][:, None] + layer.padding[i] - places[i] * layer.dilation[i]
            at, rest = np.divmod(reached, layer.stride[i])
            outside |= (rest != 0) | (at < 0) | (at >= extent)
            found.append(at)
        row = np.where(outside, 0, (image[:, None] * down + found[0]) * along + found[1])
        values = self._dy.reshape(-1, filters)[row]
        values[outside] = 0
        each = values.reshape(*row.shape, layer.groups, layer.n).swapaxes(1, 2).swapaxes(0, 1)
        return each.reshape(layer.groups, len(image), -1)
