"""A call of `tilekit.conv2d`, read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from operator import index
from typing import Any, Self, TypedDict, Unpack, cast

import numpy as np

from tilekit.annotations import checked_values
from tilekit.arrays import ArrayView, NewArrays, is_array, new_arrays, require_output, view_of
from tilekit.dtypes import BF16, F16
from tilekit.epilogue.functions import Activation
from tilekit.epilogue.python import EpilogueCall
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments, result_type
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.problem import ConvProblem, one_pitch, read_convolution
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.arguments import spec_of
from tilekit.kernels.matmul.spec import FP8, Accumulation, MatmulSpec
from tilekit.kernels.resolve import resolve_target
from tilekit.targets import PlaceName


class ConvOperands(TypedDict, total=False):
    """How filters go over images, and what the epilogue takes: of a call, and of arrays that a kernel is bound to."""

    stride: Any
    padding: Any
    dilation: Any
    groups: int
    bias: Any
    scale: Any
    residual: Any
    beta: float
    epilogue: Any


class ConvKeywords(ConvOperands, total=False):
    """What `tilekit.conv2d` takes by keyword, but for ``stream``; it says what each is."""

    out: Any
    activation: Activation | None
    out_dtype: Any
    accumulation: Accumulation
    config: AnyConfig | None
    target: PlaceName | None


@dataclass(frozen=True, kw_only=True)
class ConvArguments(Arguments):
    """The arguments of a convolution; `a` are the images, `b` the filters, `out` its pixels as rows of a matrix.

    Attributes
    ----------
    extents
        Of the result: (N, P, Q, K).
    accumulation
        How sums of 8-bit products are made.
    """

    extents: tuple[int, int, int, int]
    accumulation: Accumulation = "fast"

    @classmethod
    def parse(cls, x: Any, w: Any, *, memory: bool = True, **keywords: Unpack[ConvKeywords]) -> Self:
        """Read and check a call's arguments.

        Parameters
        ----------
        x, w, keywords
            As `tilekit.conv2d` takes them.
        memory
            False for arrays that are layouts alone: nothing is asked of their memory.

        Raises
        ------
        ArgumentError, DriverError
            Naming the argument.
        """
        given: dict[str, Any] = checked_values(ConvKeywords, keywords)
        images, filters = _pixels(x, "x"), _pixels(w, "w")
        groups = _groups(images, filters, given.get("groups", 1))
        count, (y, x_axis) = filters.shape[0], _axes(images, filters, given)
        shape = images.shape[0], y.out, x_axis.out, count
        out = _pixels(given["out"], "out") if given.get("out") is not None else None
        dtype = result_type(images, out, given.get("out_dtype"))
        if out is not None:
            require_output(out, shape, dtype, [("x", images), ("w", filters)] if memory else ())
        epilogue: dict[str, Any] = {name: given[name] for name in ("bias", "scale", "beta") if name in given}
        epilogue["bias"] = _bias(given.get("bias"), count, groups)
        if given.get("residual") is not None:
            residual = _pixels(given["residual"], "residual")
            if residual.shape != shape or residual.dtype != dtype:
                raise ArgumentError(
                    f"residual is {residual.dtype} of shape {residual.shape}: it is added to the result, {dtype} of "
                    f"shape {shape} (N, P, Q, K)",
                    code="TK-MM-020",
                )
            epilogue["residual"] = _rows(residual, "residual", groups)
        views = {}
        if given.get("epilogue") is not None:
            epilogue["epilogue"] = given["epilogue"]
            views = _operands(given["epilogue"], shape, groups)
        target, device = resolve_target(images, given.get("target"), memory=memory)
        layout = (
            out
            if out is not None
            else replace(images, address=0, shape=shape, strides=_c_order(shape), dtype=dtype, writeable=True)
        )
        return cls.of(
            read_convolution(images, filters, y, x_axis, groups),
            images,
            filters,
            _rows(layout, "out", groups),
            dtype,
            cast(EpilogueKeywords, epilogue),
            memory=memory,
            views=views,
            target=target,
            device=device,
            result=given.get("out"),
            activation=given.get("activation"),
            config=given.get("config"),
            accumulation=given.get("accumulation", "fast"),
            extents=shape,
        )

    def new_output(self) -> NewArrays:
        """How an output of this layout is made: of torch's, with its channels behind its images."""
        made = new_arrays(self.a, self.extents, self.out.dtype)
        if self.a.library != "torch":
            return made
        return replace(made, make=lambda: made.make().permute(0, 3, 1, 2))

    def into(self, result: Any) -> Self:
        """The same call with a new output."""
        return replace(self, out=_rows(_pixels(result, "out"), "out", self.problem.batches), result=result)

    @cached_property
    def spec(self) -> MatmulSpec:
        """The convolution of arrays that lie so; a matmul where each output pixel is made of one pixel."""
        return self.spec_storing(self.store)

    def spec_storing(self, store: str) -> MatmulSpec:
        """The same that stores in the way `store`."""
        problem, functions = self.problem, self.functions
        plain = spec_of(problem, self.out.dtype, functions, store=store, accumulation=self.accumulation)
        if not isinstance(problem, ConvProblem):
            return plain
        return ConvSpec(**vars(plain), swizzle=problem.swizzle, im2col_b=problem.im2col_b)


