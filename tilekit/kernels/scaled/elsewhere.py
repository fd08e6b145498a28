"""What is nearest to a product with scales of blocks on a chip that does not have it, in words."""

from __future__ import annotations

from tilekit.targets import Target
from tilekit.tile_op.block_scaled import ScaleFormat

PLAIN = "tilekit.dequantise of both operands, as bf16, then tilekit.matmul"
"""What every chip computes."""


def of_block_scaled(chip: Target, scaled: ScaleFormat) -> str:
    """Of scales in blocks along K, which matrix instructions take."""
    if chip.has("warpgroup_matrix"):
        return (
            f"8-bit operands with f32 scales of 128 elements of K, (M, K/128) and (N/128, K/128), which {chip.name} "
            f"multiplies; or {PLAIN}"
        )
    return f"{PLAIN}, since {chip.name} takes no scales of {scaled.block} elements ({scaled.name})"


def of_blockwise(chip: Target) -> str:
    """Of f32 scales of 1x128 and 128x128 elements, which threads multiply."""
    if chip.has("scaled_matrix"):
        return f"ue8m0 scales of 32 elements, powers of two, which {chip.name} multiplies (MXFP8); or {PLAIN}"
    if chip.has("float8_matrix"):
        return f"tilekit.matmul with scale_a= of rows and scale_b= of columns, of operands quantised so; or {PLAIN}"
    return PLAIN
