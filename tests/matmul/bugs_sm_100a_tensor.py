"""Bugs of tensor memory and of the matrix instructions."""

from __future__ import annotations

from collections.abc import Callable

from tests.matmul.broken_sm_100a import (
    Broken,
    Change,
    Edits,
    every,
    half,
    masked,
    moved,
    one,
    operand,
    removed,
    replaced,
    waits_removed,
    without,
)
from tests.matmul.matmul_reports import at, stuck, unwaited
from tests.mutations.mutation import SCRATCH, Edit, instead, scoped
from tests.mutations.statements import Program

AFTER, BEFORE = "tcgen05.fence::after_thread_sync", "tcgen05.fence::before_thread_sync"


def _dealloc_early(program: Program) -> Edits:
    arrive, wait = (every(program, "setup", f"barrier.cluster.{what}")[-1] for what in ("arrive", "wait"))
    end = every(program, "", "ret")[-1]
    return (*without(arrive, wait), Edit(end.start, end.start, f"{arrive.written()} {wait.written()} "))


def _no_fence_before_mma(program: Program) -> Edits:
    return without(*every(program, "mma", AFTER)[1:])  # the first is that of the hand-over of the address


def _released_before_loaded(program: Program) -> Edits:
    arrive = one(program, "epilogue", "mbarrier.arrive", "accumulators.empty")
    load = [s for s in every(program, "epilogue", "tcgen05.wait::ld") if s.index < arrive.index][-1]
    return moved(load, arrive)


def _overlapping(program: Program) -> Edits:
    address = one(program, "mma", "tcgen05.mma").operands[0].strip("[]")
    sums = [s for s in every(program, "mma", "add") if s.operands[0] == address]
    stages = next(s for s in every(program, "mma", "mul") if s.operands[0] in sums[0].operands[1:])
    return operand("mma", "mul", 2, half, number=every(program, "mma", "mul").index(stages))(program)


def _upper(which: int, change: Callable[[int], int]) -> Change:
    """The upper half of A's (0) or B's (1) descriptors."""

    def edits(program: Program) -> Edits:
        made: list[Edit] = []
        for s in every(program, "mma", "mov.b64")[which::2]:
            low, high = s.operands[1].strip("{}").split(",")
            made += instead(s, s.with_operand(1, f"{{{low}, {change(int(high))}}}"))
        return tuple(made)

    return edits


def _leading_offset(operation: str) -> Change:
    """The lower half of B's descriptors: its leading byte offset, in units of 16 bytes from bit 16 up."""

    def edits(program: Program) -> Edits:
        made: list[Edit] = []
        for s in every(program, "mma", "mov.b64")[1::2]:
            low, high = s.operands[1].strip("{}").split(",")
            name, number = operation.split()
            written = s.with_operand(1, f"{{{SCRATCH}, {high}}}")
            made += scoped(s, "b32", f"{name} {SCRATCH}, {low}, {number};", written)
        return tuple(made)

    return edits


def _instruction(change: Callable[[int], int]) -> Change:
    """The instruction descriptor."""
    return operand("mma", "tcgen05.mma", 3, lambda descriptor: str(change(int(descriptor))), number=None)


