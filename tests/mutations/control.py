"""Mutations of control: rings, loops, guards, election, register budgets."""

from __future__ import annotations

from .mutation import SCRATCH, Changes, Edit, instead, operator, scoped
from .statements import Program, Statement


@operator("ring", "xor.b32")
def flips(program: Program, s: Statement) -> Changes:
    d, a, mask = s.operands
    if mask == "1":
        yield "parity not flipped", instead(s, f"mov.b32 {d}, {a};")


@operator("ring", "add.u32", "add.s32")
def advances(program: Program, s: Statement) -> Changes:
    """An index that grows by one and is then compared with a constant: a stage of a ring."""
    if s.operands[2:] != ("1",):
        return
    names = {s.operands[0]}
    for following in program.after(s, 3):
        if following.is_a("mov") and following.operands[1] in names:
            names.add(following.operands[0])
        elif following.is_a("setp.eq") and following.operands[1] in names and following.operands[2].isdigit():
            stages = int(following.operands[2])
            yield "stage not advanced", instead(s, s.with_operand(2, "0"))
            yield "a stage skipped", instead(s, s.with_operand(2, "2"))
            yield "wraps one stage late", instead(following, following.with_operand(2, str(stages + 1)))
            if stages > 1:
                yield "wraps one stage early", instead(following, following.with_operand(2, str(stages - 1)))


@operator("loop", "setp.lt", "setp.ne", "setp.eq", "setp.ge")
def loops(program: Program, s: Statement) -> Changes:
    """A counted loop's condition, just before its backward branch."""
    d, a, b = s.operands[:3]
    steps = [p.operands[2] for p in program.before(s) if p.is_a("add") and p.operands[:2] == (a, a)]
    for branch in program.after(s):
        if not (s.is_a("setp.lt") and branch.is_a("bra") and branch.guard == d and program.jumps_back(branch)):
            continue
        yield "one iteration more", instead(s, s.written(s.opcode.replace(".lt", ".le")))
        yield (
            "one iteration fewer",
            scoped(s, "b32", f"add.u32 {SCRATCH}, {a}, {(steps or ['1'])[0]};", s.written(operands=(d, SCRATCH, b))),
        )


@operator("guard", "bra")
def branches(program: Program, s: Statement) -> Changes:
    """A conditional branch forward: what it skips is always, or never, executed."""
    if s.guard and not program.jumps_back(s):
        yield "never taken", instead(s, "")
        yield "always taken", instead(s, s.written(guard="", opcode="bra"))


@operator("guard", "mbarrier.arrive", "cp.async", "st", "red", "mbarrier.expect_tx")
def guards(program: Program, s: Statement) -> Changes:
    if s.guard:
        yield "guard dropped", instead(s, s.written().partition(" ")[2])
        inverse = s.guard[1:] if s.guard.startswith("!") else f"!{s.guard}"
        yield "guard inverted", instead(s, s.written(guard=inverse))


@operator("elect", "elect.sync")
def elections(program: Program, s: Statement) -> Changes:
    predicate = s.operands[0].split("|")[1]
    yield "all 32 lanes", (Edit(s.end, s.end, f" setp.eq.u32 {predicate}, 0, 0;"),)


@operator("registers", "setmaxnreg")
def budgets(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    count = int(s.operands[0])
    if s.is_a("setmaxnreg.inc") and count < 256:
        yield "raised to 256", instead(s, s.with_operand(0, "256"))
    if s.is_a("setmaxnreg.dec"):
        yield "inc instead", instead(s, s.written(s.opcode.replace(".dec", ".inc")))


@operator("registers", "mapa")
def remote_addresses(program: Program, s: Statement) -> Changes:
    yield "own CTA", instead(s, f"mov.b{'64' if s.opcode.endswith('64') else '32'} {s.operands[0]}, {s.operands[1]};")
