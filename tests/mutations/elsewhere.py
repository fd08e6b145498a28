"""Mutations of instructions that tilekit's matmul has none of: cp.async, split barriers, st.async, tcgen05, CLC."""

from __future__ import annotations

from .mutation import SCRATCH, Changes, instead, offset, operator, scoped
from .statements import Program, Statement


@operator("copy", "cp.async.ca", "cp.async.cg")
def thread_copies(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "shared address 16 bytes on", offset(s, 0, 16)


@operator("copy", "cp.async.bulk.shared::cta", "cp.async.bulk.shared::cluster", "cp.reduce.async.bulk.global")
def bulk_copies(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "doubled", instead(s, f"{s.written()} {s.written()}")
    yield "16 bytes short", offset(s, 2, -16)


@operator("arrive", "st.async")
def remote_stores(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "doubled", instead(s, f"{s.written()} {s.written()}")


@operator("barrier", "bar.arrive", "barrier.arrive")
def split_barriers(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "doubled", instead(s, f"{s.written()} {s.written()}")


@operator("tcgen05", "tcgen05.commit")
def tensor_commits(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "doubled", instead(s, f"{s.written()} {s.written()}")
    yield "the next barrier", offset(s, 0, 8)
    if ".multicast::cluster" in s.opcode:
        own = s.opcode.replace(".multicast::cluster", "")
        yield "no multicast", instead(s, s.written(own, s.operands[:1]))


@operator("tcgen05", "tcgen05.wait::ld", "tcgen05.wait::st", "tcgen05.fence", "tcgen05.dealloc")
def tensor_waits(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")


@operator("tcgen05", "tcgen05.wait::ld")
def tensor_load_waits(program: Program, s: Statement) -> Changes:
    meetings = ("bar.sync", "barrier.sync", "barrier.cluster.arrive", "mbarrier.arrive")
    later = [other for other in program.statements[s.index + 1 :] if other.is_a(*meetings)]
    if later:
        yield "behind the last arrival", (*instead(s, ""), *instead(later[-1], f"{later[-1].written()} {s.written()}"))


@operator("tcgen05", "tcgen05.alloc")
def tensor_allocations(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    if s.operands[1].isdigit() and int(s.operands[1]) > 32:
        yield "half the columns", instead(s, s.with_operand(1, str(int(s.operands[1]) // 2)))


@operator("multiply", "tcgen05.mma")
def tensor_multiplications(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "doubled", instead(s, f"{s.written()} {s.written()}")
    for change, value in (("never accumulates", 0), ("always accumulates", 1)):
        yield change, scoped(s, "pred", f"setp.ne.u32 {SCRATCH}, {value}, 0;", s.with_operand(4, SCRATCH))


@operator("multiply", "tcgen05.mma")
def exchanged_products(program: Program, s: Statement) -> Changes:
    """The factors of two products of one sum exchanged: no bug, but memory is read in another order."""
    order = ("tcgen05", "mbarrier", "bar", "barrier", "bra", "fence")
    first = next((earlier for earlier in reversed(program.statements[: s.index]) if earlier.is_a(*order)), s)
    if first is s or first.opcode != s.opcode or (first.guard, first.operands[0]) != (s.guard, s.operands[0]):
        return
    if any(first.index < place <= s.index for places in program.labels.values() for place in places):
        return
    set_between = {other.operands[0] for other in program.statements[first.index + 1 : s.index] if other.operands}
    if set_between & {first.guard, *first.operands}:  # the first cannot stand here
        return

    def with_factors(statement: Statement, other: Statement) -> str:
        return statement.written(operands=(statement.operands[0], *other.operands[1:-1], statement.operands[-1]))

    both = f"{with_factors(first, s)} {with_factors(s, first)}"
    yield "exchanged with the one before", (*instead(first, ""), *instead(s, both))


@operator("cancel", "clusterlaunchcontrol.try_cancel")
def cancellations(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "doubled", instead(s, f"{s.written()} {s.written()}")
