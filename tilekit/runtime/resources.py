"""What one kernel uses of a multiprocessor, as its assembler or its code object says."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GcnResources", "PtxResources", "Resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """What every chip's kernels use.

    Attributes
    ----------
    registers : int
        32-bit registers a thread, at entry.
    stack_bytes : int
        Memory a thread that registers do not hold: local memory, scratch.
    static_shared_bytes : int
        Shared memory declared with a size in the text; the dynamic part is chosen at launch.
    """

    registers: int
    stack_bytes: int = 0
    static_shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PtxResources(Resources):
    """What ptxas reports beside.

    Attributes
    ----------
    spill_store_bytes, spill_load_bytes : int
        Bytes that register spills store and load, a thread.
    barriers : int
        Named barriers.
    constant_bytes : int
        Constant memory of all banks, kernel parameters included.
    """

    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    barriers: int = 0
    constant_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GcnResources(Resources):
    """What a kernel descriptor allocates; `registers` is the sum of `vgprs` and `agprs`.

    Attributes
    ----------
    vgprs, agprs : int
        Vector registers a lane, of the two kinds.
    sgprs : int
        Scalar registers a wave.
    waves_per_simd : int
        Waves that a SIMD holds at once, as vector registers and static LDS allow. Dynamic LDS may lower it at launch.
    """

    vgprs: int = 0
    agprs: int = 0
    sgprs: int = 0
    waves_per_simd: int = 0
