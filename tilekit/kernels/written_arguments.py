"""The operands of a Python epilogue, and what it stores beside the result: out of the caller's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from tilekit.annotations import number
from tilekit.arrays import ArrayView, c_strides, host_array, is_array, require_output, view_of
from tilekit.arrays.fingerprint import fingerprint
from tilekit.dtypes import BF16, F16, F32, DType
from tilekit.epilogue.combining import NEUTRAL
from tilekit.epilogue.graph import Graph
from tilekit.epilogue.python import EpilogueCall, EpilogueFunction
from tilekit.epilogue.whole_operands import whole_operand
from tilekit.epilogue.written_spec import Place, WrittenSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.problem import matrix_view, output_matrix, rows_of_groups, store_kind
from tilekit.tiles.call import Matrix

LOADED = (BF16, F16, F32)
"""Element types of operands."""


@dataclass(frozen=True)
class Extra:
    """What an epilogue stores beside the result.

    Attributes
    ----------
    name
        As the kernel calls it.
    dtype, shape
        Of the array.
    array, view
        The array, once there is one.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    array: Any = None
    view: ArrayView | None = None


@dataclass(frozen=True)
class WrittenContext:
    """What a family says of the operands and results of a Python epilogue.

    Attributes
    ----------
    results
        Arrays that the caller has for what is stored beside the result; None where there are none.
    views
        Operands that are not read as they are given, by their places.
    groups
        Groups of rows, whose columns may have values of their own; None where rows have no groups.
    before
        Arrays of the result itself, which come first: one, or values and scales.
    dtype
        Element type of further matrices that have none of their own; None: the output's.
    """

    results: Sequence[Any] | None = None
    views: Mapping[int, ArrayView] = field(default_factory=dict)
    groups: int | None = None
    before: int = 1
    dtype: DType | None = None


PLAIN = WrittenContext()
"""Nothing but a product's result."""


@dataclass(frozen=True)
class WrittenArguments:
    """A Python epilogue with its operands, checked.

    Attributes
    ----------
    spec
        What a kernel computes.
    operands
        Arrays that the kernel's threads load, by its names of them.
    source
        The matrix that the epilogue brings, if there is one.
    numbers
        Operands that are numbers, and how far the vectors of a batch are apart.
    matrices
        Those operands that are matrices.
    extras
        What is stored beside the result, in the function's order.
    names
        The caller's names of arrays, by the kernel's.
    """

    spec: WrittenSpec
    operands: Mapping[str, ArrayView]
    source: ArrayView | None
    numbers: Mapping[str, float]
    matrices: Mapping[str, Matrix]
    extras: tuple[Extra, ...]
    names: Mapping[str, str]

    @classmethod
    def read(
        cls,
        call: object,
        out: ArrayView,
        *,
        sources: bool = True,
        context: WrittenContext = PLAIN,
    ) -> WrittenArguments:
        """Check what `epilogue=` is given against the output.

        Parameters
        ----------
        call
            A function that `tilekit.epilogue` marks, called with its operands.
        out
            A matrix, or a batch of them.
        sources
            Whether the epilogue can bring a matrix.
        context
            What the family says of operands and results.

        Raises
        ------
        ArgumentError
            ``TK-EPI-004`` for operands that do not fit the output, and for what is no epilogue.
        """
        call = as_call(call)
        results, before = context.results, context.before
        reader = _Reader(out, context.groups or 0, sources)
        graph = call.graph
        for index, (name, kind, given) in enumerate(
            zip(call.function.operands, call.function.kinds, call.operands, strict=True)
        ):
            if index in graph.operands and kind == "s32":
                reader.numbers[f"operand{index}"] = whole_operand(graph, index, name, given)
                reader.places.append(Place("number"))
            elif index in graph.operands:
                reader.read(index, name, given, context.views.get(index))
            else:
                reader.places.append(Place("number"))
        outputs = tuple(dtype or context.dtype or out.dtype for dtype in graph.dtypes[1:])
        spec = WrittenSpec(graph, tuple(reader.places), outputs)
        extras = []
        shape = out.shape
        for stored, index in graph.order[1:]:
            if stored == "output":
                extras.append(Extra(f"output{index}", outputs[index - 1], shape))
            else:
                vectors = shape[:-2] if context.groups is None else (context.groups,)
                extent = shape[:-1] if graph.totals[index].along == "row" else (*vectors, shape[-1])
                extras.append(Extra(f"total{index}", F32, extent))
        if results is not None:
            require_as_many(graph, results, before)
        names = reader.names | {extra.name: f"out[{index}]" for index, extra in enumerate(extras, before)}
        found = cls(spec, reader.operands, reader.source, reader.numbers, reader.matrices, tuple(extras), names)
        return found.storing(results) if results else found

    def storing(self, arrays: Sequence[Any]) -> WrittenArguments:
        """The same with arrays for what is stored beside the result."""
        extras: list[Extra] = []
        matrices = dict(self.matrices)
        for extra, array in zip(self.extras, arrays, strict=True):
            name = self.names[extra.name]
            view = matrix_view(array, name)
            require_output(view, extra.shape, extra.dtype, (), name)
            if extra.name.startswith("output"):
                matrices[extra.name] = output_matrix(view, name)
            else:
                require_behind(view, name)
            extras.append(replace(extra, array=array, view=view))
        return replace(self, extras=tuple(extras), matrices=matrices)

    def returning(self, arrays: Sequence[Any]) -> WrittenArguments:
        """The same where what is stored are views, of these arrays."""
        extras = zip(self.extras, arrays, strict=True)
        return replace(self, extras=tuple(replace(extra, array=array) for extra, array in extras))

    @property
    def neutral(self) -> dict[str, float]:
        """What totals of no element are, by the kernel's names."""
        totals = self.spec.graph.totals
        return {f"total{index}": NEUTRAL[total.combine] for index, total in enumerate(totals)}

    @property
    def complete(self) -> bool:
        """Whether everything that is stored has its array."""
        return all(extra.array is not None for extra in self.extras)

    @property
    def views(self) -> dict[str, ArrayView]:
        """The arrays, by the kernel's names."""
        return {**self.operands, **{extra.name: extra.view for extra in self.extras if extra.view is not None}}


