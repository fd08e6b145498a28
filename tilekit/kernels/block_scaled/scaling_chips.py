"""Which chips' matrix instructions take scales of blocks, of which blocks, and how scales come into the stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilekit.assembly.writer import Role, Writer
from tilekit.errors import ArgumentError
from tilekit.kernels.block_scaled.payload import ScaleLoader
from tilekit.kernels.block_scaled.wave_scales import WaveScaleLoader, WaveScaleToLdsLoader
from tilekit.targets import TARGETS, Target
from tilekit.tile_io.payload_loader import TileLoader
from tilekit.tile_op.block_scaled import ScaleFormat
from tilekit.tile_op.scaled_mfma import ScaledMfma
from tilekit.tiles.scale_tile import BLOCK as WAVE_BLOCK


def takes_scales(target: Target) -> bool:
    """Whether a chip's matrix instructions take scales of blocks."""
    return target.has("tensor_memory") or target.has("scaled_matrix")


def require_scales(name: str, scaled: ScaleFormat, target: Target) -> None:
    """Raise `ArgumentError` (``TK-SCALE-001``) for a chip whose instructions do not take scales of this format."""
    if not takes_scales(target):
        able = ", ".join(chip.name for chip in TARGETS.values() if takes_scales(chip))
        raise ArgumentError(
            f"{name} on {target.name}: its matrix cores take no scales; legal: {able}", code="TK-SCALE-001"
        )
    if target.has("scaled_matrix") and scaled.block != WAVE_BLOCK:
        raise ArgumentError(
            f"{name} on {target.name}: a scale there is of {WAVE_BLOCK} elements, a power of two; nearest: mxfp4 "
            "(ue8m0 scales)",
            code="TK-SCALE-001",
        )


def scale_loaders(w: Writer, op: Any, scaled: ScaleFormat, operands: str, role: Role) -> Sequence[TileLoader]:
    """The loaders of an instruction's scales, which are those of `operands`; threads of `role` bring those of waves."""
    sides = zip(op.scales, operands, strict=True)
    if isinstance(op, ScaledMfma) and op.pieces == 1:
        return [WaveScaleLoader(w, tile, scaled, operand, role=role) for tile, operand in sides]
    if isinstance(op, ScaledMfma):
        behind = (0, op.a.rows)
        return [
            WaveScaleToLdsLoader(w, tile, scaled, operand, role=role, behind=rows)
            for (tile, operand), rows in zip(sides, behind, strict=True)
        ]
    return [ScaleLoader(w, tile, scaled, operand, paired=op.group > 1) for tile, operand in sides]
