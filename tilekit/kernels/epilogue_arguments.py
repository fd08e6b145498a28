"""What an epilogue takes beside the accumulators: scales, bias and residual, out of the caller's arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypedDict

import numpy as np

from tilekit.annotations import number
from tilekit.arrays import ArrayView, host_array, is_array, view_of
from tilekit.dtypes import BF16, F16, F32, FP8
from tilekit.epilogue.functions import Activation, ElementwiseSpec
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.problem import MatmulCall, MatmulProblem, matrix_view
from tilekit.kernels.written_arguments import PLAIN, WrittenArguments, WrittenContext
from tilekit.tiles.call import Matrix


class SharedEpilogueKeywords(TypedDict, total=False):
    """What is fused behind every product; `tilekit.matmul` says what each may be."""

    bias: Any
    scale: Any
    residual: Any
    beta: float
    epilogue: Any


class EpilogueKeywords(SharedEpilogueKeywords, total=False):
    """The epilogue's operands as the caller of a product of matrices passes them."""

    scale_a: Any
    scale_b: Any


@dataclass(frozen=True)
class Factors:
    """A factor a row or a column.

    Attributes
    ----------
    view
        Where they lie.
    batch_pitch
        Elements from those of one matrix of a batch to the next one's; 0 where all share them.
    """

    view: ArrayView
    batch_pitch: int


@dataclass(frozen=True)
class EpilogueArguments:
    """The epilogue's operands, checked; None for those that a call does not have.

    Attributes
    ----------
    bias, residual
        Views of a vector, or of one a matrix, and of a matrix like the output.
    scale
        One factor: a number, or the view of one f32 in device memory.
    scale_a, scale_b
        Factors of rows, and of columns.
    beta
        The residual's factor.
    written
        A Python epilogue, in place of all of these; the matrix that it has brought is the residual.
    """

    bias: ArrayView | None = None
    scale: float | ArrayView | None = None
    scale_a: Factors | None = None
    scale_b: Factors | None = None
    residual: ArrayView | None = None
    beta: float = 1.0
    written: WrittenArguments | None = None

    @classmethod
    def read(
        cls,
        problem: MatmulProblem,
        out: ArrayView,
        given: EpilogueKeywords,
        *,
        context: WrittenContext = PLAIN,
    ) -> EpilogueArguments:
        """Check the arguments of `tilekit.matmul` against the product and its output.

        Raises
        ------
        ArgumentError
            ``TK-MM-017`` for the bias, ``TK-MM-018`` the scale, ``TK-MM-020`` the residual, ``TK-MM-026`` scales of
            rows and columns, ``TK-EPI-004`` a Python epilogue.
        """
        if given.get("epilogue") is not None:
            beside = [name for name in _REPLACED if given.get(name) is not None]
            beside += ["beta"] if given.get("beta", 1.0) != 1.0 else []
            if beside:
                raise ArgumentError(
                    f"{', '.join(beside)} beside epilogue: a Python epilogue does all that is done to the product; "
                    f"write {beside[0]} in its function, and pass arrays as its operands",
                    code="TK-EPI-004",
                )
            sources = out.dtype not in FP8 and problem.a.load == problem.b.load == "tma"
            elements = replace(out, shape=(*out.shape[:-1], problem.n))  # a byte may hold several
            written = WrittenArguments.read(given["epilogue"], elements, sources=sources, context=context)
            return cls(residual=written.source, written=written)
        bias, residual, beta = given.get("bias"), given.get("residual"), given.get("beta", 1.0)
        if residual is None and beta != 1.0:
            legal = "1.0 without a residual, which it multiplies"
            raise ArgumentError.of("beta", beta, legal=legal, nearest=1.0, code="TK-MM-020")
        return cls(
            bias=_read_bias(bias, problem) if bias is not None else None,
            scale=read_scale(given.get("scale")),
            scale_a=_read_factors(given.get("scale_a"), "scale_a", problem.m, problem),
            scale_b=_read_factors(given.get("scale_b"), "scale_b", problem.n, problem),
            residual=_read_residual(residual, out) if residual is not None else None,
            beta=beta,
        )

    @property
    def views(self) -> dict[str, ArrayView]:
        """The arrays, by the caller's names."""
        given = {
            "bias": self.bias,
            "scale": self.scale,
            "scale_a": self.scale_a.view if self.scale_a else None,
            "scale_b": self.scale_b.view if self.scale_b else None,
            "residual": self.residual,
        }
        more = {} if self.written is None else self.written.views
        return {**{name: view for name, view in given.items() if isinstance(view, ArrayView)}, **more}

    @property
    def neutral(self) -> dict[str, float]:
        """What totals of no element are, by the names of their arrays."""
        return {} if self.written is None else self.written.neutral

    def functions(self, activation: Activation | None) -> ElementwiseSpec | WrittenSpec:
        """What a kernel must do with them."""
        if self.written is not None:
            if activation is not None:
                raise ArgumentError(
                    f"activation={activation!r} beside epilogue: call {activation}(x) in its function",
                    code="TK-EPI-004",
                )
            return self.written.spec
        return ElementwiseSpec(
            scale=None if self.scale is None else "value" if isinstance(self.scale, float) else "pointer",
            bias=self.bias.dtype if self.bias is not None else None,
            biases=self.bias is not None and len(self.bias.shape) > 1,
            activation=activation,
            residual=self.residual.dtype if self.residual is not None else None,
            scale_a=self.scale_a is not None,
            scale_b=self.scale_b is not None,
        )

    def facts(self, built: ElementwiseSpec | WrittenSpec) -> list[tuple[str, Any, Any]]:
        """What is given of each, and what a kernel was built for."""
        given = self.functions(built.activation)
        return [
            ("bias's type", given.bias, built.bias),
            ("whether there is a bias a matrix", given.biases, built.biases),
            ("scale", given.scale, built.scale),
            ("whether there is a scale_a", given.scale_a, built.scale_a),
            ("whether there is a scale_b", given.scale_b, built.scale_b),
            ("the residual's type", given.residual, built.residual),
            ("epilogue", _written(given), _written(built)),
        ]

    def call(self, problem: MatmulProblem, out: Matrix, residual: Matrix | None) -> MatmulCall:
        """The call with their numbers."""
        pitches = [factors.batch_pitch if factors else 0 for factors in (self.scale_a, self.scale_b)]
        return MatmulCall(
            problem,
            out,
            scale=self.scale if isinstance(self.scale, float) else 1.0,
            scale_pitches=(pitches[0], pitches[1]),
            bias_pitch=0 if self.bias is None else self.bias.strides[0],
            residual=residual,
            beta=self.beta,
            matrices={} if self.written is None else self.written.matrices,
            numbers={} if self.written is None else self.written.numbers,
        )