def as_call(epilogue: object) -> EpilogueCall:
    """What `epilogue=` is given, as a function with its operands.

    Raises
    ------
    ArgumentError
        ``TK-EPI-004`` for what is no epilogue.
    """
    if isinstance(epilogue, EpilogueFunction) and not epilogue.operands:
        epilogue = epilogue()
    if not isinstance(epilogue, EpilogueCall):
        legal = "a function that @tilekit.epilogue marks, called with its operands: epilogue=gated(gate, scale)"
        raise ArgumentError.of("epilogue", epilogue, legal=legal, code="TK-EPI-004")
    return epilogue


def require_as_many(graph: Graph, results: Sequence[Any], before: int = 1) -> None:
    """Raise `ArgumentError` (``TK-EPI-004``) for too few or too many arrays for what is stored beside the result.

    That has `before` arrays itself.
    """
    stored, given = len(graph.order) - 1 + before, len(results) + before
    if given != stored:
        raise ArgumentError(
            f"out is a tuple of {given}, and {graph.name} stores {stored}; nearest: a tuple of {stored}",
            code="TK-EPI-004",
        )


def require_behind(view: ArrayView, name: str) -> None:
    """Raise `ArgumentError` (``TK-EPI-004``) for totals whose values do not lie behind each other."""
    lines = zip(view.shape, view.strides, c_strides(view.shape), strict=True)
    if 0 not in view.shape and any(stride != packed for extent, stride, packed in lines if extent > 1):
        raise ArgumentError(
            f"{name} has strides {view.strides} (elements): its values must lie behind each other; nearest: an array "
            "in C order",
            code="TK-EPI-004",
        )


