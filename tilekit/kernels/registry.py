"""Every kernel family there is: what calls are offered to, the command line lists, documents tabulate and tests run."""

from __future__ import annotations

from functools import cache

from tilekit.kernels.attention.family import ATTENTION
from tilekit.kernels.block_scaled.family import BLOCK_SCALED
from tilekit.kernels.blockwise.family import BLOCKWISE, GROUPED_BLOCKWISE
from tilekit.kernels.conv2d.family import CONV2D
from tilekit.kernels.family import Family
from tilekit.kernels.gemv.family import GEMV
from tilekit.kernels.grouped.family import GROUPED_MATMUL
from tilekit.kernels.matmul.family import MATMUL


@cache
def families() -> dict[str, Family]:
    """All families by name, in the order in which a call is offered to them: the special before the general."""
    every = GEMV, MATMUL, GROUPED_MATMUL, CONV2D, BLOCK_SCALED, BLOCKWISE, GROUPED_BLOCKWISE, ATTENTION
    return {family.name: family for family in every}
