"""A traced kernel becomes the machine code of one written by hand, but for differences that are listed with reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tilekit
from tilekit.runtime.toolchain import find_ptxas

from . import table
from .hopper import EXTRAS, LOAD_K, LOAD_WAIT, MMA_K, MMA_REGISTERS, MMA_TILE, MMA_WAIT, PARTS, pair
from .pair import ARITHMETIC, ONCE, Assembled, Extra, difference, exact_difference

IDENTICAL = (LOAD_WAIT, MMA_REGISTERS, MMA_K, MMA_WAIT)
"""The parts whose instructions are the same, opcode by opcode."""


def unexplained(traced: Assembled, part: str) -> dict[str, int]:
    """What a part has more or less of than the one written by hand, beyond its extras; less arithmetic is welcome."""
    found = difference(traced.parts[part], pair().written.parts[part])
    allowed = pair().allowed(part)
    rest = {kind: found.get(kind, 0) - allowed[kind] for kind in found | allowed}
    return {kind: count for kind, count in rest.items() if count > 0 or (count and kind != ARITHMETIC)}


def same_ptxas() -> bool:
    """Whether the assembler is the one that the page was made with."""
    return f"Assembled by ptxas {table.version()} " in table.PAGE.read_text("utf-8")


@pytest.mark.parametrize("part", PARTS)
def test_no_instruction_beyond_those_explained(part: str) -> None:
    """In each loop and outside them, the traced kernel does what the other one does, but for the extras."""
    assert unexplained(pair().traced, part) == {}


@pytest.mark.parametrize("part", IDENTICAL)
def test_identical(part: str) -> None:
    """The loop in which the time goes, and every retry, have the same instructions, arithmetic included."""
    assert exact_difference(pair().traced.parts[part], pair().written.parts[part]) == {}


@pytest.mark.parametrize("part", PARTS)
def test_no_explanation_is_idle(part: str) -> None:
    """An extra that the traced kernel no longer has leaves the list (by the ptxas that the list was made with)."""
    if not same_ptxas():
        pytest.skip(f"the list was made with another ptxas than {find_ptxas().id}")
    found = difference(pair().traced.parts[part], pair().written.parts[part])
    assert found == pair().allowed(part)


@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra.why[:40])
def test_extra_names_what_exists(extra: Extra) -> None:
    """An extra is about a part there is, counts something, and blames a class and a method of the package."""
    assert extra.part in PARTS
    assert all(extra.work.values())
    sources = [file.read_text("utf-8") for file in Path(tilekit.__file__).parent.rglob("*.py")]
    blamed = re.findall(r"`([A-Z]\w+)\.?(\w*)`", extra.why)
    assert blamed
    for name, method in blamed:
        assert any(f"\nclass {name}" in source and f"def {method}" in source for source in sources), name


def test_same_resources() -> None:
    """Registers at launch, barriers, shared memory and spills are the same; a few more registers are in use at most."""
    traced, written = pair().traced, pair().written
    assert traced.resources == written.resources
    assert traced.resources.spill_store_bytes == traced.resources.spill_load_bytes == 0
    assert pair().kernel.text.shared_bytes == pair().shared_bytes
    for kind in ("R", "UR"):
        assert traced.program.highest_register(kind) <= written.program.highest_register(kind) + 4


def test_same_registers_for_each_role() -> None:
    """Both give and take registers by the same setmaxnreg, in the same order."""
    traced, written = (
        [(i.opcode, i.operands) for i in assembled.program.instructions if i.base == "USETMAXREG"]
        for assembled in (pair().traced, pair().written)
    )
    assert len(written) == 2
    assert traced == written


def in_load_loop(ptx: str) -> str:
    """One more for each k-block of the load role: the row of A changes."""
    return re.sub(r"( *cp\.async.*\[a_map, \{(\w+), (\w+)\}\])", r"xor.b32 \3, \3, \2;\n\1", ptx)


def in_k_loop(ptx: str) -> str:
    """One more for each k-block of the mma role: a descriptor changes."""
    return re.sub(r"( *mov\.b64 \w+, \{(\w+), \d+\};)", r"xor.b32 \2, \2, 16;\n\1", ptx, count=1)


def in_epilogue(ptx: str) -> str:
    """One more for each tile: a value changes before it is stored."""
    return re.sub(r"( *stmatrix\S+ \S+ \{(\w+), (\w+))", r"xor.b32 \2, \2, \3;\n\1", ptx, count=1)


def in_set_up(ptx: str) -> str:
    """One more in all: a pause before the roles begin."""
    return ptx.replace("griddepcontrol.wait;", "griddepcontrol.wait;\nnanosleep.u32 20;")


def waiting_twice(ptx: str) -> str:
    """One more fence for each k-block."""
    return ptx.replace("wgmma.commit_group", "fence.proxy.async.shared::cta;\nwgmma.commit_group")


@pytest.mark.parametrize(
    ("change", "part", "kind"),
    [
        (in_load_loop, LOAD_K, ARITHMETIC),
        (in_k_loop, MMA_K, ARITHMETIC),
        (waiting_twice, MMA_K, "FENCE.VIEW.ASYNC.S"),
        (in_epilogue, MMA_TILE, ARITHMETIC),
        (in_set_up, ONCE, "NANOSLEEP"),
    ],
)
def test_one_more_instruction_is_reported(change: Callable[[str], str], part: str, kind: str) -> None:
    """An instruction added to the text of the traced kernel is found, in its part and there alone."""
    both = pair()
    text = change(both.kernel.ptx)
    assert text.count(";") == both.kernel.ptx.count(";") + 1
    broken = both.assembled(text, both.kernel.name)
    found = {name: unexplained(broken, name) for name in PARTS}
    assert found.pop(part).get(kind, 0) >= 1
    assert not any(found.values())


def test_page_is_current() -> None:
    """`python -m tests.zero_cost.table` would change nothing (with the ptxas that the page names)."""
    if not same_ptxas():
        pytest.skip(f"the page was made with another ptxas than {find_ptxas().id}")
    assert "\n".join(table.page()) + "\n" == table.PAGE.read_text("utf-8")
