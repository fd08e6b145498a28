"""Three bugs of the kind that people make, planted in kernels of other compilers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .mutation import Edit, Mutation, instead
from .statements import Program, Statement


@dataclass(frozen=True)
class Planted:
    """A bug in a kernel of the corpus.

    Attributes
    ----------
    title, story
        For people.
    kernel
        Of `third_party.KERNELS`.
    edits
        Makes the bug.
    caught
        The kind of report.
    words
        What it must say: both accesses, or the barrier, and the edge that is missing.
    """

    title: str
    story: str
    kernel: str
    edits: Callable[[Program], tuple[Edit, ...]]
    caught: str
    words: tuple[str, ...]

    def mutation(self, text: str) -> Mutation:
        """The bug as a change of the kernel's text."""
        return Mutation("planted", self.title, self.kernel, "", self.edits(Program.read(text)))


def _find(program: Program, opcode: str, number: int = 0) -> Statement:
    return [s for s in program.statements if s.is_a(opcode)][number]


def _no_fence(program: Program) -> tuple[Edit, ...]:
    return instead(_find(program, "fence.proxy.async"), "")


def _wrong_count(program: Program) -> tuple[Edit, ...]:
    init = _find(program, "mbarrier.init", 1)
    return instead(init, init.with_operand(1, "128"))


def _no_wait(program: Program) -> tuple[Edit, ...]:
    return instead(_find(program, "wgmma.wait_group"), "")


PLANTED = (
    Planted(
        "a dropped fence",
        "The epilogue of Triton's matmul writes the tile with `stmatrix` and stores it by TMA; the fence that lets the "
        "asynchronous proxy see the writes is gone. On a GPU this prints the right numbers nearly always.",
        "triton/matmul_host_maps_128-sm_90a",
        _no_fence,
        "race",
        (
            r"write by warp \d.*stmatrix\.sync",
            r"read by TMA store issued by warp 0.*cp\.async\.bulk\.tensor",
            r"missing edge: no fence\.proxy\.async by warp \d",
            r"must execute fence\.proxy\.async\.shared::cta after its writes \(line 451\) and before",
        ),
    ),
    Planted(
        "a wrong arrive count",
        "The barrier that says that a stage is empty is initialised for the 128 threads of the consumer warpgroup, but "
        "one elected thread arrives for all of them. The GPU just hangs.",
        "triton/gluon_warp_specialized-sm_90a",
        _wrong_count,
        "deadlock",
        (
            r"waits for the mbarrier at 0xc480 phase 0",
            r"mbarrier\.try_wait",
            r"needs 127 of 128 arrivals",
            r"arrived in this phase: warp 0",
            r"hint: .* \(mbarrier\.init in line 65\).*: initialise it with 1, or let the other 127 arrive too",
        ),
    ),
    Planted(
        "early reuse of a buffer",
        "In the k-loop of Triton's matmul the wait that leaves one group of wgmmas in flight is gone: the TMA load "
        "that fills the stage again may overwrite what they still read.",
        "triton/matmul_host_maps_128-sm_90a",
        _no_wait,
        "race",
        (
            r"write by TMA load issued by warp \d.*cp\.async\.bulk\.tensor",
            r"read by wgmma issued by warp \d.*wgmma\.mma_async",
            r"missing edge: the wgmma of warp \d still reads these bytes: no wgmma\.wait_group that covers it before "
            r"warp \d arrived on bar 0",
            r"hint: warp \d must execute wgmma\.wait_group .* before it arrives on bar 0",
        ),
    ),
)
