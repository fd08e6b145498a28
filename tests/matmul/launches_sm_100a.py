"""Blackwell's kernels that are launched: every knob of `BlackwellConfig` and `MatmulSpec`, in combinations."""

from __future__ import annotations

from typing import Any

from tests.matmul.matmul_launch import LaunchCase, computes
from tilekit import BlackwellConfig
from tilekit.dtypes import BF16, F16, F32

Pair = tuple[int, int]


def single(rows: int, columns: int, cluster: Pair = (1, 1), **knobs: Any) -> BlackwellConfig:
    """A config whose matrix instructions span one CTA."""
    return BlackwellConfig((rows, columns), cluster, 1, **knobs)


def pairs(rows: int, columns: int, cluster: Pair = (2, 1), **knobs: Any) -> BlackwellConfig:
    """A config of CTA pairs."""
    return BlackwellConfig((rows, columns), cluster, 2, **knobs)


SHAPES = (
    # One CTA alone: rows, columns, depth of every ring.
    LaunchCase(single(128, 64, stages=1, accumulator_stages=1, output_buffers=1)),
    LaunchCase(single(128, 128, stages=2, clc_stages=3)),
    LaunchCase(single(128, 256, stages=3, output_buffers=4), tiles=(2, 2)),
    LaunchCase(single(128, 16, stages=8, accumulator_stages=4), tiles=(3, 3)),
    LaunchCase(single(128, 48, stages=5, accumulator_stages=3, output_buffers=3), tiles=(3, 2)),
    LaunchCase(single(128, 96, stages=3, k_group=2)),
    LaunchCase(single(128, 112, stages=1, k_group=4)),
    LaunchCase(single(128, 208, stages=4, clc_stages=3), tiles=(2, 3)),
    LaunchCase(single(128, 240, accumulator_stages=2, clc_stages=0), tiles=(2, 2), k_blocks=2),
    LaunchCase(single(64, 64, stages=3)),
    LaunchCase(single(64, 128, stages=7, accumulator_stages=4, clc_stages=4), tiles=(3, 3)),
    LaunchCase(single(64, 256, stages=2, output_buffers=1), tiles=(3, 2)),
    LaunchCase(single(64, 112, stages=1, accumulator_stages=3, clc_stages=3)),
    LaunchCase(single(64, 16, k_group=4, stages=2), tiles=(3, 3)),
    LaunchCase(single(64, 80, clc_stages=0, stages=2), tiles=(4, 2)),
    # Pairs alone.
    LaunchCase(pairs(128, 64, stages=1, accumulator_stages=1)),
    LaunchCase(pairs(128, 128, stages=2, output_buffers=1)),
    LaunchCase(pairs(128, 256, stages=2, accumulator_stages=2), tiles=(2, 2)),
    LaunchCase(pairs(128, 48, stages=4, accumulator_stages=4, clc_stages=3), tiles=(3, 3)),
    LaunchCase(pairs(128, 112, stages=3, k_group=2)),
    LaunchCase(pairs(128, 208, stages=2, clc_stages=0), tiles=(2, 3)),
    LaunchCase(pairs(128, 32, stages=8, k_group=1, output_buffers=4)),
    LaunchCase(pairs(64, 64, stages=2)),
    LaunchCase(pairs(64, 128, stages=3, accumulator_stages=3, output_buffers=3)),
    LaunchCase(pairs(64, 256, stages=4, clc_stages=3), tiles=(2, 2)),
    LaunchCase(pairs(64, 96, stages=1, accumulator_stages=1, output_buffers=1)),
    LaunchCase(pairs(64, 32, stages=4, k_group=4, accumulator_stages=4), tiles=(3, 3)),
    LaunchCase(pairs(64, 224, stages=2, clc_stages=0), tiles=(2, 2)),
)
"""Shapes of the instruction and depths of the rings."""

