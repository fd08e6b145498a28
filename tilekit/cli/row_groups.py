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
    like = groups_like(family, call.dtype, call.out_dtype, call.a_major, call.b_major, call.accumulation)
    sizes = SIZES if call.sizes is None else whole_numbers(call.sizes, "--sizes")
    _require_room(call, sizes)
    usual = zip((call.n, call.k), call.usual[1:], strict=True)
    n, k = (default if given is None else given for given, default in usual)
    more: dict[str, Any] = {"activation": call.activation}
    if not is_blockwise(family):
        more["routing"] = "given"
    return replace(like, sizes=sizes, n=n, k=k, rows=call.room, **more)


def _require_room(call: CallOptions, sizes: tuple[int, ...]) -> None:
    """Refuse room for fewer rows than the largest group has, or for more than kernels count."""
    from tilekit.bench.workload import MOST

    if call.room is None:
        return
    least, most = max(1, *sizes), MOST // len(sizes)
    if call.room < least:
        of = "--sizes" if call.sizes is not None else f"the usual --sizes {','.join(map(str, SIZES))}"
        refuse("--room", call.room, f"from 1 on, and at least the largest of {of}", least)
    if call.room > most:
        refuse("--room", call.room, f"{most} at most: kernels count {MOST} rows in all", most)


def groups_like(
    family: Family, dtype: str | None, out_dtype: str | None, a_major: str, b_major: str, accumulation: str
) -> GroupedWorkload | GroupedBlockwiseWorkload:
    """Return groups of some shape whose types are those that shapes given in words have."""
    from tilekit.bench.blockwise import GroupedBlockwiseWorkload
    from tilekit.bench.grouped import GroupedWorkload

    like = workload_of((1, 1, 1), None, dtype, out_dtype, a_major, b_major, accumulation=accumulation)
    scaled = with_scales(like, dtype) if is_blockwise(family) else None
    if like.a_dtype is not like.b_dtype:
        refuse("--dtype", dtype, "one type: groups' operands have the same", like.a_dtype.name)
    if scaled is not None:
        return GroupedBlockwiseWorkload((1,), 1, 1, dtype=scaled.a_dtype, out_dtype=scaled.out_dtype)
    types: dict[str, Any] = {"dtype": like.a_dtype, "out_dtype": like.out_dtype}
    return GroupedWorkload((1,), 1, 1, routing="spread", **types, a_major=like.a_major, b_major=like.b_major)
