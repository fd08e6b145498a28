"""Mutations of kernels for AMD chips: a small kernel with every test run, and the arguments from the text alone."""

from __future__ import annotations

import pytest

pytest.importorskip("ml_dtypes")

from tests.mutations.gcn import ORDER, Mutation, covered, mutations
from tests.mutations.gcn_sweep import KERNELS, REASONS, executed_lines, judge


@pytest.mark.parametrize("name", ["transpose-gfx950", "gluon_padded-gfx942"])
def test_whatever_breaks_order_is_noticed(name: str) -> None:
    """Every wait, barrier and nop that a kernel executes is removed, and reported, or shows in the result."""
    kernel = KERNELS[name]()
    executed = executed_lines(kernel)
    chosen = [m for m in mutations(kernel.text) if m.family in ORDER and m.line in executed]
    assert len(chosen) > 5
    verdicts = [judge(kernel, m) for m in chosen]
    assert not [v for v in verdicts if v.caught == "not caught"]
    assert sum(v.reported for v in verdicts) > 0.8 * len(verdicts)


def test_what_is_explained_is_a_mutation() -> None:
    """Each reason names a kernel that is broken, an instruction of it, and a change that is made."""
    for name, instruction, change in REASONS:
        text = KERNELS[name]().text
        lines = text.splitlines()
        assert any(
            m.change == change and lines[m.line].split(";")[0].strip() == instruction for m in mutations(text)
        ), (name, instruction, change)


WAITS = """\ts_load_dword s4, s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
\tv_mov_b32_e32 v1, v2
\ts_waitcnt lgkmcnt(0)
\tv_mov_b32_e32 v1, s4
\tds_write_b32 v2, v1
\ts_waitcnt lgkmcnt(0)
\ts_barrier
\ts_endpgm
""".splitlines()


@pytest.mark.parametrize(("line", "harmless"), [(1, True), (3, True), (6, False), (7, True)])
def test_arguments_from_the_text(line: int, harmless: bool) -> None:
    """A wait is spared by one as strong before what is loaded is touched; a barrier by the end of the kernel."""
    family = "barrier" if "barrier" in WAITS[line] else "wait"
    assert bool(covered(WAITS, Mutation(family, line, "removed", ""))) == harmless
