"""A call of `tilekit.conv2d`, read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, Self, Unpack

import numpy as np

from tilekit.annotations import checked_values
from tilekit.arrays import (
    ArrayView,
    NewArrays,
    c_strides,
    is_array,
    new_arrays,
    require_output,
    require_result,
    view_of,
)
from tilekit.epilogue.python import EpilogueCall
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import in_c_order, result_type, settings
from tilekit.kernels.conv2d.axes import read_axes
from tilekit.kernels.conv2d.copied_problem import by_threads, read_on
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.problem import ConvProblem, one_pitch
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.epilogue_arguments import SharedEpilogueKeywords
from tilekit.kernels.matmul.arguments import CallKeywords, MatmulArguments
from tilekit.kernels.matmul.legal import check_floats, check_types
from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec
from tilekit.kernels.resolve import resolve_target
from tilekit.kernels.written_arguments import WrittenContext
from tilekit.tiles.operand import SWIZZLE_BYTES


class ConvOperands(SharedEpilogueKeywords, total=False):
    """How filters go over images, and what the epilogue takes: of a call, and of arrays that a kernel is bound to."""

    stride: Any
    padding: Any
    dilation: Any
    groups: int


class ConvKeywords(ConvOperands, CallKeywords, total=False):
    """What `tilekit.conv2d` takes by keyword, but for ``stream``; it says what each is."""

    accumulation: Accumulation


@dataclass(frozen=True, kw_only=True)
class ConvArguments(MatmulArguments):
    """The arguments of a convolution; `a` are the images, `b` the filters, `out` its pixels as rows of a matrix.

    Attributes
    ----------
    extents
        Of the result: (N, P, Q, K).
    axes
        How filters go down and along the images.
    """

    OPERANDS = ("x", "w")
    extents: tuple[int, int, int, int]
    axes: tuple[Axis, Axis]

    @classmethod
    def parse(  # type: ignore[override]  # other keywords
        cls, x: Any, w: Any, *, memory: bool = True, **keywords: Unpack[ConvKeywords]
    ) -> Self:
        """Read and check a call's arguments, as of a product.

        Parameters
        ----------
        x, w, keywords
            As `tilekit.conv2d` takes them.
        memory
            False for arrays that are layouts alone: nothing is asked of their memory.
        """
        given: dict[str, Any] = checked_values(ConvKeywords, keywords)
        images, filters = read_pixels(x, "x"), read_pixels(w, "w")
        groups, (y, along) = read_groups(images, filters, given.get("groups", 1)), read_axes(images, filters, given)
        shape = images.shape[0], y.out, along.out, filters.shape[0]
        out = None if given.get("out") is None else read_pixels(given["out"], "out")
        dtype = result_type(images, out, given.get("out_dtype"))
        if out is not None:
            require_output(out, shape, dtype, ())
        epilogue: Any = {name: given[name] for name in ("scale", "beta") if name in given}
        if given.get("bias") is not None:
            epilogue["bias"] = _bias(view_of(given["bias"], "bias"), "bias", filters.shape[0], groups)
        if given.get("residual") is not None:
            residual = read_pixels(given["residual"], "residual")
            require_result(residual, shape, dtype, "residual")
            epilogue["residual"] = _rows(residual, "residual", groups)
        views = {}
        if given.get("epilogue") is not None:
            epilogue["epilogue"] = given["epilogue"]
            views = _operands(given["epilogue"], shape, groups)
        target, device = resolve_target(images, given.get("target"), memory=memory)
        check_floats(target, images.dtype, filters.dtype, ("x", "w"))
        more: dict[str, Any] = {"memory": memory, "target": target, "device": device, "extents": shape}
        more |= {"axes": (y, along), **settings(given)}
        rows = _rows(in_c_order(images, shape, dtype) if out is None else out, "out", groups)
        problem = read_on(target, images, filters, y, along, groups)
        return cls.of(problem, images, filters, rows, dtype, epilogue, written=WrittenContext(views=views), **more)

    def new_output(self) -> NewArrays:
        """How an output of this layout is made: of torch's, with its channels behind its images."""
        made = new_arrays(self.a, self.extents, self.out.dtype)
        if self.a.library != "torch":
            return made
        return replace(made, make=lambda: made.make().permute(0, 3, 1, 2))

    def into(self, result: Any) -> Self:
        """The same call with a new output."""
        return replace(self, out=_rows(read_pixels(result, "out"), "out", self.problem.batches), result=result)

    def spec_storing(self, store: str) -> MatmulSpec:
        """The convolution that stores in the way `store`; a matmul where each output pixel is made of one pixel."""
        plain, problem = super().spec_storing(store), self.problem
        if not isinstance(problem, ConvProblem):
            return plain
        if (loaded := by_threads(plain, problem)) is not None:
            return loaded
        block = SWIZZLE_BYTES if plain.promoted else problem.block_bytes  # 128 products are added at once
        return ConvSpec(**vars(plain), swizzle=problem.swizzle, im2col_b=problem.im2col_b, block_bytes=block)


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


