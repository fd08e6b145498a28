"""Mutations of what passes memory from one proxy to another: maps built by the kernel, the bytes of barriers."""

from __future__ import annotations

import re

from .mutation import SCRATCH, Changes, instead, offset, operator
from .statements import Program, Statement

_SCOPE = re.compile(r"\.(cluster|gpu|sys)\b")


def _narrowed(s: Statement) -> Changes:
    head, generic, tail = s.opcode.partition("::generic")
    if _SCOPE.search(tail):
        yield "scope .cta", instead(s, s.written(head + generic + _SCOPE.sub(".cta", tail)))


@operator("fence", "fence.proxy.tensormap::generic.release")
def releases(program: Program, s: Statement) -> Changes:
    yield from _narrowed(s)
    yield "an ordinary fence instead", instead(s, "fence.acq_rel.gpu;")
    for earlier in program.before(s):
        if earlier.is_a("tensormap.replace"):
            yield "before the write", (*instead(s, earlier.written()), *instead(earlier, s.written()))


@operator("fence", "fence.proxy.tensormap::generic.acquire")
def acquires(program: Program, s: Statement) -> Changes:
    yield from _narrowed(s)
    yield "an ordinary fence instead", instead(s, "fence.acq_rel.gpu;")
    yield "128 bytes further on", offset(s, 0, 128, "b64")
    for release in program.before(s):
        if release.is_a("tensormap.cp_fenceproxy", "fence.proxy.tensormap"):
            yield "before the release", (*instead(s, release.written()), *instead(release, s.written()))
    later = program.statements[s.index + 1 :]
    copy = next((c for c in later if c.is_a("cp.async.bulk.tensor")), None)
    if copy is not None:
        yield "behind the copy", (*instead(s, ""), *instead(copy, f"{copy.written()} {s.written()}"))


@operator("fence", "tensormap.cp_fenceproxy")
def publications(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield from _narrowed(s)
    target, source = (operand.strip("[] ").split("+")[0].strip() for operand in s.operands[:2])
    words = ", ".join(f"{SCRATCH}{n}" for n in (0, 1))
    copies = " ".join(
        s.written(opcode, operands)
        for at in range(0, 128, 16)
        for opcode, operands in (
            ("ld.shared.v2.b64", (f"{{{words}}}", f"[{source}+{at}]")),
            ("st.global.v2.b64", (f"[{target}+{at}]", f"{{{words}}}")),
        )
    )
    yield "a plain copy instead", instead(s, f"{{ .reg .b64 {words}; {copies} }}")


@operator("copy", "cp.async.bulk")
def barriers_underneath(program: Program, s: Statement) -> Changes:
    if s.is_a("cp.async.bulk.prefetch") or not re.search(r"\.shared::(cta|cluster)\.global", s.opcode):
        return
    if "cta_group::2" not in s.opcode:  # whose address may be the peer's
        made = s.written("mbarrier.init.shared::cta.b64", (s.operands[0], "1"))
        gone = s.written("mbarrier.inval.shared::cta.b64", s.operands[:1])
        yield "into what was a barrier, with no proxy fence", instead(s, f"{made} {gone} {s.written()}")
