"""Which family reads a call of `tilekit.scaled_matmul`: the scales' type says it."""

from __future__ import annotations

from typing import Any, Protocol, Unpack

from tilekit.dtypes import E4M3, F32, U8, UE8M0, DType
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.block_scaled.arguments import BlockScaledArguments
from tilekit.kernels.blockwise.arguments import BlockwiseArguments
from tilekit.kernels.scaled.keywords import OF_RESULTS, ScaledKeywords
from tilekit.kernels.scaled.views import SCALES, view_among
from tilekit.tile_op.block_scaled import FORMATS


class Reader(Protocol):
    """Reads a call, as a family's arguments do."""

    def __call__(
        self, a: Any, b: Any, scale_a: Any, scale_b: Any, *, memory: bool = True, **keywords: Unpack[ScaledKeywords]
    ) -> Arguments:
        """Read and check a call's arguments."""


READERS: dict[DType, Reader] = {
    UE8M0: BlockScaledArguments.parse,
    U8: BlockScaledArguments.parse,
    E4M3: BlockScaledArguments.parse,
    F32: BlockwiseArguments.parse,
}
"""By the type of `scale_a`."""


def read_scaled(
    a: Any, b: Any, scale_a: Any, scale_b: Any, *, memory: bool = True, **keywords: Unpack[ScaledKeywords]
) -> Arguments:
    """Read and check a call's arguments, as the family does that its scales belong to.

    Raises
    ------
    ArgumentError
        ``TK-SCALE-001`` for scales of another type, and what the family raises.
    """
    dtype = view_among(scale_a, "scale_a", SCALES, "f32").dtype
    if dtype not in READERS:
        near = "f32, one for every 128 elements of K"
        if dtype.bits <= 8:
            near = "ue8m0, a power of two for every 32 elements of K"
        raise ArgumentError(f"scale_a is {dtype}; legal: {SCALES}; nearest: {near}", code="TK-SCALE-001")
    given: dict[str, Any] = dict(keywords)
    asked = [name for name in OF_RESULTS if given.get(name) is not None]
    asked += ["out_dtype"] if isinstance(out := given.get("out_dtype"), str) and out in FORMATS else []
    if dtype is F32 and asked:
        name = asked[0]
        raise ArgumentError(
            f"{name}={given[name]!r} with f32 scales of blocks: such a product writes bf16, f16, f32, e4m3 or e5m2, "
            "without scales, and operands with ue8m0 or e4m3 scales are multiplied into quantised results; nearest: "
            "out_dtype='bf16', then tilekit.quantise",
            code="TK-SCALE-006",
        )
    return READERS[dtype](a, b, scale_a, scale_b, memory=memory, **keywords)
