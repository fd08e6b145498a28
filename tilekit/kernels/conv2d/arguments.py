"""A call of `tilekit.conv2d`, read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Self, Unpack

from tilekit.annotations import checked_values
from tilekit.arrays import ArrayView, NewArrays, new_arrays, require_output, require_result, view_of
from tilekit.dtypes import DType
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import in_c_order, result_type, settings
from tilekit.kernels.conv2d.axes import read_axes
from tilekit.kernels.conv2d.copied_problem import by_threads, read_on
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.pixels import as_rows, of_filters, read_pixels
from tilekit.kernels.conv2d.problem import ConvProblem
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.conv2d.written import read_operands, read_stored, stored_beside
from tilekit.kernels.epilogue_arguments import SharedEpilogueKeywords
from tilekit.kernels.matmul.arguments import CallKeywords, MatmulArguments
from tilekit.kernels.matmul.legal import check_floats, check_types
from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec
from tilekit.kernels.resolve import resolve_target
from tilekit.kernels.written_arguments import WrittenArguments, WrittenContext, as_call, split_results
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
        result, results = split_results(given.get("out"), given.get("epilogue"))
        name = "out" if results is None else "out[0]"
        out = None if result is None else read_pixels(result, name)
        dtype = result_type(images, out, given.get("out_dtype"))
        if out is not None:
            require_output(out, shape, dtype, (), name)
        epilogue: Any = {name: given[name] for name in ("scale", "beta") if name in given}
        if given.get("bias") is not None:
            epilogue["bias"] = of_filters(view_of(given["bias"], "bias"), "bias", filters.shape[0], groups)
        if given.get("residual") is not None:
            residual = read_pixels(given["residual"], "residual")
            require_result(residual, shape, dtype, "residual")
            epilogue["residual"] = as_rows(residual, "residual", groups)
        views, stored = {}, None
        if given.get("epilogue") is not None:
            epilogue["epilogue"] = call = as_call(given["epilogue"])
            views = read_operands(call, shape, groups)
            stored = None if results is None else read_stored(call.graph, results, shape, dtype, groups)
        target, device = resolve_target(images, given.get("target"), memory=memory)
        check_floats(target, images.dtype, filters.dtype, ("x", "w"))
        more: dict[str, Any] = {"memory": memory, "target": target, "device": device, "extents": shape}
        more |= {"axes": (y, along), "out_name": name, **settings(given), "result": result}
        rows = as_rows(in_c_order(images, shape, dtype) if out is None else out, name, groups)
        problem = read_on(target, images, filters, y, along, groups)
        written = WrittenContext(results=stored, views=views)
        found = cls.of(problem, images, filters, rows, dtype, epilogue, written=written, **more)
        if results is None:
            return found
        assert found.epilogue.written is not None, "results are an epilogue's"
        return found._with(found.epilogue.written.returning(results))

    def new_output(self) -> NewArrays:
        """How an output of this layout is made: of torch's, with its channels behind its images."""
        return self._new_pixels(self.out.dtype)

    def _new_pixels(self, dtype: DType) -> NewArrays:
        made = new_arrays(self.a, self.extents, dtype)
        if self.a.library != "torch":
            return made
        return replace(made, make=lambda: made.make().permute(0, 3, 1, 2))

    def into(self, result: Any) -> Self:
        """The same call with a new output."""
        return replace(self, out=as_rows(read_pixels(result, "out"), "out", self.problem.batches), result=result)

    def completed(self, stream: int | None = None) -> Self:
        """The same call with new arrays for what its epilogue stores beside the result, where it has none."""
        written, lies = self.epilogue.written, (self.extents, self.out.dtype, self.problem.batches)
        if written is None or written.complete:
            return self
        graph = written.spec.graph
        made = [
            (self._new_pixels(one.dtype) if one.pixels else new_arrays(self.a, one.shape, one.dtype))(stream)
            for one in stored_beside(graph, *lies)
        ]
        return self._with(written.storing(read_stored(graph, made, *lies)).returning(made))

    def _with(self, written: WrittenArguments) -> Self:
        return replace(self, epilogue=replace(self.epilogue, written=written))

    def spec_storing(self, store: str) -> MatmulSpec:
        """The convolution that stores in the way `store`; a matmul where each output pixel is made of one pixel."""
        plain, problem = super().spec_storing(store), self.problem
        if not isinstance(problem, ConvProblem):
            return plain
        if (loaded := by_threads(plain, problem)) is not None:
            return loaded
        block = SWIZZLE_BYTES if plain.promoted else problem.block_bytes  # 128 products are added at once
        return ConvSpec(**vars(plain), swizzle=problem.swizzle, im2col_b=problem.im2col_b, block_bytes=block)


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
