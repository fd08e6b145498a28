"""Errors, annotations and the launch report, as their readers see them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tilekit.emulator.core.checks.findings import Finding, Findings
from tilekit.emulator.core.errors import (
    Actor,
    Deadlock,
    EmulatorError,
    LaunchError,
    Livelock,
    MemoryFault,
    PtxSyntaxError,
    RaceError,
    StepBudgetExceeded,
    UnsupportedInstruction,
    Where,
    nearest,
)
from tilekit.emulator.core.report import LaunchReport
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.ptx.checks.race_words import explain


@dataclass(frozen=True)
class Line:
    line: int
    text: str
    provenance: str = ""


STORE = Line(42, "  st.global.b32 [%rd1], %r1;", "mma Direct.store epilogue/direct.py:30")


def test_place_is_filled_in_from_outside() -> None:
    """A caller that knows more about the place adds it; what was known stays."""
    error = MemoryFault("out of bounds", where=Where(instruction=STORE))
    assert error.at(Where("gemm", Actor(1, 5, "mma", 3), Line(1, "other"))) is error
    assert (error.kernel, error.cluster, error.cta, error.role, error.warp) == ("gemm", 3, 1, "mma", 5)
    assert (error.line, error.text, error.provenance) == (42, STORE.text, STORE.provenance)
    assert str(error).splitlines() == [
        "memory: out of bounds",
        "  in kernel gemm, cluster 3, CTA 1, role mma (warp 5)",
        "  at line 42: st.global.b32 [%rd1], %r1  [mma Direct.store epilogue/direct.py:30]",
    ]


def test_unknown_place_is_left_out() -> None:
    """An error without a place is its message and hint alone."""
    error = EmulatorError("something", hint="do this", table="a\nb")
    assert str(error).splitlines() == ["fault: something", "  a", "  b", "  hint: do this"]
    assert (error.kernel, error.cluster, error.cta, error.role, error.warp) == ("", None, None, "", None)
    assert (error.line, error.text, error.provenance) == (None, "", "")


def test_syntax_error_has_line_and_column() -> None:
    """Faults in text point at it."""
    error = PtxSyntaxError("expected ';'", line=7, column=12)
    assert (error.line, error.column) == (7, 12)
    assert "at line 7, column 12" in str(error)


def test_unsupported_instruction_names_the_nearest_form() -> None:
    """An unknown form says which known one is most like it."""
    known = ["add.rn.f32", "add.s32", "cp.async.bulk.wait_group.read"]
    error = UnsupportedInstruction(
        "cannot execute 'cp.async.bulk.wait_grop.read'", line=3, form="cp.async.bulk.wait_grop.read", known=known
    )
    assert "the nearest form known is 'cp.async.bulk.wait_group.read'" in str(error)
    assert error.details["nearest"] == "cp.async.bulk.wait_group.read"


def test_nearest_falls_back_to_the_opcode() -> None:
    """A form unlike all others still finds one of the same opcode, and nothing is made up."""
    assert nearest("add.some.very.long.unknown.modifiers", ["add.s32", "mul.s32"]) == "add.s32"
    assert nearest("zzz", ["add.s32"]) == ""
    assert nearest("", ["add.s32"]) == ""


def test_launch_error_names_argument_given_legal_and_nearest() -> None:
    """A bad launch argument is explained in one place."""
    error = LaunchError.argument("shared_bytes", 300000, "0 to 232448", 232448)
    assert str(error).splitlines() == [
        "launch: shared_bytes=300000 is not allowed; legal: 0 to 232448",
        "  hint: use shared_bytes=232448",
    ]
    assert error.details["nearest"] == 232448


def test_every_fault_is_an_emulator_error() -> None:
    """One except clause catches them all, and a step budget is a kind of livelock."""
    assert issubclass(Deadlock, EmulatorError)
    assert issubclass(StepBudgetExceeded, Livelock)


NOTES = """.visible .entry gemm() {
//@role load warps=0-3
//@role mma0 warps=4-7
    //@shared inputs.a offset=0 size=49152 stride=16384 count=3 kind=tile
    //@shared inputs.b offset=0xC000 size=1024
    //@shared inputs.full offset=51200 size=24 stride=8 count=3 kind=mbarrier arrive=load wait=mma0,mma1
    add.s32 %r1, %r2, %r3; //@ load Thing.run file.py:3
}"""


class TestSymbols:
    def test_roles(self) -> None:
        """Warps have the role whose range holds them, others none."""
        symbols = SymbolMap.parse(NOTES)
        assert [symbols.role_of(w) for w in (0, 3, 4, 7, 8)] == ["load", "load", "mma0", "mma0", ""]

    def test_names_of_bytes(self) -> None:
        """Elements are indexed, offsets into them added, gaps have no name."""
        symbols = SymbolMap.parse(NOTES)
        assert symbols.name(0) == "inputs.a[0]"
        assert symbols.name(16384 + 64) == "inputs.a[1]+0x40"
        assert symbols.name(49152) == "inputs.b"
        assert symbols.name(51200 + 16) == "inputs.full[2]"
        assert symbols.name(51200 + 24) == ""
        assert symbols.name(50176) == ""

    def test_declared_roles_of_a_barrier(self) -> None:
        """A barrier's element leads to its declared arrivals and waits."""
        symbols = SymbolMap.parse(NOTES)
        full = symbols.barrier("inputs.full[1]")
        assert full is not None
        assert (full.arrive, full.wait, full.kind) == (("load",), ("mma0", "mma1"), "mbarrier")
        assert symbols.barriers_between("load", "mma1") == [full]
        assert symbols.barriers_between("mma1", "load") == []
        assert symbols.barrier("inputs.full[3]") is None

    def test_text_without_annotations(self) -> None:
        """Compiler output names nothing."""
        symbols = SymbolMap.parse("add.s32 %r1, %r2, %r3; // a comment\n")
        assert symbols.name(0) == ""
        assert symbols.role_of(0) == ""

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("//@role load warps=4", "bad role annotation"),
            ("//@role load warps=7-4", "bad role annotation"),
            ("//@shared a size=4", "offset and size are required"),
            ("//@shared a offset=0 size=x", "size=x is not a number"),
            ("//@shared a offset=0 size=4 colour=red", "unknown field 'colour'"),
            ("//@shared a offset=0 size=4 kind=tiles", "kind=tiles is none of mbarrier, tile, scratch"),
            ("//@shared a offset=0 size=4 count=0", "must be positive"),
            ("//@shared a offset 0", "not a name followed by key=value"),
        ],
    )
    def test_bad_annotations_are_errors(self, line: str, why: str) -> None:
        """An annotation that cannot be read says so with its line, rather than losing its name."""
        with pytest.raises(PtxSyntaxError, match=why) as caught:
            SymbolMap.parse("\n" + "   " + line, first_line=10)
        assert (caught.value.line, caught.value.column) == (11, 4)


