"""A convolution to run: images, filters, how these go over those, and what float64 makes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tilekit.bench.accuracy import Accuracy, accuracy_of, error_limit
from tilekit.bench.workload import Fused, Operands, checked_rows
from tilekit.dtypes import BF16, F32, DType
from tilekit.errors import ArgumentError

if TYPE_CHECKING:
    from tilekit.arrays import ArrayView
    from tilekit.bench.machine import Machine
    from tilekit.epilogue.functions import Activation
    from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec
    from tilekit.targets import ChipName

__all__ = ["ConvWorkload", "Filtered", "images"]

_SHAPE = re.compile(r"(\d{1,9}(?:x\d{1,9}){3}) (\d{1,9}(?:x\d{1,9}){2})((?: [spdg]\d{1,9}(?:x\d{1,9})?)*)")
_LETTERS = {"s": "stride", "p": "padding", "d": "dilation", "g": "groups"}


@dataclass(frozen=True, slots=True)
class Filtered:
    """How filters go over images, as `tilekit.conv2d` takes it, and what is behind the product, or added to it."""

    how: dict[str, Any]
    fused: Fused
    residual: Any = None


@dataclass(frozen=True, slots=True)
class ConvWorkload:
    """Images (N, H, W, C) and filters (K, R, S, C / groups).

    Attributes
    ----------
    x, filters : tuple of int
        ``(N, H, W, C)`` and ``(K, R, S)``.
    stride, padding, dilation : tuple of int
        Down and along.
    groups : int
    a_dtype, b_dtype, out_dtype : DType
        Of images, filters and result.
    target : str, optional
        The chip that it is read for, which says how operands are loaded; None for the default one.
    bias, residual : bool
        Whether K values, or an array like the result, are added.
    activation, accumulation
        As of a `MatmulWorkload`.
    """

    precision: ClassVar[None] = None
    row_groups: ClassVar[int] = 0

    x: tuple[int, int, int, int]
    filters: tuple[int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    a_dtype: DType = BF16
    b_dtype: DType = BF16
    out_dtype: DType = BF16
    bias: bool = False
    activation: Activation | None = None
    residual: bool = False
    accumulation: Accumulation = "fast"
    target: str | None = None

    def __post_init__(self) -> None:
        numbers = {"x": self.x, "filters": self.filters, "stride": self.stride, "dilation": self.dilation}
        if min(*(number for of in numbers.values() for number in of), self.groups) < 1:
            legal = "extents, strides, dilations and groups from 1 on"
            fitting = {name: tuple(max(1, number) for number in of) for name, of in numbers.items()}
            nearest = _worded(**fitting, padding=self.padding, groups=max(1, self.groups))
            raise ArgumentError.of("shape", self.label, legal=legal, nearest=nearest, code="TK-BENCH-001")
        self.arguments()  # refuses what `tilekit.conv2d` does, with its words

    @classmethod
    def parse(cls, shape: str, like: Self | None = None) -> Self:
        """Read ``NxHxWxC KxRxS``, then ``s``, ``p``, ``d``, ``g`` with numbers; the rest is taken from ``like``."""
        found = _SHAPE.fullmatch(shape)
        if found is None:
            legal = "NxHxWxC KxRxS, and after blanks s, p, d (one number or two as 2x1) and g"
            raise ArgumentError.of("shape", shape, legal=legal, nearest="8x56x56x64 64x3x3 s1 p1", code="TK-BENCH-001")
        n, h, w, c = map(int, found[1].split("x"))
        k, r, s = map(int, found[2].split("x"))
        how: dict[str, Any] = {}
        for word in found[3].split():
            numbers = tuple(map(int, word[1:].split("x")))
            how[_LETTERS[word[0]]] = numbers[0] if word[0] == "g" else (numbers[0], numbers[-1])
        values: dict[str, Any] = {"x": (n, h, w, c), "filters": (k, r, s), **how}
        return cls(**values) if like is None else replace(like, **values)

    @property
    def family(self) -> str:
        """A convolution, or one with something fused."""
        return "fused_conv2d" if self.bias or self.residual or self.activation is not None else "conv2d"

    @property
    def w(self) -> tuple[int, int, int, int]:
        """Shape of the filters."""
        return (*self.filters, self.x[3] // self.groups)

    @property
    def out_shape(self) -> tuple[int, int, int, int]:
        """``(N, P, Q, K)``."""
        down, along = (
            (self.x[1 + i] + 2 * self.padding[i] - (self.filters[1 + i] - 1) * self.dilation[i] - 1) // self.stride[i]
            + 1
            for i in range(2)
        )
        return self.x[0], down, along, self.filters[0]

    @property
    def m(self) -> int:
        """Rows of the product: output pixels."""
        return prod(self.out_shape[:3])

    @property
    def n(self) -> int:
        """Columns of a group's product: its filters."""
        return self.filters[0] // self.groups

    @property
    def k(self) -> int:
        """What a sum has terms, with the zeros that fill slices up."""
        k: int = self.arguments().problem.k
        return k

    @property
    def read(self) -> float:
        """The part of the product's A that lies in memory once."""
        read: float = self.arguments().problem.read
        return read

    @property
    def batch(self) -> int | None:
        """Groups, where there is more than one."""
        return self.groups if self.groups > 1 else None

    @property
    def how(self) -> dict[str, Any]:
        """How filters go over images."""
        return {name: getattr(self, name) for name in _LETTERS.values()}

    @property
    def label(self) -> str:
        """The shape as :meth:`parse` reads it."""
        return _worded(self.x, self.filters, **self.how)

    @property
    def kind(self) -> str:
        """Types and fused functions in a few words."""
        inputs = self.a_dtype.name if self.a_dtype is self.b_dtype else f"{self.a_dtype}·{self.b_dtype}"
        summed = f" {self.accumulation}" if self.accumulation != "fast" else ""
        names = ("bias" if self.bias else None, "residual" if self.residual else None, self.activation)
        return f"{inputs}→{self.out_dtype}{summed}{''.join(f' +{name}' for name in names if name)}"

    @property
    def bits(self) -> int:
        """Of an element of the images."""
        return self.a_dtype.bits

    @property
    def flops(self) -> int:
        """Multiplications and additions, those with padding too."""
        return 2 * self.m * prod(self.w)

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result, each counted once."""
        results = (1 + self.residual) * prod(self.out_shape) * self.out_dtype.bytes
        return prod(self.x) * self.a_dtype.bytes + prod(self.w) * self.b_dtype.bytes + results

    @property
    def error_limit(self) -> float:
        """Largest relative (Frobenius) error of a right answer."""
        return error_limit(self.a_dtype, self.out_dtype)

    @property
    def spec(self) -> MatmulSpec:
        """What computes it: a convolution, or a plain product for filters of one place."""
        spec: MatmulSpec = self.arguments().spec
        return spec

    @property
    def views(self) -> tuple[ArrayView, ArrayView, ArrayView]:
        """Images, filters and result as they lie in memory that does not exist."""
        from tilekit.arrays import ArrayView

        def view(shape: tuple[int, ...], dtype: DType) -> ArrayView:
            strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
            return ArrayView(0, shape, strides, dtype, "cpu", "numpy", None)

        return view(self.x, self.a_dtype), view(self.w, self.b_dtype), view(self.out_shape, self.out_dtype)

    def spec_on(self, target: ChipName) -> MatmulSpec:
        """What computes it on a chip."""
        spec: MatmulSpec = self.arguments(target).spec
        return spec

    def arguments(self, target: ChipName | None = None) -> Any:
        """The call, read by `tilekit.conv2d`'s own rules."""
        from tilekit.kernels.conv2d.arguments import ConvArguments

        x, w, _ = self.views
        layouts = Operands(x, w, np.zeros(self.filters[0], np.float32) if self.bias else None)
        a, b, keywords = self.call(layouts)
        if self.residual:
            keywords["residual"] = self.views[2]
        where = self.target if target is None else target
        return ConvArguments.parse(a, b, memory=False, out_dtype=self.out_dtype, target=where, **keywords)

    def call(self, operands: Operands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.conv2d` is called with."""
        more = {"bias": operands.bias, "activation": self.activation, "accumulation": self.accumulation}
        residual = {} if operands.residual is None else {"residual": images(operands.residual)}
        return images(operands.a), images(operands.b), {**self.how, **more, **residual}

    def kernel(self, target: ChipName, config: Any) -> Any:
        """The kernel that computes it with a config; of filters of one place it is a product's, bound to images."""
        from tilekit.kernels.conv2d.family import CONV2D
        from tilekit.targets import target as chip_named

        return CONV2D.compile(self.spec_on(target), config, chip_named(target))

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        x, w, filtered, out = operands
        return kernel.bind(images(x), images(w), images(out), **filtered.how)

    def placed(self, out: Any) -> Any:
        """An output as a call takes it."""
        return images(out)

    def operands(self, seed: int, place: Callable[[Any], Any] = lambda stored: stored) -> Operands:
        """Return standard normal operands, channels last; `place` is as of a `MatmulWorkload`."""
        random = np.random.default_rng(seed)

        def normal(shape: tuple[int, ...], dtype: DType) -> Any:
            return place(random.standard_normal(shape, dtype=np.float32).astype(dtype.numpy))

        x, w = normal(self.x, self.a_dtype), normal(self.w, self.b_dtype)
        bias = normal(self.filters[:1], F32) if self.bias else None
        return Operands(x, w, bias, normal(self.out_shape, self.out_dtype) if self.residual else None)

    def accuracy(self, operands: Operands, out: Any) -> Accuracy:
        """Compare an answer with float64, each element against the error its own sum may have."""
        a, b = operands.a.astype(np.float64), operands.b.astype(np.float64)
        added: Any = 0.0 if operands.residual is None else operands.residual.astype(np.float64)
        if operands.bias is not None:
            added = added + operands.bias.astype(np.float64)
        sums, magnitudes = self._product(a, b), self._product(np.abs(a), np.abs(b))
        return accuracy_of(sums + added, magnitudes, out, self.a_dtype, self.out_dtype, self.activation)

    def _product(self, x: Any, w: Any) -> Any:
        found = Unfolded(self, x)[..., slice(None), slice(None)] @ self._columns(w)
        return found.swapaxes(0, 1).reshape(self.out_shape)

    def _columns(self, w: Any) -> Any:
        return w.reshape(self.groups, self.n, -1).swapaxes(1, 2)

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return standard normal operands on a machine, channels last: ``(x, w, filtered, out)``."""
        x, w = machine.normal(self.x, self.a_dtype, next(seeds)), machine.normal(self.w, self.b_dtype, next(seeds))
        bias = machine.normal(self.filters[:1], self.out_dtype, next(seeds)) if self.bias else None
        added = machine.normal(self.out_shape, self.out_dtype, next(seeds)) if self.residual else None
        filtered = Filtered(self.how, Fused(bias, self.activation), added)
        return x, w, filtered, machine.empty(self.out_shape, self.out_dtype)

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the product of all groups; rows of its A are gathered when they are asked for."""
        x, w, _, out = operands
        return [(Unfolded(self, x), self._columns(w), self._matrices(out))]

    def _matrices(self, out: Any) -> Any:
        return out.reshape(self.m, self.groups, self.n).swapaxes(0, 1)

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return what becomes of the product's checked rows: with the residual and bias, through the activation."""
        bias, residual = operands[2].fused.bias, operands[2].residual
        if residual is not None:
            product = product + machine.single(self._matrices(residual)[:, checked_rows(self.m)])
        if bias is None and self.activation is None:
            return product
        each = None if bias is None else bias.reshape(self.groups, 1, self.n)
        return machine.finished(product, Fused(each, self.activation))


def _worded(x: tuple[int, ...], filters: tuple[int, ...], **how: Any) -> str:
    """Return a shape as `ConvWorkload.parse` reads it, without what is usual."""
    words = ["x".join(map(str, x)), "x".join(map(str, filters))]
    for (letter, name), usual in zip(_LETTERS.items(), (1, 0, 1, 1), strict=True):
        down, along = value if isinstance(value := how[name], tuple) else (value, value)
        if (down, along) != (usual, usual):
            words.append(f"{letter}{down}" if down == along else f"{letter}{down}x{along}")
    return " ".join(words)


class Unfolded:
    """Images as a matrix a group, (groups, M, R S C / groups), of which rows are made when they are asked for."""

    def __init__(self, workload: ConvWorkload, x: Any) -> None:
        self._workload, self._x = workload, x
        self.shape = (workload.groups, workload.m, prod(workload.w[1:]))

    def __getitem__(self, rows: tuple[Any, slice, slice]) -> Any:
        """Return some rows of every group's matrix, whole."""
        work, groups = self._workload, self._workload.groups
        _, height, width, channels = work.x
        _, down, along, _ = work.out_shape
        image, y, x = np.unravel_index(np.arange(work.m)[rows[1]], (work.x[0], down, along))
        places = np.indices(work.filters[1:]).reshape(2, -1)
        line, column = (
            at[:, None] * work.stride[i] - work.padding[i] + places[i] * work.dilation[i] for i, at in enumerate((y, x))
        )
        outside = (line < 0) | (line >= height) | (column < 0) | (column >= width)
        pixel = np.where(outside, 0, (image[:, None] * height + line) * width + column)
        found = self._x.reshape(-1, channels)[pixel]
        found[outside] = 0
        count, taps = pixel.shape
        each = found.reshape(count, taps, groups, channels // groups).swapaxes(1, 2).swapaxes(0, 1)
        return each.reshape(groups, count, -1)


def images(array: Any) -> Any:
    """An array with its channels last, as the shape is that its library gives images: torch's have them second."""
    return array.permute(0, 3, 1, 2) if hasattr(array, "permute") else array
