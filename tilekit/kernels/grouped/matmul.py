"""`tilekit.grouped_matmul`: groups of rows, each times a matrix of its own, in one launch."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from tilekit.annotations import checked_values
from tilekit.arrays import (
    ArrayView,
    empty_like_library,
    fingerprint,
    hand_over,
    host_array,
    is_array,
    require_dtype,
    require_output,
    require_same_place,
    resolve_stream,
    view_of,
)
from tilekit.dtypes import BF16, S32, as_dtype
from tilekit.epilogue.functions import Activation, ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.compiled import compiled
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.picker import pick
from tilekit.kernels.matmul.place import place
from tilekit.kernels.matmul.plan import DevicePlan, EmulatedPlan, MatmulPlan, StagedPlan
from tilekit.kernels.matmul.problem import (
    MatmulCall,
    MatmulProblem,
    matrix_view,
    output_matrix,
    read_problem,
    store_kind,
)
from tilekit.kernels.matmul.spec import Groups, MatmulSpec
from tilekit.kernels.ready import ReadyLaunches
from tilekit.targets import PlaceName, Target


def grouped_matmul(
    a: Any,
    b: Any,
    ends: Any = None,
    *,
    counts: Any = None,
    out: Any = None,
    activation: Activation | None = None,
    out_dtype: Any = None,
    stream: Any = None,
    config: AnyConfig | None = None,
    target: PlaceName | None = None,
) -> Any:
    """Multiply groups of rows of `a`, each by its own matrix of `b`: the linear layers of a mixture of experts.

    Parameters
    ----------
    a
        With `ends`: (M, K), the groups' rows behind each other. With `counts`: (G, R, K), up to R rows a group.
    b
        (G, K, N), a matrix a group. Either of the last two dimensions may be contiguous.
    ends
        G int32: one past each group's last row. They stay on the device; where they are in host memory they
        are checked.
    counts
        G int32: the rows of each group that are computed; the others of `out` are left as they are.
    out
        (M, N) or (G, R, N); made new, uninitialised where nothing is computed, if None.
    activation, out_dtype, stream, config, target
        As for `tilekit.matmul`.

    Raises
    ------
    ArgumentError
        Naming the argument, what was given, what is legal, and the nearest legal value: also for bounds in host memory
        that are out of order or out of range. On a device nobody looks at them before the kernel, which takes the
        nearest legal bound instead: an end before the last group's end makes a group empty, one beyond M ends with the
        last row, and a count is cut to 0 … R. Rows that belong to no group are left as they are.
    """
    key = None
    if out is not None:
        array = ends if counts is None else counts
        try:
            key = (*map(fingerprint, (a, b, array, out)), counts is None, activation, out_dtype, config, target)
            ready = _ready.launches.get(key)
        except Exception:  # no array, or a list of bounds: binding says what is wrong, if anything
            ready = key = None
        if ready is not None:
            ready.launch(ready.current_stream() if stream is None else resolve_stream(stream, view_of(out)))
            return out
    how = checked_values(grouped_matmul, {"activation": activation, "config": config, "target": target})
    va, vb = matrix_view(a, "a"), matrix_view(b, "b")
    kind, bounds = _bounds(va, vb, ends, counts)
    dtype = as_dtype(out_dtype, "out_dtype") if out_dtype is not None else va.dtype if va.dtype.bits > 8 else BF16
    shape = (*va.shape[:-1], vb.shape[-1])
    given = out
    if out is None:
        out = empty_like_library(va, shape, dtype)
    elif out_dtype is not None:
        require_dtype(matrix_view(out, "out"), dtype)
    plan = bind(va, vb, bounds, matrix_view(out, "out"), out, kind, shape, **how)
    plan(stream)
    if plan.ready is not None and key is not None:
        _ready.keep_launch(key, plan.ready)
    return out if given is not None else hand_over(out, va)


_ready = ReadyLaunches()


def bind(
    a: ArrayView,
    b: ArrayView,
    bounds: ArrayView,
    vo: ArrayView,
    out: Any,
    kind: Groups,
    shape: tuple[int, ...],
    *,
    activation: Activation | None,
    config: KernelConfig | None,
    target: str | None,
) -> MatmulPlan:
    """Check the arrays once and prepare the launch; calling the result launches it."""
    require_output(vo, shape, vo.dtype, [("a", a), ("b", b)])
    require_same_place([("a", a), ("b", b), ("out", vo)] + ([("bounds", bounds)] if a.device != "cpu" else []))
    rows_a, rows_out = _flat(a, "a"), _flat(vo, "out")
    problem = _problem(rows_a, b)
    chip, device = place(a, target)
    for operand in (problem.a, problem.b):
        if operand.load != "tma":
            raise ArgumentError(
                f"{operand.name}'s address and pitches (its rows are {operand.pitch} bytes apart) are multiples of "
                f"{operand.load} bytes only; the copy engine needs multiples of 16: pad the rows, and pass a view",
                code="TK-GROUP-003",
            )
    matrix = output_matrix(rows_out)
    if store_kind(vo.address, matrix) == "direct":
        raise ArgumentError(
            f"out, {vo.dtype} of shape {vo.shape}, cannot be written by the copy engine, which needs addresses, "
            "pitches and rows in multiples of 16 bytes; pad N, or pass an out of padded rows",
            code="TK-GROUP-003",
        )
    spec = MatmulSpec(
        a_dtype=a.dtype,
        b_dtype=b.dtype,
        out_dtype=vo.dtype,
        a_major=problem.a.major,
        b_major=problem.b.major,
        functions=ElementwiseSpec(activation=activation),
        groups=kind,
    )
    chosen = _config(spec, chip, problem, b.shape[0]) if config is None else config
    kernel = compiled(spec, chosen, chip)
    group_rows = a.shape[1] if kind == "counts" else 0
    call = MatmulCall(problem, matrix, groups=b.shape[0], group_rows=group_rows)
    operands = {"a": rows_a, "b": b, "out": vo, "groups": bounds}
    if 0 in shape:
        return MatmulPlan(out, vo)
    if vo.device != "cpu":
        return DevicePlan(kernel, call, operands, out)
    return StagedPlan(kernel, call, operands, out) if device == "cuda" else EmulatedPlan(kernel, call, operands, out)


def _bounds(a: ArrayView, b: ArrayView, ends: Any, counts: Any) -> tuple[Groups, ArrayView]:
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
    array = ends if counts is None else counts
    view = view_of(array if is_array(array) else _listed(array, kind), kind)
    if view.shape != (b.shape[0],) or view.dtype != S32 or (b.shape[0] > 1 and view.strides != (1,)):
        raise ArgumentError(
            f"{kind} is {view.dtype} of shape {view.shape}: one contiguous int32 for each of the {b.shape[0]} groups "
            "is needed",
            code="TK-GROUP-002",
        )
    if view.device == "cpu":
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
    groups, rows, inner = view.shape
    if groups > 1 and view.strides[0] != rows * view.strides[1]:
        raise ArgumentError(
            f"{name} has strides {view.strides} (elements): its groups must lie behind each other, {rows} rows apart",
            code="TK-GROUP-003",
        )
    return replace(view, shape=(groups * rows, inner), strides=view.strides[1:])


def _problem(a: ArrayView, b: ArrayView) -> MatmulProblem:
    """All rows times one matrix, whose operand B has a matrix a group."""
    problem = read_problem(replace(a, shape=(1, *a.shape), strides=(0, *a.strides)), b)
    return replace(problem, batches=1, batched=False)


def _config(spec: MatmulSpec, chip: Target, problem: MatmulProblem, groups: int) -> KernelConfig:
    """What the model picks for groups of so many rows in all."""
    return _pick(spec, chip, m=problem.m, n=problem.n, k=problem.k, groups=groups)


_pick = lru_cache(maxsize=256)(pick)
