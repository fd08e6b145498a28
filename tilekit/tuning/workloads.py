"""What is measured for a problem: a workload of the benchmarks' whose kernels are the call's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from tilekit.bench.attention import AttentionWorkload
from tilekit.bench.blockwise import BlockwiseWorkload, GroupedBlockwiseWorkload
from tilekit.bench.conv2d import ConvWorkload
from tilekit.bench.gemv import GemvWorkload
from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.row_groups import spread
from tilekit.bench.scaled import ScaledWorkload
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import DType, as_dtype
from tilekit.errors import ArgumentError
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.dispatch import offer
from tilekit.kernels.family import Selection
from tilekit.kernels.family_kernel import CallArguments
from tilekit.kernels.gemv.family import GEMV
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.targets import Target
from tilekit.tuning.table import Problem

Tunable = MatmulWorkload | ConvWorkload | GroupedWorkload | GroupedBlockwiseWorkload | AttentionWorkload
"""What has configs to choose from."""

_KINDS: Mapping[str, type[Any]] = {
    "matmul": MatmulWorkload,
    "fused_matmul": MatmulWorkload,
    "gemv": GemvWorkload,
    "conv2d": ConvWorkload,
    "fused_conv2d": ConvWorkload,
    "block_scaled": ScaledWorkload,
    "blockwise": BlockwiseWorkload,
    "grouped_matmul": GroupedWorkload,
    "grouped_blockwise": GroupedBlockwiseWorkload,
    "attention": AttentionWorkload,
}


def to_values(workload: Tunable) -> dict[str, Any]:
    """A workload's fields as JSON has them."""
    values = {field.name: getattr(workload, field.name) for field in fields(workload)}
    return {name: value.name if isinstance(value, DType) else value for name, value in values.items()}


def from_values(family: str, values: Mapping[str, Any]) -> Tunable:
    """Build a workload from its fields as JSON has them."""
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    plain |= {name: as_dtype(value) for name, value in values.items() if name.endswith("dtype")}
    workload: Tunable = _KINDS[family](**plain)
    return workload