CLUSTERS = (
    # Multicast: CTAs of a row share A, those of a column share B.
    LaunchCase(single(128, 64, (2, 1), stages=2)),
    LaunchCase(single(128, 64, (1, 2), stages=3)),
    LaunchCase(single(128, 96, (2, 2), stages=2, clc_stages=3), tiles=(2, 2)),
    LaunchCase(single(64, 64, (4, 1), stages=4), tiles=(2, 3)),
    LaunchCase(single(64, 32, (4, 2), stages=2), tiles=(2, 3)),
    LaunchCase(single(64, 48, (2, 4), stages=1, output_buffers=1), tiles=(2, 2)),
    LaunchCase(single(128, 64, (2, 1), stages=3, clc_stages=0), tiles=(3, 2)),
    LaunchCase(single(64, 64, (2, 2), stages=2, k_group=2, accumulator_stages=1), tiles=(3, 2)),
    LaunchCase(pairs(128, 64, (2, 2), stages=2), tiles=(3, 2)),
    LaunchCase(pairs(128, 64, (4, 1), stages=3), tiles=(2, 3)),
    LaunchCase(pairs(128, 32, (4, 2), stages=2, k_group=2), tiles=(2, 2)),
    LaunchCase(pairs(64, 32, (2, 4), stages=2, clc_stages=3), tiles=(2, 2)),
    LaunchCase(pairs(128, 96, (2, 2), stages=1, accumulator_stages=1), tiles=(2, 2), k_blocks=2),
    LaunchCase(pairs(64, 64, (4, 1), stages=5, clc_stages=0), tiles=(3, 2)),
    LaunchCase(pairs(64, 64, (4, 2), stages=2, output_buffers=1), tiles=(2, 2), k_blocks=2),
)
"""Clusters of up to eight CTAs."""

TYPED = (
    # Types and majors; an operand that is not K-major lies in chunks of 128 bytes along its rows.
    LaunchCase(single(128, 64, stages=2), computes("f16 f16 f16", "mn")),
    LaunchCase(pairs(128, 128, stages=2), computes("bf16 bf16 f32", "mn")),
    LaunchCase(single(64, 64, stages=3, k_group=2), computes("bf16 bf16 f16", "mk")),
    LaunchCase(pairs(64, 128, stages=2), computes("f16 f16 bf16", "kn")),
    LaunchCase(pairs(128, 256, (2, 1), stages=2), computes("bf16 bf16 bf16", "kn"), tiles=(2, 2), k_blocks=2),
    LaunchCase(single(128, 128, (2, 2), stages=2), computes("bf16 bf16 bf16", "mn"), tiles=(2, 2), k_blocks=2),
    LaunchCase(pairs(128, 128, (4, 1), stages=2), computes("f16 f16 f32", "mk"), tiles=(2, 2), k_blocks=2),
    LaunchCase(single(128, 96, stages=3), computes("e4m3 e5m2 bf16")),
    LaunchCase(pairs(128, 64, (2, 2), stages=2), computes("e5m2 e4m3 f16"), tiles=(2, 2)),
    LaunchCase(single(128, 64, stages=2, k_group=2), computes("e4m3 e4m3 f32", "mn")),
    LaunchCase(pairs(128, 96, stages=2), computes("e4m3 e4m3 bf16", "kn")),
    LaunchCase(pairs(64, 64, stages=2), computes("e5m2 e5m2 bf16", "mk")),
    LaunchCase(single(64, 8, stages=2), computes("bf16 bf16 f32"), tiles=(3, 3)),
    LaunchCase(single(64, 24, stages=3, accumulator_stages=4), computes("e4m3 e4m3 f32"), tiles=(3, 3)),
    LaunchCase(single(128, 64, stages=3), computes("f32 f32 f32")),
    LaunchCase(pairs(128, 96, stages=2), computes("f32 f32 bf16")),
    LaunchCase(single(64, 64, (2, 2), stages=2, k_group=2), computes("f32 f32 f16", residual=F16), tiles=(2, 2)),
    LaunchCase(single(128, 64, stages=2), computes("f32 f32 f32", "mn")),
    LaunchCase(pairs(128, 96, stages=2), computes("f32 f32 bf16", "kn")),
    LaunchCase(pairs(64, 64, stages=3, k_group=2), computes("f32 f32 f32", "mk")),
    LaunchCase(single(64, 24, stages=2), computes("f32 f32 f32", "kn"), tiles=(3, 3)),
    LaunchCase(
        single(128, 128, (2, 2), stages=2), computes("f32 f32 f32", "mn", batched=True), tiles=(2, 1), batches=(2, 2)
    ),
    LaunchCase(pairs(128, 128, (4, 1), stages=2), computes("f32 f32 f32", "mn"), tiles=(2, 2), k_blocks=2),
    LaunchCase(single(128, 32, stages=2, swap_ab=True), computes("f32 f32 f32", "mn")),
    LaunchCase(pairs(64, 64, stages=2), computes("bf16 bf16 e4m3")),
    LaunchCase(single(128, 80, stages=2), computes("e4m3 e4m3 e5m2", bias=F32, scale="value", activation="relu")),
    LaunchCase(pairs(128, 128, (2, 2), stages=2), computes("e4m3 e5m2 e4m3"), tiles=(2, 2), k_blocks=2),
    LaunchCase(single(128, 48, stages=2), computes("f16 f16 e5m2", store="direct")),
)
"""Types of the operands and the output, and all four majors."""