def _written(functions: ElementwiseSpec | WrittenSpec) -> str | None:
    """A Python epilogue's name, if it is one."""
    return "_".join(filter(None, functions.words)) if isinstance(functions, WrittenSpec) else None


_REPLACED = ("bias", "scale", "scale_a", "scale_b", "residual")


def _read_bias(bias: Any, problem: MatmulProblem) -> ArrayView:
    """Check a bias: N contiguous values of bf16, f16 or f32, or so many for each matrix of a batch."""
    view, n = view_of(bias, "bias"), problem.n
    shapes = [(n,), *([(problem.batches, n)] if problem.batched else [])]
    if view.shape not in shapes or (n > 1 and view.strides[-1] != 1) or min(view.strides) < 0:
        raise ArgumentError(
            f"bias has shape {view.shape} and strides {view.strides}: one contiguous value for each of the {n} "
            f"columns is needed, shape {' or '.join(map(str, shapes))}",
            code="TK-MM-017",
        )
    if view.dtype not in (BF16, F16, F32):
        raise ArgumentError(f"bias is {view.dtype}: bf16, f16 or f32 is needed; nearest: f32", code="TK-MM-017")
    return view


def _read_residual(residual: Any, out: ArrayView) -> ArrayView:
    """Check a residual: a matrix (or a batch of them, or one for all of a batch) like the output."""
    view = matrix_view(residual, "residual")
    shape = tuple(out.shape)
    shapes = (shape, shape[-2:], (1, *shape[-2:]))[: 1 if len(shape) == 2 else 3]
    if view.shape not in shapes or view.dtype != out.dtype:
        raise ArgumentError(
            f"residual is {view.dtype} of shape {view.shape}: it is added to the result, {out.dtype} of shape {shape}"
            + ("" if len(shape) == 2 else f"; one of shape {shape[-2:]} is added to every matrix of the batch"),
            code="TK-MM-020",
        )
    return view


def read_scale(scale: Any) -> float | ArrayView | None:
    """Check a scale: a number as it is (also out of an array in host memory), or the view of one f32 in device memory.

    Reading the number of a device array would wait for the device, so the kernel reads it.
    """
    if scale is None:
        return None
    if isinstance(scale, ArrayView):
        return _scale_view(scale)
    if isinstance(scale, np.generic) or not is_array(scale):
        return number(scale, "scale", words="a number or an array of one f32", code="TK-MM-018")
    view = _scale_view(scale)
    return float(host_array(view).reshape(())) if view.device == "cpu" else view


def _scale_view(scale: Any) -> ArrayView:
    """Check a scale that is an array: one f32. Its value is not looked at."""
    view = view_of(scale, "scale")
    if prod(view.shape) != 1 or view.dtype != F32:
        raise ArgumentError(
            f"scale is {view.dtype} of shape {view.shape}: a number or an array of one f32 is needed (one factor for "
            "the whole product)",
            code="TK-MM-018",
        )
    return view


def _read_factors(given: Any, name: str, extent: int, problem: MatmulProblem) -> Factors | None:
    """Check the factors of rows or columns: f32, behind each other; of a batch, one vector for all or for each matrix.

    A vector has shape (extent,), or keeps the product's other dimension as 1, as `torch._scaled_mm` takes it.
    """
    if given is None:
        return None
    view = view_of(given, name)
    line, along = ((extent, 1), 0) if name == "scale_a" else ((1, extent), 1)
    legal = [((extent,), 0, False), (line, along, False)]
    if problem.batched:
        legal += [((problem.batches, extent), 1, True), ((problem.batches, *line), 1 + along, True)]
    for shape, axis, own in legal:
        if view.shape == shape and view.dtype == F32:
            pitch = view.strides[0] if own and problem.batches > 1 else 0
            behind = view.strides[axis] == 1 or extent <= 1 or (own and problem.batches == 0)
            if not behind or pitch < 0:
                raise ArgumentError(
                    f"{name} has strides {view.strides} (elements): the factors must lie behind each other, and the "
                    f"batches not run backwards. Pass a copy, for example {name}.copy() of an array or "
                    f"{name}.contiguous() of a tensor",
                    code="TK-MM-026",
                )
            return Factors(view, pitch)
    what = "row" if name == "scale_a" else "column"
    raise ArgumentError(
        f"{name} is {view.dtype} of shape {view.shape}: one f32 for each {what} of the product is needed, shape "
        f"{' or '.join(str(shape) for shape, _, _ in legal)}; nearest: f32 of shape {(extent,)}"
        + (", or scale= for one factor of the whole product" if prod(view.shape) == 1 else ""),
        code="TK-MM-026",
    )