def _pixels(array: Any, name: str) -> ArrayView:
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
        n, c, h, w = range(4)
        shape, strides = (tuple(numbers[axis] for axis in (n, h, w, c)) for numbers in (view.shape, view.strides))
        view = replace(view, shape=shape, strides=strides)
    if 0 in view.shape:
        return replace(view, strides=_c_order(view.shape))
    if (view.shape[3] > 1 and view.strides[3] != 1) or min(view.strides) < 0:
        way = (
            f"{name}.contiguous(memory_format=torch.channels_last)"
            if view.library == "torch"
            else f"{'cupy' if view.library == 'cupy' else 'numpy'}.ascontiguousarray({name})"
        )
        raise ArgumentError(
            f"{name} has strides {view.strides} (elements; channels last): its channels must lie behind each other, "
            f"and nothing run backwards. It would have to be copied; pass {way}",
            code="TK-CONV-005",
        )
    return view


def _c_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(max(1, extent) for extent in shape[axis + 1 :]) for axis in range(len(shape)))


def _groups(x: ArrayView, w: ArrayView, groups: int) -> int:
    """Check types and extents of both operands, and that groups divide them."""
    if not ((x.dtype == w.dtype and x.dtype in (BF16, F16)) or {x.dtype, w.dtype} <= set(FP8)):
        raise ArgumentError(
            f"x is {x.dtype} and w is {w.dtype}: tensor cores multiply bf16 by bf16, f16 by f16, or e4m3/e5m2 by "
            f"e4m3/e5m2; nearest: both {x.dtype if x.dtype in (BF16, F16, *FP8) else BF16}",
            code="TK-CONV-001",
        )
    channels, count = x.shape[3], w.shape[0]
    if 0 in x.shape[1:] or 0 in w.shape[1:]:
        raise ArgumentError(
            f"x is {x.shape} and w is {w.shape} (channels last): only N and K may be 0; nearest: 1", code="TK-CONV-001"
        )
    if groups < 1 or channels % groups or count % groups:
        legal = [n for n in range(1, channels + 1) if channels % n == 0 and count % n == 0]
        nearest = min(legal, key=lambda n: abs(n - groups))
        raise ArgumentError(
            f"groups={groups} with {channels} channels of x and {count} filters: groups divide both; "
            f"nearest: {nearest}",
            code="TK-CONV-002",
        )
    if w.shape[3] * groups != channels:
        raise ArgumentError(
            f"x has {channels} channels and w has {w.shape[3]}: with groups={groups} a filter has {channels // groups}"
            + (f"; nearest: groups={channels // w.shape[3]}" if channels % w.shape[3] == 0 else ""),
            code="TK-CONV-002",
        )
    return groups