OUTPUTS = (
    # What the epilogue does.
    LaunchCase(single(128, 80, stages=6), computes(store="direct")),
    LaunchCase(pairs(64, 48, stages=2), computes("bf16 bf16 f32", store="direct", bias=F32, activation="relu")),
    LaunchCase(pairs(128, 64, stages=2), computes("f16 f16 f16", store="direct", residual=F16)),
    LaunchCase(single(64, 8, (1, 2), stages=2), computes("bf16 bf16 bf16", store="direct"), tiles=(3, 3)),
    LaunchCase(single(128, 64, stages=2), computes(residual=BF16)),
    LaunchCase(pairs(128, 96, stages=2, output_buffers=1), computes("bf16 bf16 f32", residual=F32, activation="relu")),
    LaunchCase(pairs(64, 64, stages=2, output_buffers=3), computes("f16 f16 f16", residual=F16, bias=F16)),
    LaunchCase(single(64, 80, (2, 1), stages=3, clc_stages=3), computes(residual=BF16, scale="value", bias=BF16)),
    LaunchCase(pairs(128, 64, (2, 2), stages=2), computes(residual=BF16, scale="pointer"), tiles=(2, 2)),
    LaunchCase(single(128, 112, stages=2, clc_stages=0), computes(residual=BF16, activation="relu")),
    LaunchCase(single(128, 64, stages=2), computes(bias=F32, scale="value", activation="relu")),
    LaunchCase(pairs(64, 128, stages=2), computes(bias=BF16, activation="gelu")),
    LaunchCase(single(64, 64, stages=2), computes("f16 f16 f32", scale="pointer", activation="silu")),
    LaunchCase(single(128, 64, stages=2), computes(batched=True), tiles=(2, 1), batches=(3, 3)),
    LaunchCase(pairs(128, 32, stages=2), computes("e4m3 e4m3 bf16", batched=True), tiles=(2, 1), batches=(2, 1)),
    LaunchCase(
        single(64, 64, (1, 2), stages=2), computes(batched=True, residual=BF16), tiles=(2, 1), batches=(None, 3)
    ),
    LaunchCase(
        pairs(64, 32, stages=2, clc_stages=0), computes(store="direct", batched=True), tiles=(2, 1), batches=(2, 2)
    ),
)
"""Stores, residual, fused functions, batches."""

SHARED = (
    # Several CTAs share a tile's sum.
    LaunchCase(single(128, 64, stages=2, split_k=2), k_blocks=4),
    LaunchCase(single(64, 96, stages=3, split_k=3, clc_stages=3), k_blocks=5),
    LaunchCase(pairs(128, 64, stages=2, split_k=4), tiles=(2, 2), k_blocks=4),
    LaunchCase(pairs(64, 64, stages=1, split_k=2, clc_stages=0), tiles=(2, 2), k_blocks=3),
    LaunchCase(pairs(128, 32, (2, 2), stages=2, split_k=3), tiles=(2, 2), k_blocks=3),
    LaunchCase(single(128, 48, stages=2, split_k=2), computes("bf16 bf16 f32", residual=F32, bias=F32), k_blocks=4),
    LaunchCase(
        pairs(128, 96, stages=2, split_k=2), computes(residual=BF16, activation="relu"), tiles=(2, 2), k_blocks=3
    ),
    LaunchCase(single(64, 48, (2, 1), stages=2, split_k=3), computes("e4m3 e4m3 bf16", store="direct"), k_blocks=3),
)
"""Split-K."""

