"""Every instruction form that an sm_100a kernel may write is executed, or refused by name."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilekit.emulator import UnsupportedInstruction, coverage
from tilekit.emulator.ptx.language.availability import dialect
from tilekit.emulator.ptx.language.forms import decode
from tilekit.emulator.ptx.language.parser import parse_module
from tilekit.emulator.ptx.language.syntax import Instruction
from tilekit.emulator.ptx.ops.table import refusals

SPELLINGS = Path(__file__).with_name("spellings.ptx")
DOCS = Path(__file__).parents[4] / "docs"


def instructions() -> Iterator[Instruction]:
    """Every instruction of the file."""
    for function in parse_module(SPELLINGS.read_text()).functions.values():
        yield from function.instructions


def refusal(instruction: Instruction) -> UnsupportedInstruction | None:
    """Why an instruction is not executed, or None."""
    try:
        decode(instruction, 0, dialect("9.2", "sm_100a"))
    except UnsupportedInstruction as error:
        return error
    return None


def test_every_spelling_is_executed() -> None:
    """Each of the spellings matches a form of the table that has an implementation."""
    found = [(instruction, refusal(instruction)) for instruction in instructions()]
    assert len(found) > 1000
    assert [str(error) for _, error in found if error is not None] == []


def test_nothing_of_sm_100_runs_on_sm_90() -> None:
    """tcgen05, cluster launch control and the pair's copies are refused for an sm_90a device, by architecture."""
    for index, instruction in enumerate(instructions()):
        if instruction.opcode in ("tcgen05", "clusterlaunchcontrol") or "tile::gather4" in instruction.modifiers:
            with pytest.raises(UnsupportedInstruction, match="needs sm_100"):
                decode(instruction, index, dialect("9.2", "sm_90a"))


def test_coverage_leaves_refusals_out() -> None:
    """The list of executed forms has no form that is refused."""
    forms = {form for rows in coverage().values() for form in rows}
    assert not forms & {form for form, _ in refusals()}
    assert "multimem" not in coverage()


def test_page_is_current() -> None:
    """docs/emulator-unsupported.md says what the table of forms says."""
    written = (DOCS / "emulator-unsupported.md").read_text("utf-8")
    assert runpy.run_path(str(DOCS / "unsupported_table.py"))["page"]() == written, (
        "run python docs/unsupported_table.py"
    )
