"""What `explain` says of a Blackwell matmul alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.tcgen05 import LANES
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_op.tensor_memory import allocated_columns

if TYPE_CHECKING:
    from tilekit.kernels.matmul.kernel import KernelText
    from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig


def accumulators(spec: MatmulSpec, config: BlackwellConfig) -> str:
    """In no registers."""
    return "; accumulators in tensor memory"


def tensor_memory(spec: MatmulSpec, config: BlackwellConfig, chip: Target) -> list[str]:
    """Which lanes and columns hold which rows and columns of a tile."""
    op = config.instruction(spec)
    layout, stages = op.layout, config.accumulator_stages
    accumulated = TensorAccumulators.columns_declared(layout, stages)
    taken = allocated_columns(accumulated + op.scale_columns)
    lines = [
        f"tensor memory {taken} of {chip.tensor_columns} columns, layout {op.data_path}",
        f"{' columns':<10}{'lanes':>8}  object",
    ]
    for stage in range(stages):
        first = stage * layout.columns
        for part in layout.parts:
            lanes = f"{part.first}-{part.first + part.rows - 1}" if layout.rows == LANES else "0-15 *"
            rows = f"rows {part.row}-{part.row + part.rows - 1}"
            columns = f"columns {part.column}-{part.column + layout.columns - 1}"
            lines.append(
                f"{f'{first}-{first + layout.columns - 1}':>8}{lanes:>10}  accumulators[{stage}], {rows}, {columns}"
            )
    if op.scale_columns:
        columns = f"{accumulated}-{accumulated + op.scale_columns - 1}"
        lines.append(f"{columns:>8}{f'0-{LANES - 1}':>10}  scales of a stage, the same for each 32 lanes")
    if layout.rows < LANES:
        lines.append(" * of each warp's 32: warp w has rows 16 w to 16 w + 15")
    return lines


def instructions(spec: MatmulSpec, config: BlackwellConfig) -> str:
    """Their number and shape."""
    op = config.instruction(spec)
    count = config.k_block(spec.a_dtype, spec.block_bytes) * spec.a_dtype.bytes // 32
    ctas = f"{config.cta_group} CTA" + ("s" if config.cta_group > 1 else "")
    return f", {count} x tcgen05.mma m{op.m}n{op.n}k{op.k} of {ctas}"


def rows(spec: MatmulSpec, config: BlackwellConfig) -> list[str]:
    """Nothing: a tile has all rows of its instruction."""
    return []


def sections(spec: MatmulSpec, config: BlackwellConfig, text: KernelText) -> list[str]:
    """Nothing else."""
    return []