RASTERS = (
    LaunchCase(single(128, 16, stages=2, raster_group=1), tiles=(3, 4)),
    LaunchCase(single(64, 16, stages=2, raster_group=2), tiles=(5, 3)),
    LaunchCase(pairs(64, 32, stages=2, raster_group=3), tiles=(4, 3)),
    LaunchCase(pairs(128, 32, stages=2, raster_group=2, clc_stages=0), tiles=(3, 3)),
    LaunchCase(single(64, 32, (2, 1), stages=2, raster_group=2), computes(batched=True), tiles=(3, 2), batches=(2, 2)),
    LaunchCase(pairs(64, 32, stages=2, raster_order="n", raster_group=2), tiles=(3, 5)),
    LaunchCase(single(128, 16, stages=2, raster_order="n", clc_stages=0), tiles=(4, 3)),
    LaunchCase(
        single(64, 32, (1, 2), stages=2, raster_order="n", raster_group=3),
        computes(batched=True),
        tiles=(2, 4),
        batches=(2, 2),
    ),
    LaunchCase(pairs(128, 32, (4, 1), stages=2, raster_order="n", raster_group=1, split_k=3), tiles=(2, 3), k_blocks=4),
    LaunchCase(
        single(128, 32, stages=2, raster_order="n", raster_group=2, swap_ab=True), computes(residual=BF16), tiles=(3, 3)
    ),
)
"""Orders of the tiles."""

SWAPPED = (
    # The transpose is computed, and stored as the output: rows of a tile lie along N.
    LaunchCase(single(128, 32, stages=2, swap_ab=True)),
    LaunchCase(single(64, 8, stages=3, swap_ab=True), computes(store="direct"), tiles=(3, 3)),
    LaunchCase(single(128, 48, (1, 2), stages=2, swap_ab=True), computes("f16 f16 f16", "mn")),
    LaunchCase(pairs(128, 64, stages=2, swap_ab=True), computes("bf16 bf16 f32", bias=F32, activation="relu")),
    LaunchCase(pairs(64, 64, stages=2, swap_ab=True), computes(residual=BF16, scale="value")),
    LaunchCase(pairs(128, 32, (2, 2), stages=2, swap_ab=True), computes(majors="kn"), tiles=(2, 2)),
    LaunchCase(
        single(64, 24, stages=2, swap_ab=True, clc_stages=0),
        computes("e4m3 e5m2 bf16", batched=True),
        tiles=(2, 2),
        batches=(2, 1),
    ),
    LaunchCase(single(128, 16, (2, 1), stages=4, swap_ab=True, split_k=2), tiles=(2, 2), k_blocks=4),
    LaunchCase(
        pairs(128, 32, stages=2, swap_ab=True, split_k=2), computes("bf16 bf16 f32", residual=F32), tiles=(2, 2)
    ),
    LaunchCase(pairs(64, 32, (4, 1), stages=2, swap_ab=True, output_buffers=1), computes(bias=BF16), tiles=(2, 2)),
    LaunchCase(single(128, 32, stages=2, swap_ab=True), computes("bf16 bf16 e4m3")),
    LaunchCase(pairs(128, 32, stages=2, swap_ab=True), computes("f32 f32 f32")),
)
"""Swapped operands."""

ORDERED = (
    # The warp that loads the residual waits for the first operands: more of them than the ring holds, or fewer.
    LaunchCase(single(128, 64, stages=2, load_order=True), computes(residual=BF16), k_blocks=4),
    LaunchCase(pairs(128, 64, stages=6, load_order=True), computes(residual=BF16), k_blocks=3),
    LaunchCase(
        pairs(64, 96, stages=1, output_buffers=1, clc_stages=0, load_order=True), computes("f16 f16 f16", residual=F16)
    ),
    LaunchCase(
        single(64, 64, (2, 2), stages=3, k_group=2, load_order=True),
        computes("f32 f32 f32", residual=F32),
        tiles=(2, 2),
    ),
    LaunchCase(
        pairs(128, 64, (2, 2), stages=3, load_order=True, split_k=2), computes(residual=BF16), tiles=(2, 2), k_blocks=5
    ),
    LaunchCase(
        single(128, 32, (1, 2), stages=2, load_order=True, swap_ab=True),
        computes(residual=BF16, batched=True),
        tiles=(2, 2),
        batches=(2, None),
    ),
)
"""Who loads first."""

CASES: tuple[LaunchCase, ...] = (*SHAPES, *CLUSTERS, *TYPED, *OUTPUTS, *SHARED, *RASTERS, *SWAPPED, *ORDERED)
"""All of them."""
