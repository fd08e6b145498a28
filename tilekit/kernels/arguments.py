"""One call of a product of matrices, read once: what selection, checks of fit, binding and launch take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from tilekit.arrays import (
    ArrayView,
    NewArrays,
    c_strides,
    in_place,
    new_arrays,
    require_apart,
    require_dtype,
    require_output,
    require_same_place,
)
from tilekit.dtypes import BF16, S8, S32, DType, as_dtype
from tilekit.epilogue.functions import Activation, ElementwiseSpec
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.kernels.epilogue_arguments import EpilogueArguments, EpilogueKeywords
from tilekit.kernels.problem import MatmulCall, MatmulProblem, matrix_view, output_matrix, store_kind
from tilekit.kernels.written_arguments import PLAIN, WrittenContext
from tilekit.targets import Target
from tilekit.tiles.call import Matrix

_NONE = EpilogueArguments()


@dataclass(frozen=True)
class Arguments:
    """A call's arrays, each viewed once, and what follows from them.

    Attributes
    ----------
    a, b, out
        Views of the operands and of the output.
    result
        The output, as the caller's library knows it; None where `out` is only a layout.
    problem
        The operands, checked against each other.
    epilogue, activation
        What is done to the product.
    config
        The config to take, where the caller gave one.
    target
        The chip to build for.
    device
        ``"cuda"`` where arrays in host memory go to the GPU.
    """

    OPERANDS: ClassVar[tuple[str, str]] = ("a", "b")
    """What the caller calls them."""

    a: ArrayView
    b: ArrayView
    out: ArrayView
    problem: MatmulProblem
    target: Target
    result: Any = None
    device: str | None = None
    epilogue: EpilogueArguments = _NONE
    activation: Activation | None = None
    config: Any = None

    @property
    def elsewhere(self) -> str:
        """What is nearest to the call on a chip that its family is not built for, in words; empty where all is said."""
        return ""

    @classmethod
    def of(
        cls,
        problem: MatmulProblem,
        a: ArrayView,
        b: ArrayView,
        out: ArrayView | None,
        dtype: DType,
        epilogue: EpilogueKeywords,
        *,
        shape: tuple[int, ...] | None = None,
        memory: bool = True,
        out_name: str = "out",
        written: WrittenContext = PLAIN,
        **more: Any,
    ) -> Self:
        """Check an output and the epilogue's operands against the product of two views.

        Parameters
        ----------
        out, dtype
            View of the output, None where there is none yet, and the result's element type.
        epilogue
            What the caller passed.
        shape
            Of the output, by default the product's.
        memory
            Whether the arrays have memory.
        out_name
            What the caller calls the output: one of several is ``"out[0]"``.
        written
            What a Python epilogue is told of its operands and results.
        more
            The other fields.

        Raises
        ------
        ArgumentError
            Naming the argument.
        """
        placed = list(zip(cls.OPERANDS, (a, b), strict=True))
        shape = problem.out_shape if shape is None else shape
        if out is not None:
            require_output(out, shape, dtype, (), out_name)
            placed.append((out_name, out))
        view = in_c_order(a, shape, dtype) if out is None else out
        read = EpilogueArguments.read(problem, view, epilogue, context=written)
        names = {} if read.written is None else read.written.names
        # Where a scale in host memory has memory, it has been read as a number.
        placed += [
            (names.get(key, key), one)
            for key, one in read.views.items()
            if memory or key != "scale" or one.device != "cpu"
        ]
        require_same_place(placed)
        return cls(a=a, b=b, out=view, problem=problem, epilogue=read, **more)

    def new_output(self) -> NewArrays:
        """How an output of this layout is made."""
        return new_arrays(self.a, self.out.shape, self.out.dtype)

    def into(self, result: Any) -> Self:
        """The same call with a new output."""
        return replace(self, out=matrix_view(result, "out"), result=result)

    def completed(self, stream: int | None = None) -> Self:
        """The same call with new arrays for what its epilogue stores beside the result, where it has none."""
        written = self.epilogue.written
        if written is None or written.complete:
            return self
        made = [new_arrays(self.a, extra.shape, extra.dtype)(stream) for extra in written.extras]
        return replace(self, epilogue=replace(self.epilogue, written=written.storing(made)))

    @property
    def extra_names(self) -> tuple[str, ...]:
        """What an epilogue stores beside the result, as the kernel calls it."""
        written = self.epilogue.written
        return () if written is None else tuple(extra.name for extra in written.extras)

    def require_apart(self) -> None:
        """Raise `ArgumentError` (``TK-ARRAY-009``) for an output that shares memory with an input, or with another one.

        A residual may be the output itself: a thread reads an element of it before it writes there.
        """
        apart = dict(self.arrays)
        outputs = {name: apart.pop(name) for name in ("out", *self.extra_names) if name in apart}
        if self.result is None:
            del outputs["out"]  # a layout that has no memory yet
        elif "residual" in apart and in_place(apart["residual"], self.out):
            del apart["residual"]
        for name, view in outputs.items():
            require_apart(self.words.get(name, name), view, ((self.words.get(n, n), one) for n, one in apart.items()))
            apart[name] = view

    @property
    def words(self) -> dict[str, str]:
        """What the caller calls those arrays that have another name in a launch."""
        several = dict(zip(("a", "b"), self.OPERANDS, strict=True)) | ({"out": "out[0]"} if self.extra_names else {})
        return several if self.epilogue.written is None else {**self.epilogue.written.names, **several}

    @property
    def results(self) -> Any:
        """What the call returns: the output, or all of an epilogue's in the order of its function."""
        written = self.epilogue.written
        if written is None or not written.extras:
            return self.result
        return (self.result, *(extra.array for extra in written.extras))

    def prepared(self, stream: Any = None) -> Self:
        """The same call, its arrays as a kernel takes them: what must be has been laid out anew, on `stream`."""
        return self

    @property
    def layout(self) -> ArrayView:
        """The output's rows, as one matrix or a batch of them."""
        return self.out

    @cached_property
    def out_matrix(self) -> Matrix:
        """The output as the copy engine sees it."""
        return output_matrix(self.layout)

    @cached_property
    def residual_matrix(self) -> Matrix | None:
        """The residual likewise."""
        residual = self.epilogue.residual
        return None if residual is None else output_matrix(residual, "residual")

    def reading(self, problem: MatmulProblem) -> Self:
        """The same call, its operands read in another way."""
        return replace(self, problem=problem)

    @cached_property
    def store_of_out(self) -> str:
        """How the result alone can be stored: ``"tma"`` or ``"direct"``."""
        return store_kind(self.out.address, self.out_matrix)

    @property
    def store(self) -> str:
        """How the result can be stored, and a residual loaded."""
        kinds: set[str | int] = {self.store_of_out}
        if self.epilogue.residual is not None and self.residual_matrix is not None:
            kinds |= {store_kind(self.epilogue.residual.address, self.residual_matrix)}
            kinds |= {self.problem.a.load, self.problem.b.load}  # who would load the residual copies operands
        return "tma" if kinds == {"tma"} else "direct"

    @cached_property
    def functions(self) -> ElementwiseSpec | WrittenSpec:
        """What a kernel must do to the product."""
        return self.epilogue.functions(self.activation)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return 0 in self.out.shape

    @property
    def neutral(self) -> dict[str, float]:
        """What totals are where there is nothing to compute, by the names of their arrays."""
        return self.epilogue.neutral

    @property
    def arrays(self) -> dict[str, ArrayView]:
        """Everything in memory, by the names of `Addresses`."""
        return {"a": self.a, "b": self.b, "out": self.out, **self.epilogue.views}

    @property
    def call(self) -> MatmulCall:
        """What a launch needs beside addresses."""
        return self.epilogue.call(self.problem, self.out_matrix, self.residual_matrix)


def result_type(a: ArrayView, out: ArrayView | None, out_dtype: Any) -> DType:
    """The output's element type: what was asked for, which an output must have; that of the output; that of `a`.

    Raises
    ------
    ArgumentError
        ``TK-API-004`` where output and type differ.
    """
    asked = None if out_dtype is None else as_dtype(out_dtype, "out_dtype")
    if out is None:
        return asked or (a.dtype if a.dtype.bits > 8 else S32 if a.dtype == S8 else BF16)
    if asked is not None:
        require_dtype(out, asked)
    return out.dtype


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a call's keywords those that are fields of its arguments as they are."""
    names = ("activation", "config", "precision", "accumulation")
    return {"result": given.get("out")} | {name: given[name] for name in names if name in given}


def in_c_order(like: ArrayView, shape: tuple[int, ...], dtype: DType) -> ArrayView:
    """A layout in C order that has no memory yet."""
    return replace(like, address=0, shape=shape, strides=c_strides(shape), dtype=dtype, writeable=True)