def _axes(x: ArrayView, w: ArrayView, given: dict[str, Any]) -> tuple[Axis, Axis]:
    """How filters go over images, with at least one output pixel."""
    steps, pads, aparts = (
        _pair(given.get(name, usual), name, least)
        for name, usual, least in (("stride", 1, 1), ("padding", 0, 0), ("dilation", 1, 1))
    )
    axes = [
        Axis(name, x.shape[1 + i], w.shape[1 + i], steps[i], pads[i], aparts[i])
        for i, name in enumerate(("height", "width"))
    ]
    for axis in axes:
        if axis.out < 1:
            reach, missing = axis.end - axis.apart + 1, axis.end - axis.apart + 1 - axis.extent - 2 * axis.pad
            raise ArgumentError(
                f"filters of {axis.name} {axis.taps}, {reach} with dilation {axis.apart}, are larger than images "
                f"of {axis.extent} with padding {axis.pad}; nearest: padding={axis.pad + -(-missing // 2)}",
                code="TK-CONV-003",
            )
    return axes[0], axes[1]


def _pair(given: Any, name: str, least: int) -> tuple[int, int]:
    """Read a number for both axes, or one for each: down and along."""
    pair = (given, given) if not isinstance(given, tuple | list) else tuple(given)
    try:
        down, along = (index(number) for number in pair)
        legal = not any(isinstance(number, bool) for number in pair) and least <= min(down, along)
    except (TypeError, ValueError):
        legal = False
    if not legal:
        raise ArgumentError.of(
            name, given, legal=f"a whole number from {least} on, or two (down, along)", nearest=least,
            code="TK-CONV-003",
        )  # fmt: skip
    return down, along


def _bias(bias: Any, count: int, groups: int) -> Any:
    """A value a filter; of groups, a row of values each."""
    if bias is None:
        return None
    view = view_of(bias, "bias")
    if view.shape != (count,) or (count > 1 and view.strides != (1,)):
        raise ArgumentError(
            f"bias has shape {view.shape} and strides {view.strides}: one contiguous value for each of the {count} "
            f"filters is needed, shape ({count},)",
            code="TK-MM-017",
        )
    if groups == 1:
        return view
    return replace(view, shape=(groups, count // groups), strides=(count // groups, 1))


def _operands(call: Any, shape: tuple[int, int, int, int], groups: int) -> dict[int, ArrayView]:
    """A Python epilogue's operands as a product's: of the result's shape, or a value a filter."""
    views: dict[int, ArrayView] = {}
    if not isinstance(call, EpilogueCall):
        return views
    if len(call.graph.order) > 1:
        raise ArgumentError(
            f"epilogue {call.graph.name} stores {len(call.graph.order)} arrays; legal with conv2d: the result alone",
            code="TK-EPI-004",
        )
    for place, (name, given) in enumerate(zip(call.function.operands, call.operands, strict=True)):
        extents = tuple(given.shape) if is_array(given) and not isinstance(given, np.generic) else ()
        if prod(extents) == 1:
            continue
        if extents == shape[3:]:
            vector, each = _bias(given, shape[3], groups), shape[3] // groups
            views[place] = replace(vector, shape=(groups, 1, each), strides=(each, 0, 1)) if groups > 1 else vector
            continue
        view = _pixels(given, name) if len(extents) == 4 else None
        if view is None or view.shape != shape:
            raise ArgumentError(
                f"{name} has shape {extents}: legal are the result's, {shape} (N, P, Q, K), one value a filter, "
                f"{shape[3:]}, and one element",
                code="TK-EPI-004",
            )
        views[place] = _rows(view, name, groups)
    return views


def _rows(view: ArrayView, name: str, groups: int) -> ArrayView:
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
    return replace(view, shape=(groups, prod(extents), each), strides=(each, found, 1))
