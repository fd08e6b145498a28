"""Mutations of what orders a kernel: waits, arrivals, byte counts, barriers, fences, groups."""

from __future__ import annotations

from .mutation import SCRATCH, Changes, instead, offset, operator, recounted, scoped
from .statements import Program, Statement


@operator("wait", "mbarrier.try_wait", "mbarrier.test_wait")
def waits(program: Program, s: Statement) -> Changes:
    done, _, state = s.operands[:3]
    yield "removed", instead(s, f"setp.eq.u32 {done}, 0, 0;")
    if ".parity" in s.opcode:
        yield "wrong parity", scoped(s, "b32", f"xor.b32 {SCRATCH}, {state}, 1;", s.with_operand(2, SCRATCH))
    for branch in program.after(s):
        if branch.is_a("bra") and branch.guard == f"!{done}":
            yield "not repeated", instead(branch, "")


@operator("arrive", "mbarrier.arrive", "mbarrier.arrive_drop")
def arrivals(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "doubled", instead(s, s.written() + " " + s.written())
    if ".relaxed" not in s.opcode and ".expect_tx" not in s.opcode:
        plain = s.opcode.replace(".release", "").replace(".cluster", "").replace(".cta", "")
        opcode = plain.replace("mbarrier.arrive", "mbarrier.arrive.relaxed.cluster", 1)
        yield "relaxed", instead(s, s.written(opcode))


@operator("expect_tx", "mbarrier.arrive.expect_tx", "mbarrier.expect_tx")
def expectations(program: Program, s: Statement) -> Changes:
    size = len(s.operands) - 1
    address = s.operands[size - 1]
    if s.operands[size].isdigit():
        yield "16 bytes short", instead(s, s.with_operand(size, str(int(s.operands[size]) - 16)))
        yield "16 bytes too many", instead(s, s.with_operand(size, str(int(s.operands[size]) + 16)))
    else:
        yield "16 bytes short", offset(s, size, -16)
        yield "16 bytes too many", offset(s, size, 16)
    if s.is_a("mbarrier.arrive"):
        yield "bytes not announced", instead(s, f"mbarrier.arrive.shared::cta.b64 _, {address};")
        yield (
            "announced without arriving",
            instead(s, s.written("mbarrier.expect_tx.relaxed.cta.shared::cta.b64", s.operands[size - 1 :])),
        )


@operator("init", "mbarrier.init")
def initialisations(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    for change, amount in (("count one too low", -1), ("count one too high", 1)):
        yield change, recounted(s, amount)


@operator("fence", "fence", "membar")
def fences(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    for arrive in program.after(s, 3):
        if s.is_a("fence.mbarrier_init") and arrive.is_a("barrier.cluster.arrive.release"):
            relaxed = instead(arrive, arrive.written(arrive.opcode.replace(".release", ".relaxed")))
            yield "removed, and a relaxed cluster barrier", (*instead(s, ""), *relaxed)
    if s.is_a("fence.proxy.async"):
        yield "an ordinary fence instead", instead(s, "fence.acq_rel.cta;")
        for barrier in program.after(s):
            if barrier.is_a("bar.sync", "barrier.sync"):
                yield "behind the barrier", (*instead(s, barrier.written()), *instead(barrier, s.written()))


@operator("wgmma", "wgmma.fence", "wgmma.commit_group")
def matrix_fences(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")


@operator("wgmma", "wgmma.wait_group")
def matrix_waits(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "one group weaker", instead(s, s.with_operand(0, str(int(s.operands[0]) + 1)))


@operator("group", "cp.async.bulk.commit_group", "cp.async.commit_group")
def commits(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")


@operator("group", "cp.async.bulk.wait_group", "cp.async.wait_group")
def group_waits(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "one group weaker", instead(s, s.with_operand(0, str(int(s.operands[0]) + 1)))
    if s.opcode == "cp.async.bulk.wait_group":
        yield "only the reads", instead(s, s.written("cp.async.bulk.wait_group.read"))


@operator("barrier", "bar.sync", "barrier.sync", "bar.cta.sync", "barrier.cta.sync", "bar.warp.sync")
def barriers(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    if s.is_a("bar.warp.sync"):
        return
    if s.operands[0] != "0":
        yield "barrier 0", instead(s, s.with_operand(0, "0"))
    if len(s.operands) > 1 and s.operands[1].isdigit():
        for change, amount in (("a warp too few", -32), ("a warp too many", 32)):
            yield change, instead(s, s.with_operand(1, str(int(s.operands[1]) + amount)))


@operator("cluster", "barrier.cluster.arrive")
def cluster_arrivals(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    if ".relaxed" not in s.opcode:
        plain = s.opcode.replace(".release", "")
        relaxed = plain.replace("barrier.cluster.arrive", "barrier.cluster.arrive.relaxed", 1)
        yield "relaxed", instead(s, s.written(relaxed))
    for wait in program.after(s):
        if wait.is_a("barrier.cluster.wait"):
            yield "removed with its wait", (*instead(s, ""), *instead(wait, ""))


@operator("cluster", "barrier.cluster.wait")
def cluster_waits(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