def read_groups(x: ArrayView, w: ArrayView, groups: int) -> int:
    """Check types and extents of both operands, and that groups divide them."""
    check_types(x.dtype, w.dtype, ("x", "w"))
    channels = x.shape[3]
    for name, view in (("x", x), ("w", w)):
        require_extents(name, view)
    require_divided(groups, {"channels of x": channels, "filters": w.shape[0]})
    if w.shape[3] * groups != channels:
        raise ArgumentError(
            f"x has {channels} channels and w has {w.shape[3]}: with groups={groups} a filter has {channels // groups}"
            + (f"; nearest: groups={channels // w.shape[3]}" if channels % w.shape[3] == 0 else "")
            + _other_layout(x, w, groups),
            code="TK-CONV-002",
        )
    return groups


def _other_layout(x: ArrayView, w: ArrayView, groups: int) -> str:
    """What operands whose channels do not fit look like: as other libraries lay them out."""
    turns = [
        ("x", 1, "N, C, H, W", (0, 2, 3, 1)),
        ("w", 1, "K, C, R, S", (0, 2, 3, 1)),
        ("w", 2, "R, S, C, K", (3, 0, 1, 2)),
    ]
    for said in (turns[:1], turns[1:2], turns[:2], turns[2:]):
        axis = {name: at for name, at, _, _ in said}
        if x.shape[axis.get("x", 3)] == w.shape[axis.get("w", 3)] * groups and x.library != "torch":
            looks = " and ".join(f"{name} as ({order})" for name, _, order, _ in said)
            ways = " and ".join(f"numpy.ascontiguousarray({name}.transpose{turn})" for name, _, _, turn in said)
            return f"; channels would fit with {looks}: pass {ways}"
    return ""


def require_extents(name: str, view: ArrayView) -> None:
    """Raise `ArgumentError` (``TK-CONV-001``) for images or filters without an element each."""
    if 0 in view.shape[1:]:
        raise ArgumentError(
            f"{name} is {view.shape} (channels last): only N and K may be 0; nearest: 1",
            code="TK-CONV-001",
        )


def require_divided(groups: int, counts: dict[str, int]) -> None:
    """Raise `ArgumentError` (``TK-CONV-002``) for groups that do not divide channels or filters, said with what."""
    if groups >= 1 and not any(count % groups for count in counts.values()):
        return
    shared = gcd(*counts.values()) or 1
    nearest = min((n for n in range(1, shared + 1) if shared % n == 0), key=lambda n: abs(n - groups))
    raise ArgumentError(
        f"groups={groups} with {' and '.join(f'{count} {what}' for what, count in counts.items())}: groups divide "
        f"{'both' if len(counts) > 1 else 'them'}; nearest: {nearest}",
        code="TK-CONV-002",
    )


def _bias(view: ArrayView, name: str, count: int, groups: int) -> ArrayView:
    """A value a filter; of groups, a row of values each."""
    if view.shape != (count,) or (count > 1 and view.strides != (1,)):
        raise ArgumentError(
            f"{name} has shape {view.shape} and strides {view.strides}: one contiguous value for each of the {count} "
            f"filters is needed, shape ({count},)",
            code="TK-MM-017",
        )
    each = count // groups
    return view if groups == 1 else replace(view, shape=(groups, each), strides=(each, 1))


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
        if len(extents) <= 4 and extents[-1] == prod(extents) == shape[3]:
            flat = view_of(given, name)
            flat = replace(flat, shape=flat.shape[-1:], strides=flat.strides[-1:])
            vector, each = _bias(flat, name, shape[3], groups), shape[3] // groups
            views[place] = replace(vector, shape=(groups, 1, each), strides=(each, 0, 1)) if groups > 1 else vector
            continue
        view = read_pixels(given, name) if len(extents) == 4 else None
        if view is None or view.shape != shape:
            raise ArgumentError(
                f"{name} has shape {extents}: with conv2d legal are the result's, {shape} (N, P, Q, K), one value a "
                f"filter, {shape[3:]} or {(1, 1, 1, shape[3])}, and one element",
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
    return replace(view, shape=(groups, prod(extents), each), strides=(max(1, each), found, 1))
