"""A call of `tilekit.grouped_matmul`, read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, Unpack

import numpy as np

from tilekit.annotations import checked_values
from tilekit.arrays import ArrayView, host_array, is_array, require_same_place, view_of_int32
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import result_type, settings
from tilekit.kernels.matmul.arguments import CallKeywords
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.own_arguments import OwnArguments, OwnKeywords
from tilekit.kernels.matmul.platforms import read_for
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.problem import MatmulCall, MatmulProblem, matrix_view, rows_of_groups
from tilekit.kernels.resolve import resolve_target
from tilekit.kernels.written_arguments import WrittenContext, split_results
from tilekit.targets import Target
from tilekit.tile_io.copy_plan import WIDTHS
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.tile import Groups


class GroupedKeywords(CallKeywords, OwnKeywords, total=False):
    """What `tilekit.grouped_matmul` takes; it says what each is."""

    counts: Any
    epilogue: Any


@dataclass(frozen=True, kw_only=True)
class GroupedArguments(OwnArguments):
    """The arguments of products of groups of rows; `a` has the rows of all groups.

    Attributes
    ----------
    kind, bounds
        How the groups' rows are told, and where.
    group_rows
        How far apart groups begin that do not lie behind each other.
    """

    kind: Groups
    bounds: ArrayView
    group_rows: int = 0

    @classmethod
    def parse(
        cls, a: Any, b: Any, ends: Any = None, *, memory: bool = True, **keywords: Unpack[GroupedKeywords]
    ) -> Self:
        """Read and check a call's arguments; without `memory` they are layouts alone, whose bounds nothing reads.

        Raises
        ------
        ArgumentError, DriverError
            Naming the argument.
        """
        given = checked_values(GroupedKeywords, keywords)
        va, vb = matrix_view(a, "a"), matrix_view(b, "b")
        kind, bounds = _bounds(va, vb, ends, given.get("counts"), memory=memory)
        out, results = split_results(given.get("out"), given.get("epilogue"))
        name = "out" if results is None else "out[0]"
        vo = None if out is None else matrix_view(out, name)
        dtype = result_type(va, vo, given.get("out_dtype"))
        if va.device != "cpu":
            require_same_place([("a", va), (kind, bounds)])
        target, device = resolve_target(va, given.get("target"), memory=memory)
        rows = _flat(va, "a")
        group_rows = va.shape[1] if kind == "counts" else 0
        call = cls.of(
            _problem(target, rows, vb, kind, group_rows),
            rows,
            vb,
            vo,
            dtype,
            {"epilogue": given.get("epilogue")},
            memory=memory,
            out_name=name,
            written=WrittenContext(results, groups=vb.shape[0]),
            shape=(*va.shape[:-1], vb.shape[-1]),
            target=target,
            device=device,
            components=given.get("components") or OwnComponents(),
            **settings(given) | {"result": out},
            kind=kind,
            bounds=bounds,
            group_rows=group_rows,
        )
        return call.with_inputs(given.get("arrays"), groups=vb.shape[0])

    @property
    def layout(self) -> ArrayView:
        """The output's rows as one matrix."""
        return _flat(self.out, "out")

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute: without groups no row is any's."""
        return super().empty or self.bounds.shape[0] == 0

    @property
    def neutral(self) -> dict[str, float]:
        """What totals are where there is nothing to compute: without groups, what they were."""
        return super().neutral if self.bounds.shape[0] else {}

    @property
    def store(self) -> str:
        """How the result can be stored; where there is none, as kernels of groups do on every chip."""
        return "tma" if self.empty else super().store

    @cached_property
    def spec(self) -> MatmulSpec:
        """The matmul whose tiles are the groups'."""
        return self.plain_spec

    @property
    def plain_spec(self) -> MatmulSpec:
        """The same, of groups without scales."""
        return MatmulSpec(
            a_dtype=self.a.dtype,
            b_dtype=self.b.dtype,
            out_dtype=self.out.dtype,
            a_major=self.problem.a.major,
            b_major=self.problem.b.major,
            functions=self.functions,
            groups=self.kind,
            store=self.store,
            a_load=self.problem.a.load,
            b_load=self.problem.b.load,
            components=self.components,
        )

    @property
    def words(self) -> dict[str, str]:
        """What the caller calls those arrays that have another name in a launch."""
        return {**super().words, "groups": self.kind}

    @property
    def arrays(self) -> dict[str, ArrayView]:
        """Everything in memory, by the names of `Addresses`."""
        return {**super().arrays, "groups": self.bounds}

    @property
    def call(self) -> MatmulCall:
        """What a launch needs beside addresses."""
        return replace(super().call, groups=self.b.shape[0], group_rows=self.group_rows)