def extents(workload: Tunable, spec: Any) -> dict[str, Any]:
    """The extents of a workload's `Problem`; a gemv's rows are those that its kernel is built for.

    Attention's are queries, heads and keys, and its groups are heads of keys.
    """
    if isinstance(workload, AttentionWorkload):
        shape = {"m": workload.queries, "n": workload.heads, "k": workload.keys}
        return {**shape, "batches": workload.batch, "groups": workload.kv_heads}
    m = spec.tokens if isinstance(spec, GemvSpec) else workload.m
    shape = {"m": m, "n": workload.n, "k": workload.k // getattr(spec.a_dtype, "packed", 1)}
    return {**shape, "batches": workload.batch or 1, "groups": workload.row_groups}


def as_computed(workload: Tunable, target: Target) -> Tunable:
    """The same workload as the chip's family has it: a product of a few rows may be a gemv's.

    Of a convolution the chip says how operands are loaded, and with that how long its sums are.
    """
    if isinstance(workload, ConvWorkload):
        return replace(workload, target=target.name)
    if type(workload) is not MatmulWorkload:
        return workload
    a, b, out = workload.views
    how: dict[str, Any] = {"precision": workload.precision, "accumulation": workload.accumulation}
    call = MatmulArguments.parse(a, b, out=out, target=target.name, memory=False, **how)
    if not isinstance(offer(GEMV, call), Selection):
        return workload
    return GemvWorkload(**{field.name: getattr(workload, field.name) for field in fields(workload)})


def workload_for(spec: Any, target: Target, problem: Problem, call: CallArguments | None) -> Tunable | None:
    """A workload that the same configs compute; None where there is none."""
    for make in _candidates(spec, problem, call):
        try:
            workload: Tunable = make()
            own = workload.spec_on(target.name)
            if type(own) is type(spec) and Problem.of(own, **extents(workload, own)) == problem:
                return workload
        except ArgumentError:  # not for arrays that lie so
            continue
    return None


def _candidates(spec: Any, problem: Problem, call: CallArguments | None) -> Iterator[Any]:
    """What makes the workloads that may be like a call."""
    if isinstance(spec, BlockScaledSpec):
        of = _product(spec, problem) | {"k": problem.k * spec.format.packed, "scaled": spec.scaled}
        for padded in (False, True):
            yield lambda padded=padded: ScaledWorkload(**of, padded=padded)
    elif isinstance(call, AttentionArguments):
        yield lambda: _attention(call)
    elif isinstance(call, ConvArguments):
        yield lambda: _convolution(call)
    elif isinstance(spec, BlockwiseSpec) and spec.groups is not None:
        types: dict[str, Any] = {"dtype": spec.a_dtype, "out_dtype": spec.out_dtype}
        yield lambda: GroupedBlockwiseWorkload(*_groups(spec, problem), **types)
    elif isinstance(spec, BlockwiseSpec):
        for padded, major in ((False, "mn"), (False, "k"), (True, "mn"), (True, "k")):
            yield lambda padded=padded, major=major: BlockwiseWorkload(
                **_product(spec, problem), padded=padded, scales_major=major
            )
    elif isinstance(spec, GemvSpec):
        for padded in (False, True):
            yield lambda padded=padded: GemvWorkload(**_product(spec, problem), b_major=spec.b_major, padded=padded)
    elif spec.groups is not None:
        types = {"dtype": spec.a_dtype, "out_dtype": spec.out_dtype, "a_major": spec.a_major, "b_major": spec.b_major}
        yield lambda: GroupedWorkload(*_groups(spec, problem), routing="spread", **types)
    else:
        how = {name: getattr(spec, name) for name in ("a_major", "b_major", "precision", "accumulation")}
        how["batch"] = problem.batches if spec.batched else None
        for padded in (False, True):
            yield lambda padded=padded: MatmulWorkload(**_product(spec, problem), **how, padded=padded)


def _product(spec: Any, problem: Problem) -> dict[str, Any]:
    types = {name: getattr(spec, name) for name in ("a_dtype", "b_dtype", "out_dtype")}
    return {"m": problem.m, "n": problem.n, "k": problem.k, **types}


def _groups(spec: Any, problem: Problem) -> tuple[tuple[int, ...], int, int, int | None]:
    """Sizes of groups, N, K, and how far groups begin apart: then half of those rows are taken to be computed."""
    if spec.groups == "ends":
        return spread(problem.m, problem.groups), problem.n, problem.k, None
    rows = problem.m // problem.groups
    sizes = tuple(min(size, rows) for size in spread(max(1, problem.m // 2), problem.groups))
    return sizes, problem.n, problem.k, rows


def _attention(call: AttentionArguments) -> AttentionWorkload:
    q, k, v = (call.views[name] for name in "qkv")
    batch, queries, heads, elements = q.shape
    return AttentionWorkload(
        batch,
        queries,
        k.shape[1],
        heads,
        k.shape[2],
        elements,
        q.dtype,
        window=None if call.left is None and call.right is None else (_before(call.left), call.right),
        softcap=call.softcap,
        value_dim=v.shape[3],
    )


def _before(left: int | None) -> int | None:
    """Keys before its own that a query sees, of the bound from the diagonal on."""
    return None if left is None else -left


def _convolution(call: ConvArguments) -> ConvWorkload:
    down, along = call.axes
    (n, h, w, c), (k, r, s, each) = call.a.shape, call.b.shape
    return ConvWorkload(
        (n, h, w, c),
        (k, r, s),
        stride=(down.step, along.step),
        padding=(down.pad, along.pad),
        dilation=(down.apart, along.apart),
        groups=c // each,
        a_dtype=call.a.dtype,
        b_dtype=call.b.dtype,
        out_dtype=call.out.dtype,
        accumulation=call.accumulation,
    )
