"""Products of groups of rows that options describe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilekit.cli.common import refuse
from tilekit.cli.families import is_blockwise
from tilekit.cli.numbers import whole_numbers
from tilekit.cli.products import with_scales, workload_of

if TYPE_CHECKING:
    from tilekit.bench.blockwise import GroupedBlockwiseWorkload
    from tilekit.bench.grouped import GroupedWorkload
    from tilekit.cli.options import CallOptions
    from tilekit.kernels.family import Family

SIZES = (100, 0, 37, 175)
"""Rows of each group where none are given."""


def groups_of(family: Family, call: CallOptions, batch: int | None) -> GroupedWorkload | GroupedBlockwiseWorkload:
    """Return the groups that options describe: behind each other, or counted where there is room for more rows."""
    others = {"--m": call.m, "--batch": batch, "--bias": call.bias}
    for option, given in (others | {"--contiguous": call.contiguous}).items():
        if given not in (None, False):
            refuse(option, given, f"of products without groups only, which {family.name} is not")
    dtype = call.dtype or "bf16"
    like = groups_like(family, dtype, call.out_dtype, call.a_major, call.b_major, call.accumulation)
    sizes = SIZES if call.sizes is None else whole_numbers(call.sizes, "--sizes")
    usual = zip((call.n, call.k), call.usual[1:], strict=True)
    n, k = (default if given is None else given for given, default in usual)
    more: dict[str, Any] = {"activation": call.activation}
    if not is_blockwise(family):
        more["routing"] = "given"
    return replace(like, sizes=sizes, n=n, k=k, rows=call.room, **more)


def groups_like(
    family: Family, dtype: str, out_dtype: str | None, a_major: str, b_major: str, accumulation: str
) -> GroupedWorkload | GroupedBlockwiseWorkload:
    """Return groups of some shape whose types are those that shapes given in words have."""
    from tilekit.bench.blockwise import GroupedBlockwiseWorkload
    from tilekit.bench.grouped import GroupedWorkload

    like = workload_of((1, 1, 1), None, dtype, out_dtype, a_major, b_major, accumulation=accumulation)
    if is_blockwise(family):
        scaled = with_scales(like, None if dtype == "bf16" else dtype)
        return GroupedBlockwiseWorkload((1,), 1, 1, dtype=scaled.a_dtype, out_dtype=scaled.out_dtype)
    if like.a_dtype is not like.b_dtype:
        refuse("--dtype", dtype, "one type: groups' operands have the same", like.a_dtype.name)
    types: dict[str, Any] = {"dtype": like.a_dtype, "out_dtype": like.out_dtype}
    return GroupedWorkload((1,), 1, 1, routing="spread", **types, a_major=like.a_major, b_major=like.b_major)