BUGS_TENSOR: tuple[Broken, ...] = (
    # Tensor memory.
    Broken(
        "tensor memory freed before the cluster is done",
        "pair",
        _dealloc_early,
        "memory",
        "column 0 has been deallocated",
        at("mma"),
        "write by role mma .* tcgen05.dealloc",
    ),
    Broken(
        "tensor memory never freed",
        "pair",
        removed("setup", "tcgen05.dealloc"),
        "protocol",
        r"CTA \d ends with tensor memory allocated: 128 at column 0",
    ),
    Broken(
        "half the columns freed",
        "pair",
        operand("setup", "tcgen05.dealloc", 1, half),
        "protocol",
        "dealloc of 64 columns at 0x0, where 128 were allocated",
        at("mma"),
    ),
    Broken(
        "half the columns allocated",
        "one CTA",
        operand("mma", "tcgen05.alloc", 1, half),
        "memory",
        "tcgen05.mma into D of .*: column 64 is not allocated",
        at("mma"),
    ),
    Broken(
        "the address read before it is there",
        "one CTA",
        removed("epilogue", "bar.sync"),
        "deadlock",
        "race: tensor_memory.address",
        "role mma .* waits for bar 2: 32 of 160 threads",
    ),
    Broken(
        "no fence after the wait for an accumulator",
        "pair",
        removed("epilogue", AFTER, number=-1),
        "fence",
        f"no {AFTER} by role epilogue between .* and its tcgen05.ld",
    ),
    Broken(
        "no fence before an accumulator is given back",
        "pair",
        removed("epilogue", BEFORE, number=-1),
        "fence",
        f"no {BEFORE} by role epilogue between its tcgen05.ld",
    ),
    Broken(
        "no fence before the matrix instructions",
        "one CTA",
        _no_fence_before_mma,
        "fence",
        f"no {AFTER} by role mma between .* and its tcgen05.mma",
    ),
    Broken(
        "an accumulator given back before it is loaded",
        "one CTA",
        _released_before_loaded,
        "race",
        r"no tcgen05.wait::ld that covers it before role epilogue .* arrived on accumulators.empty\[\d\] phase \d",
    ),
    Broken(
        "registers used before tcgen05.wait::ld",
        "one CTA",
        removed("epilogue", "tcgen05.wait::ld"),
        "protocol",
        "a register of a tcgen05.ld in flight is used",
        at("epilogue"),
    ),
    Broken(
        "lanes of another warp",
        "one CTA",
        replaced("epilogue", "shl.b32", "21", "20"),
        "protocol",
        "tcgen05.ld of lane 48 by warp 3, whose lanes are 96 to 127",
        at("epilogue"),
    ),
    Broken(
        "accumulators that overlap",
        "one CTA",
        _overlapping,
        "race",
        "race: tensor memory of CTA 0, columns 32 to 63",
        unwaited("mma", "accumulators.empty"),
    ),
    Broken(
        "an accumulator not awaited",
        "pair",
        waits_removed("epilogue", "accumulators.full"),
        "memory",
        "tcgen05.ld of lanes .* of which nothing was ever written",
        at("epilogue"),
        "wait for accumulators.full",
    ),
    Broken(
        "an accumulator overwritten while it is read",
        "pair",
        waits_removed("mma", "accumulators.empty"),
        "race",
        "read by tcgen05.ld issued by role epilogue",
        unwaited("mma", "accumulators.empty"),
    ),
    Broken(
        "an accumulator never given back",
        "pair",
        removed("epilogue", "mbarrier.arrive", "accumulators.empty", None),
        "deadlock",
        stuck("mma", "accumulators.empty"),
        "needs 8 of 8 arrivals",
    ),
    Broken(
        "an accumulator given back to the CTA itself",
        "pair",
        replaced("epilogue", "and.b32", str(0xFEFF_FFFF), str(0xFFFF_FFFF)),
        "deadlock",
        stuck("mma", "accumulators.empty"),
        "needs 4 of 8 arrivals",
    ),
    Broken(
        "an accumulator never said to be done",
        "pair",
        removed("mma", "tcgen05.commit", "accumulators.full"),
        "deadlock",
        stuck("epilogue", "accumulators.full"),
        "no thread has ever arrived",
        "declared to arrive: mma",
    ),
    Broken(
        "an accumulator said to be done to the leader only",
        "pair",
        masked("mma", "tcgen05.commit", 1, "and.b16 1", barrier="accumulators.full"),
        "deadlock",
        stuck("epilogue", "accumulators.full"),
        stuck("mma", "accumulators.empty"),
        "needs 4 of 8 arrivals",
    ),
    # Descriptors.
    Broken(
        "a wrong stride of A",
        "one CTA",
        _upper(0, lambda high: high - 0x20),
        "protocol",
        "descriptor of A: stride byte offset = 512: .* nearest legal 1024",
        at("mma"),
    ),
    Broken(
        "a wrong stride of B",
        "pair",
        _upper(1, lambda high: high + 0x40),
        "race",
        r"race: inputs\.b\[1\]",
        unwaited("mma", "inputs.full"),
    ),
    Broken(
        "a wrong leading offset of B, N-major",
        "N-major",
        _leading_offset("add.u32 65536"),
        "protocol",
        "descriptor of B: leading byte offset = 8208: .* nearest legal 8192",
        at("mma"),
    ),
    Broken(
        "a leading offset of 0, N-major",
        "N-major",
        _leading_offset("and.b32 65535"),
        "protocol",
        "descriptor of B: leading byte offset = 0",
        at("mma"),
    ),
    Broken(
        "descriptors without a version",
        "one CTA",
        _upper(0, lambda high: high & ~(1 << 14)),
        "protocol",
        r"descriptor of A: bits 48:46 \(descriptor version\) = 0: must be 1",
        at("mma"),
    ),
    Broken(
        "a descriptor with another swizzle",
        "one CTA",
        _upper(1, lambda high: high ^ 6 << 29),
        "protocol",
        "descriptor of B: start address = .* begins inside a 512-byte swizzle pattern",
        at("mma"),
    ),
    Broken(
        "f32 along M with the swizzle of other types",
        "f32 N-major",
        _upper(0, lambda high: high ^ 3 << 29),
        "protocol",
        r"descriptor of A: a transposed tf32 operand needs swizzle 1 \(128B with 32-byte atoms\)",
        at("mma"),
    ),
    Broken(
        "f32 along N with the groups of other types",
        "f32 N-major",
        _upper(1, lambda high: high + 32),
        "race",
        r"race: inputs\.b\[\d\]",
        unwaited("mma", "inputs.full"),
    ),
    Broken(
        "an instruction of fewer columns",
        "one CTA",
        _instruction(lambda d: d - (2 << 17)),
        "wrong result",
        r"\d+ of \d+ elements are wrong, first at \(0, 48\)",
    ),
    Broken(
        "an instruction of too many columns",
        "pair",
        _instruction(lambda d: d + (1 << 17)),
        "protocol",
        "N = 72: .* with cta_group::2 .* nearest legal 64",
        at("mma"),
    ),
    Broken(
        "an instruction of 64 rows",
        "one CTA",
        _instruction(lambda d: d - (4 << 24)),
        "memory",
        "tcgen05.ld of lanes 48 to 63, .* of which nothing was ever written",
        at("epilogue"),
    ),
    Broken(
        "an instruction for the pair of 128 rows",
        "pair",
        _instruction(lambda d: d - (8 << 24)),
        "wrong result",
        "elements are wrong",
    ),
    Broken(
        "an instruction that takes B for K-major",
        "N-major",
        _instruction(lambda d: d & ~(1 << 16)),
        "race",
        r"race: inputs\.b\[\d\]",
        unwaited("mma", "inputs.full"),
    ),
    Broken(
        "an instruction that takes bf16 for f16",
        "one CTA",
        _instruction(lambda d: d & ~(1 << 7)),
        "wrong result",
        "elements are wrong",
    ),
    Broken(
        "sums that never begin with zero",
        "one CTA",
        operand("mma", "tcgen05.mma", 4, lambda condition: "1"),
        "memory",
        "tcgen05.mma onto D of .* was never written",
        at("mma"),
    ),
    Broken(
        "sums that begin again in each block",
        "one CTA",
        operand("mma", "tcgen05.mma", 4, lambda condition: "0"),
        "wrong result",
        "elements are wrong",
    ),
)