def _bounds(a: ArrayView, b: ArrayView, ends: Any, counts: Any, *, memory: bool) -> tuple[Groups, ArrayView]:
    """Which kind of bounds, and their view; values in host memory are checked."""
    if (ends is None) == (counts is None):
        raise ArgumentError(
            "pass either ends (groups behind each other) or counts (groups of up to R rows each)", code="TK-GROUP-001"
        )
    kind: Groups = "ends" if counts is None else "counts"
    wanted = 2 if kind == "ends" else 3
    if len(a.shape) != wanted or len(b.shape) != 3 or (kind == "counts" and a.shape[0] != b.shape[0]):
        legal = "a (M, K) and b (G, K, N)" if kind == "ends" else "a (G, R, K) and b (G, K, N)"
        raise ArgumentError(f"a is {a.shape} and b is {b.shape}: {kind} take {legal}", code="TK-GROUP-001")
    if a.shape[-1] != b.shape[1]:
        raise ArgumentError(
            f"a is {a.shape} and b is {b.shape}: K must agree, but a has K={a.shape[-1]} columns and b's matrices have "
            f"K={b.shape[1]} rows"
            + (
                " (b looks transposed: pass it with its last two dimensions exchanged)"
                if b.shape[2] == a.shape[-1]
                else ""
            ),
            code="TK-MM-011",
        )
    array = ends if counts is None else counts
    view = view_of_int32(array if is_array(array) else _listed(array, kind), kind, code="TK-GROUP-002")
    if view.shape != (b.shape[0],) or (b.shape[0] > 1 and view.strides != (1,)):
        way = f"; pass a copy, for example {kind}.copy() of an array" if view.shape == (b.shape[0],) else ""
        raise ArgumentError(
            f"{kind} is {view.dtype} of shape {view.shape} and strides {view.strides} (elements): one contiguous int32 "
            f"for each of b's {b.shape[0]} groups is needed, with strides (1,){way}",
            code="TK-GROUP-002",
        )
    if view.device == "cpu" and memory:
        _check(kind, host_array(view), a.shape[-2])
    return kind, view


def _listed(bounds: Any, kind: Groups) -> np.ndarray[Any, Any]:
    """Bounds that came as a list of numbers."""
    try:
        return np.array(bounds, np.int32)
    except Exception:  # NumPy asks the numbers, which may be anything
        raise ArgumentError.of(kind, bounds, legal="an integer of 32 bits a group", code="TK-GROUP-002") from None


def _check(kind: Groups, values: np.ndarray[Any, Any], rows: int) -> None:
    previous = 0
    for group, value in enumerate(values.tolist()):
        least = previous if kind == "ends" else 0
        if not least <= value <= rows:
            raise ArgumentError(
                f"{kind}[{group}] = {value}: legal: {least} to {rows}; nearest: {min(max(value, least), rows)}",
                code="TK-GROUP-002",
            )
        previous = value


def _flat(view: ArrayView, name: str) -> ArrayView:
    """The rows of all groups as one matrix."""
    if len(view.shape) == 2:
        return view
    flat = rows_of_groups(view)
    if flat is None:
        rows = view.shape[1]
        legal = f"groups behind each other, {rows} rows apart"
        if view.strides[1] == 1 and view.shape[2] > 1:
            legal = (
                f"contiguous rows, or those of all groups behind each other, {rows} elements apart; nearest: an array "
                f"of shape {(view.shape[2], *view.shape[:2])}, its axes moved by .transpose(1, 2, 0)"
            )
        raise ArgumentError(f"{name} has strides {view.strides} (elements); legal: {legal}", code="TK-GROUP-003")
    return flat


def _problem(target: Target, a: ArrayView, b: ArrayView, kind: Groups, group_rows: int) -> MatmulProblem:
    """All rows times one matrix, whose operand B has a matrix a group."""
    problem = read_for(target, replace(a, shape=(1, *a.shape), strides=(0, *a.strides)), b)
    first = problem.a
    if first.major == "mn":
        # Tiles begin where groups do: at any row, or at multiples of a group's.
        start = a.dtype.bytes * (group_rows if kind == "counts" else 1)
        if start % TMA_ALIGNMENT:
            width = next(width for width in WIDTHS if start % width == 0)
            first = replace(first, load=width if first.load == "tma" else min(width, first.load))
    return replace(problem, a=first, batches=1, batched=False)