def report(**changes: object) -> LaunchReport:
    values: dict[str, object] = {
        "kernel": "gemm",
        "grid": (4, 1, 1),
        "block": (384, 1, 1),
        "cluster": (2, 1, 1),
        "shared_bytes": 197632,
        "schedule": "adversarial",
        "seed": 7,
        "check": "full",
        "steps": 150000,
        "instructions": {"load": 1000, "mma0": 149000},
        "bytes_loaded": 1 << 20,
        "flops": 2 * 512**3,
        "seconds": 1.5,
    }
    return LaunchReport(**(values | changes))  # type: ignore[arg-type]


def test_report_reads_well() -> None:
    """The launch, its numbers, roles by weight, and that nothing was found."""
    assert str(report()).splitlines() == [
        "gemm: grid 4x1x1, block 384x1x1, cluster 2x1x1, 197632 bytes of shared memory a CTA",
        "  schedule adversarial, seed 7, check full",
        "  150,000 warp instructions in 1.50 s, 100 thousand a second",
        "  bulk copies: 1,048,576 bytes in, 0 bytes out",
        "  matrix instructions: 268,435,456 FLOP",
        "  mma0  149,000",
        "  load  1,000",
        "  nothing found",
    ]


def test_report_lists_findings() -> None:
    """Findings are printed under the numbers."""
    found = Finding("barrier", "inputs.full[1] was left in phase 3", ("needs 1 arrival",), "drain the ring")
    text = str(report(findings=(found,)))
    assert "1 found:" in text
    assert "  barrier: inputs.full[1] was left in phase 3\n    needs 1 arrival\n    hint: drain the ring" in text
    assert not report(findings=(found,)).clean


def test_equal_findings_are_kept_once() -> None:
    """The same complaint from every CTA is one complaint; only races are raised."""
    findings = Findings(explain)
    for _ in range(3):
        findings.add(Finding("barrier", "left in the middle of a phase"))
    findings.add(Finding("barrier", "another"))
    assert len(findings) == 2
    findings.raise_races()


def test_fault_shows_what_was_found_before_it() -> None:
    """The fault that ends a launch lists the findings that may have caused it, and is untouched without any."""
    error = MemoryFault("out of bounds", table="the facts")
    Findings(explain).attach(error)
    assert error.table == "the facts"
    findings = Findings(explain)
    findings.add(Finding("race", "inputs.a[1]", ("missing edge: one",)))
    findings.attach(error)
    assert str(error).splitlines() == [
        "memory: out of bounds",
        "  the facts",
        "  found before that:",
        "  race: inputs.a[1]",
        "    missing edge: one",
    ]
    assert error.details["findings"] == list(findings)


def test_a_fault_spells_out_a_few_findings() -> None:
    """Of many it says how many more there are; its details have all of them."""
    findings = Findings(explain)
    for index in range(9):
        findings.add(Finding("race", f"inputs.a[{index}]"))
    with pytest.raises(RaceError) as caught:
        findings.raise_races()
    assert str(caught.value).count("inputs.a[") == 4
    assert str(caught.value).splitlines()[-1] == "  and 5 more, in details['findings']"
    assert len(caught.value.details["findings"]) == 9
