"""What a chip is to a kernel: its limits, the shape of its waves, and its capabilities by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilekit.errors import ArgumentError

CAPABILITIES: Final = {
    "async_copies": "copies from global to shared memory that a thread issues and goes on (cp.async)",
    "cluster_launch_control": "a running CTA takes the place of one that has not started (clusterlaunchcontrol)",
    "clusters": "CTAs that share their shared memory and a barrier",
    "copy_engine": "copies of tensor tiles that one thread starts (TMA)",
    "deep_matrix": "matrix instructions of 16-bit floats that are 32 deep (mfma_f32_16x16x32_bf16)",
    "dependent_launch": "a kernel starts before the one ahead of it is complete (griddepcontrol)",
    "elect": "an instruction that elects one lane of a wave",
    "float8_matrix": "a matrix instruction of one warp for 8-bit floats (mma.sync m16n8k32)",
    "fnuz_floats": "8-bit floats with neither infinities nor a negative zero, in place of OCP's",
    "loads_to_lds": "loads that fill shared memory without passing through registers (buffer_load ... lds)",
    "mbarriers": "barriers in shared memory with phases (mbarrier)",
    "named_barriers": "barriers of some of a CTA's threads, and an arrival that does not wait",
    "register_reallocation": "waves that give registers up to others while they run (setmaxnreg)",
    "scaled_matrix": "a matrix instruction of narrow floats with a scale for each 32 of them (mfma_scale)",
    "tensor_memory": "a memory of the tensor core's own for accumulators (tcgen05)",
    "transposed_lds_reads": "reads of shared memory that transpose among the lanes (ds_read_tr)",
    "warpgroup_matrix": "a matrix instruction of a whole warpgroup that reads shared memory (wgmma)",
    "wide_loads_to_lds": "loads to shared memory of 12 or 16 bytes a lane (buffer_load_dwordx4 ... lds)",
    "xf32_matrix": "a matrix instruction of f32 that are rounded to 10 bits of mantissa (xf32)",
}
"""What some chips have and others lack. A fragment names what it ``needs``; a verb says what it does without."""


@dataclass(frozen=True)
class Target:
    """One chip.

    Attributes
    ----------
    name
        As the assembler spells it (``sm_90a``).
    isa
        Its instruction set, which names the dialect and the folder of its fragments.
    architectures
        The architectures whose fragments it runs, the earliest first; the last one is its own.
    capabilities
        Those of `CAPABILITIES` that it has.
    lanes
        Threads of a wave (a warp).
    matrix_waves
        Waves that hold the accumulators of a matrix instruction together: 4 for wgmma and tcgen05, 1 for ``mma.sync``.
    product
        A product that has it; `multiprocessors` and `boost_mhz` are that product's, and serve estimates only.
    shared_bytes
        Shared memory one CTA may use.
    registers
        32-bit registers of a multiprocessor.
    thread_registers
        32-bit registers that one thread may have.
    max_threads
        Threads of a CTA.
    compute_capability
        As the driver numbers the chip; of AMD chips the first two digits of the name.
    max_cluster
        CTAs of a cluster that every device of the target accepts.
    dies
        Dies with an L2 of their own, to which the CTAs of a grid go in turn.
    tensor_columns
        Columns of tensor memory, 128 lanes of 32 bits each; 0 where there is none.
    isa_version
        The version of its instruction set's language that has it first; fragments may need a later one.
    named_barriers
        Barriers of a CTA (PTX ISA, bar.sync), the one of all its threads among them.
    transposed_bits
        Widths of the elements that the matrix instruction reads where M or N is contiguous: for wgmma 16 (PTX ISA,
        wgmma.mma_async, imm-trans), for tcgen05 8, 16 and 32 (tcgen05.mma, Instruction descriptor). Without a copy
        engine it is what the threads that load turn round.
    whole_warps
        Whether a warp goes round the loop of its elected lane (`tilekit.assembly.ptx.election`). For sm_90a ptxas keeps
        what such a loop counts in the lane's own registers, for sm_100a hardly (one R2UR in 13 instructions).

    Raises
    ------
    ArgumentError
        ``TK-TARGET-002`` for a capability that has no name in `CAPABILITIES`.
    """

    name: str
    isa: str
    architectures: tuple[str, ...]
    capabilities: frozenset[str]
    lanes: int
    matrix_waves: int
    product: str
    multiprocessors: int
    boost_mhz: int
    shared_bytes: int
    registers: int
    max_threads: int
    max_cluster: int
    compute_capability: tuple[int, int]
    thread_registers: int = 255
    dies: int = 1
    tensor_columns: int = 0
    isa_version: tuple[int, int] = (8, 0)
    named_barriers: int = 16
    transposed_bits: tuple[int, ...] = (16,)
    whole_warps: bool = False

    def __post_init__(self) -> None:
        unknown = sorted(self.capabilities - CAPABILITIES.keys())
        if unknown:
            raise ArgumentError(
                f"target {self.name}: {', '.join(unknown)} is no capability; there is {', '.join(CAPABILITIES)}",
                code="TK-TARGET-002",
            )

    def __hash__(self) -> int:
        """Targets of one name are the same but in tests, and kernels are looked up by them."""
        return hash(self.name)

    @property
    def matrix_threads(self) -> int:
        """Threads of the waves that issue a matrix instruction together."""
        return self.lanes * self.matrix_waves

    def launch_registers(self, threads: int) -> int:
        """Registers that each of a CTA's threads is launched with, at most."""
        groups = -(-threads // self.matrix_threads)
        return min(self.thread_registers, self.registers // (groups * self.matrix_threads) // 8 * 8)

    @property
    def portable(self) -> bool:
        """Whether later chips run its text: of PTX, what is for one chip alone has a letter behind the number."""
        return self.isa == "ptx" and self.name[-1].isdigit()

    def has(self, capability: str) -> bool:
        """Whether the chip has a capability of `CAPABILITIES`."""
        assert capability in CAPABILITIES, capability
        return capability in self.capabilities
