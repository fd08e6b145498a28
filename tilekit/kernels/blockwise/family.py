"""Products with scales of blocks among the families: the matmul's kernels with another payload and accumulator."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilekit.kernels.blockwise.arguments import BlockwiseArguments, GroupedBlockwiseArguments
from tilekit.kernels.blockwise.compiled import BlockwiseKernel, GroupedBlockwiseKernel
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.grouped import family as grouped
from tilekit.kernels.matmul.family import COPY_ENGINE_CHIPS, MATMUL, build, select

BLOCKWISE = replace(
    MATMUL,
    name="blockwise",
    summary="D = activation(sum over K of scale_a * scale_b * (A @ B) + bias), 8 bits, a scale for 128 elements of K",
    arguments=BlockwiseArguments,
    targets=COPY_ENGINE_CHIPS,
    spec=BlockwiseSpec,
    select=partial(select, kind=BlockwiseKernel),
    compile=partial(build, kind=BlockwiseKernel),
)

GROUPED_BLOCKWISE = replace(
    BLOCKWISE,
    name="grouped_blockwise",
    summary=grouped.GROUPED_MATMUL.summary.replace("A @ B", "scaled A @ B"),
    arguments=GroupedBlockwiseArguments,
    select=partial(grouped.select, kind=GroupedBlockwiseKernel),
    compile=partial(build, kind=GroupedBlockwiseKernel),
    grouped=True,
)
