"""Block-scaled matmuls among the families: the matmul's kernels with another payload and another instruction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilekit.kernels.block_scaled.arguments import CHIPS, BlockScaledArguments
from tilekit.kernels.block_scaled.compiled import BlockScaledKernel
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.matmul.family import MATMUL, build, select

BLOCK_SCALED = replace(
    MATMUL,
    name="block_scaled",
    summary="D = activation(scale * (A @ B) + bias + beta * residual) of MXFP8, MXFP4 and NVFP4, scaled in blocks of K",
    targets=CHIPS,
    arguments=BlockScaledArguments,
    spec=BlockScaledSpec,
    select=partial(select, kind=BlockScaledKernel),
    compile=partial(build, kind=BlockScaledKernel),
)
