"""The registers that gfx942 and gfx950 have, how they are counted, and where accumulators are best kept.

Sources: LLVM's User Guide for AMDGPU (Kernel Descriptor: ``next_free_vgpr``, ``accum_offset``) and its register
classes: tuples of VGPRs and AGPRs begin at even ones from gfx90a on, scalar pairs at even ones, wider ones at multiples
of 4.
"""

from __future__ import annotations

from typing import Final

from tilekit.assembly.gcn.code import File

__all__ = [
    "ACCUM_GRANULE",
    "ADDRESSABLE",
    "LETTERS",
    "MOST_WAVES",
    "VECTORS_OF_SIMD",
    "VECTOR_GRANULE",
    "accumulator_file",
    "alignment_of",
    "most_vectors",
    "waves_with",
]

LETTERS: Final[dict[File, str]] = {"vector": "v", "scalar": "s", "accumulator": "a"}
"""What a file's registers are called."""

ADDRESSABLE: Final[dict[File, int]] = {"vector": 256, "scalar": 102, "accumulator": 256}
"""Registers that instructions can name; s102 and s103 are flat_scratch on chips without the architected one."""

VECTORS_OF_SIMD: Final = 512
"""Registers of a SIMD's lane, VGPRs and AGPRs together, for all waves on it."""
VECTOR_GRANULE: Final = 8
ACCUM_GRANULE: Final = 4
MOST_WAVES: Final = 8


def most_vectors(waves: int) -> int:
    """Return the most VGPRs and AGPRs together that a wave may have if a SIMD is to hold so many waves."""
    return VECTORS_OF_SIMD // waves // VECTOR_GRANULE * VECTOR_GRANULE


def waves_with(vectors: int) -> int:
    """Return how many waves of so many VGPRs and AGPRs together a SIMD holds."""
    allocated = max(-(-vectors // VECTOR_GRANULE), 1) * VECTOR_GRANULE
    return min(MOST_WAVES, VECTORS_OF_SIMD // allocated)


def alignment_of(file: File, words: int) -> int:
    """Return what the index of the first of several registers is a multiple of."""
    if words == 1:
        return 1
    return 2 if file != "scalar" or words == 2 else 4


def accumulator_file(waves_per_simd: int | None) -> File:
    """Return where a kernel that is to have so many waves on a SIMD keeps its accumulators best.

    Matrix instructions take and leave C and D in either file. With one wave the 256 AGPRs are room that VGPRs do not
    give. With two or more a wave has at most 256 registers of both kinds, all of which can be VGPRs, and there they
    need no ``v_accvgpr_read`` before other instructions use them.
    """
    return "accumulator" if waves_per_simd == 1 else "vector"
