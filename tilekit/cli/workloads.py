"""Workloads that options describe, of whatever family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilekit.cli.attention_calls import attention_like, attention_of
from tilekit.cli.common import refuse
from tilekit.cli.convolutions import convolution_like, convolution_of
from tilekit.cli.families import attends, is_block_scaled, is_blockwise, takes_images
from tilekit.cli.options import OF_ATTENTION, OF_GROUPS, OF_IMAGES
from tilekit.cli.products import product_of, with_scales, workload_of
from tilekit.cli.row_groups import groups_like, groups_of

if TYPE_CHECKING:
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.bench.blockwise import GroupedBlockwiseWorkload
    from tilekit.bench.conv2d import ConvWorkload
    from tilekit.bench.grouped import GroupedWorkload
    from tilekit.bench.workload import MatmulWorkload
    from tilekit.cli.options import CallOptions
    from tilekit.kernels.family import Family

    Described = MatmulWorkload | ConvWorkload | AttentionWorkload | GroupedWorkload | GroupedBlockwiseWorkload
    """What options describe."""


def described(family: Family, call: CallOptions, batch: int | None = None) -> Described:
    """Build the workload that options describe, and refuse those that are of the other kind of call."""
    from tilekit.errors import ArgumentError

    if call.extent is not None:
        legal = f"of a kernel of yours, FILE.py:NAME, which {family.name} is not"
        raise ArgumentError.of("--extent", call.extent, legal=legal, code="TK-CLI-013")
    if attends(family):
        return attention_of(call, batch)
    for name in OF_ATTENTION:
        if getattr(call, name) not in (None, False):
            legal = f"of attention only, which {family.name} is not"
            raise ArgumentError.of(f"--{name.replace('_', '-')}", getattr(call, name), legal=legal, code="TK-CLI-001")
    convolved = takes_images(family)
    foreign: dict[str, Any] = {name: getattr(call, name) for name in OF_IMAGES}
    if convolved:
        foreign = {"m": call.m, "batch": batch, "contiguous": call.contiguous}
        majors = {"a_major": call.a_major, "b_major": call.b_major}
        foreign |= {name: major for name, major in majors.items() if major != "k"}
    for name, value in foreign.items():
        if value not in (None, False):
            legal = "of a product" if convolved else "of conv2d"
            legal = f"{legal} only, which {family.name} is not"
            raise ArgumentError.of(f"--{name.replace('_', '-')}", value, legal=legal, code="TK-CLI-001")
    for name in OF_GROUPS:
        if getattr(call, name) is not None and not family.grouped:
            legal = f"of grouped_matmul and grouped_blockwise only, which {family.name} is not"
            raise ArgumentError.of(f"--{name}", getattr(call, name), legal=legal, code="TK-CLI-001")
    if family.grouped:
        return groups_of(family, call, batch)
    return convolution_of(call) if convolved else product_of(family, call, batch)


def like_of(
    family: Family, dtype: str | None, out_dtype: str | None, a_major: str, b_major: str, accumulation: str
) -> Described:
    """Return a workload of some shape whose types are those that shapes given in words have."""
    if attends(family):
        return attention_like(dtype, out_dtype, a_major, b_major, accumulation)
    if family.grouped:
        return groups_like(family, dtype, out_dtype, a_major, b_major, accumulation)
    if is_block_scaled(family):
        from tilekit.bench.scaled import ScaledWorkload

        plain = workload_of((1, 1, 2), None, "e4m3", out_dtype, a_major, b_major, accumulation=accumulation)
        return ScaledWorkload.like(plain, dtype or "mxfp8")
    if takes_images(family):
        for option, major in (("--a-major", a_major), ("--b-major", b_major)):
            if major != "k":
                refuse(option, major, "of a product only, which conv2d is not", "k")
        return convolution_like(dtype, out_dtype, accumulation)
    like = workload_of((1, 1, 1), None, dtype, out_dtype, a_major, b_major, contiguous=True, accumulation=accumulation)
    return with_scales(like, dtype) if is_blockwise(family) else like