class _Reader:
    """Reads operands, one after the other."""

    def __init__(self, out: ArrayView, groups: int, sources: bool) -> None:
        self._out = out
        self._groups = groups
        self._sources = sources
        self.places: list[Place] = []
        self.operands: dict[str, ArrayView] = {}
        self.numbers: dict[str, float] = {}
        self.matrices: dict[str, Matrix] = {}
        self.source: ArrayView | None = None
        self.names: dict[str, str] = {}

    def read(self, index: int, name: str, given: Any, view: ArrayView | None) -> None:
        """Find the place of an operand."""
        key = f"operand{index}"
        self.names[key] = name
        if view is None and (isinstance(given, np.generic) or not is_array(given)):
            words = "a number or an array that broadcasts to the result"
            self.numbers[key] = number(given, name, words=words, code="TK-EPI-004")
            self.places.append(Place("number"))
            return
        view = matrix_view(given, name) if view is None else view
        if view.dtype not in LOADED:
            raise ArgumentError(
                f"{name} is {view.dtype}: operands of an epilogue are bf16, f16 or f32; nearest: f32", code="TK-EPI-004"
            )
        if prod(view.shape) == 1 and len(view.shape) <= len(self._out.shape):
            if view.device == "cpu" and isinstance(given, np.ndarray) and self._out.device != "cpu":
                self.numbers[key] = float(host_array(view).reshape(()))
                self.places.append(Place("number"))
                return
            self.operands[key] = view
            self.places.append(Place("scalar", view.dtype))
            return
        self._array(key, name, view)

    def _array(self, key: str, name: str, view: ArrayView) -> None:
        *batch, m, n = self._out.shape
        batches = batch[0] if batch else 1
        rank = len(view.shape)
        shape = (*(1,) * (3 - rank), *view.shape)
        groups = max(batches, self._groups)
        grouped = bool(self._groups) and rank == 3 and shape[0] == self._groups and shape[1] == 1
        fits = rank <= 3 and (rank <= len(self._out.shape) or grouped)
        fits = fits and shape[1] in (1, m) and shape[2] in (1, n) and shape[0] in (1, groups if grouped else batches)
        own = shape[0] > 1
        if not fits:
            legal = [f"({n},) for the columns", f"({m}, 1) for the rows", f"{self._out.shape}", "one element"]
            if batch:
                legal += [f"({batches}, 1, {n})", f"({batches}, {m}, 1)", f"({batches}, 1, 1)", f"({m}, {n})"]
            elif self._groups:
                legal += [f"({self._groups}, 1, {n}) for the columns of each group", f"({self._groups}, 1, 1)"]
            turned = f", or {name}[:, None] for a value a row" if view.shape == (m,) else ""
            raise ArgumentError(
                f"{name} has shape {view.shape}, which does not broadcast to the result, {self._out.shape}; legal: "
                f"{', '.join(legal)}{turned}",
                code="TK-EPI-004",
            )
        strides = (*(0,) * (3 - rank), *view.strides)
        if shape[1:] == (1, 1):
            if strides[0] < 0:
                raise self._apart(name, view)
            self.places.append(Place("scalar", view.dtype, batched=True))
            self.operands[key] = view
            self.numbers[f"{key}_batch_pitch"] = strides[0]
            return
        along = 2 if shape[1] == 1 else 1
        whole = shape[1:] == (m, n)  # of a result of one column a value a row may be a matrix, and lie apart
        if 1 in shape[1:] and (strides[along] == 1 or not whole):
            if strides[along] != 1:
                raise self._apart(name, view)
            self.places.append(Place("column" if along == 2 else "row", view.dtype, batched=own))
            self.operands[key] = view
            self.numbers[f"{key}_batch_pitch"] = strides[0] if own else 0
            return
        if strides[2] != 1 or min(strides) < 0:
            raise self._apart(name, view)
        brought = rows_of_groups(view) if batch and self._groups else view
        if (
            self._sources
            and self.source is None
            and view.dtype == self._out.dtype
            and brought is not None
            and store_kind(view.address, output_matrix(brought, name)) == "tma"
        ):
            self.source = brought
            self.names["residual"] = name
            self.places.append(Place("source", view.dtype))
            return
        self.places.append(Place("matrix", view.dtype, batched=bool(batch)))
        self.operands[key] = view
        self.matrices[key] = output_matrix(view, name)

    @staticmethod
    def _apart(name: str, view: ArrayView) -> ArgumentError:
        return ArgumentError(
            f"{name} has strides {view.strides} (elements): the elements of its rows, or of a vector, must lie behind "
            f"each other, and nothing run backwards; nearest: a copy, {name}.copy() of an array or "
            f"{name}.contiguous() of a tensor",
            code="TK-EPI-004",
        )


def epilogue_key(call: Any) -> Any:
    """What tells two epilogues apart as far as a launch is concerned.

    Raises
    ------
    TypeError
        For operands whose launches cannot be kept.
    """
    if not isinstance(call, EpilogueCall):
        raise TypeError("no epilogue with operands")
    if any(getattr(operand, "is_cuda", True) is False for operand in call.operands):
        raise TypeError("numbers in host memory, which may change")
    return call.graph, tuple(fingerprint(operand) for operand in call.operands)


def split_results(out: Any, epilogue: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """Of the `out` of a call, that of the result, and those of what an epilogue stores beside it: None without any."""
    if not isinstance(out, (tuple, list)):
        return out, None
    if epilogue is None or not out:
        legal = "one array; a tuple of them is for an epilogue that stores several"
        raise ArgumentError.of("out", f"a tuple of {len(out)}", legal=legal, code="TK-EPI-004")
    return out[0], tuple(out[1:])


__all__ = [
    "Extra",
    "WrittenArguments",
    "as_call",
    "epilogue_key",
    "require_as_many",
    "require_behind",
    "split_results",
    "view_of",
]
