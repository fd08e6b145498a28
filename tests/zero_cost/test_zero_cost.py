"""A traced kernel becomes the machine code of one written by hand, but for differences that are listed with reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tilekit
from tilekit.runtime.toolchain import find_ptxas

from . import blackwell, hopper, table
from .pair import ARITHMETIC, ONCE, Assembled, Extra, Pair, difference, exact_difference

Make = Callable[[], Pair]

CHIPS = (hopper, blackwell)
EVERY_PART = [pytest.param(chip.pair, part, id=f"{chip.TARGET}-{part}") for chip in CHIPS for part in chip.PARTS]
IDENTICAL = [
    pytest.param(chip.pair, part, id=f"{chip.TARGET}-{part}")
    for chip in CHIPS
    for part in chip.PARTS
    if part not in {extra.part for extra in chip.EXTRAS}
]
EVERY_EXTRA = [
    pytest.param(chip.PARTS, extra, id=f"{chip.TARGET}-{extra.why[:40]}") for chip in CHIPS for extra in chip.EXTRAS
]
each_chip = pytest.mark.parametrize("make", [pytest.param(chip.pair, id=chip.TARGET) for chip in CHIPS])


def unexplained(both: Pair, traced: Assembled, part: str) -> dict[str, int]:
    """What a part has more or less of than the one written by hand, beyond its extras; less arithmetic is welcome."""
    found = difference(traced.parts[part], both.written.parts[part])
    allowed = both.allowed(part)
    rest = {kind: found.get(kind, 0) - allowed[kind] for kind in found | allowed}
    return {kind: count for kind, count in rest.items() if count > 0 or (count and kind != ARITHMETIC)}


def same_ptxas() -> bool:
    """Whether the assembler is the one that the page was made with."""
    return f"Assembled by ptxas {table.version()}.\n" in table.PAGE.read_text("utf-8")


@pytest.mark.parametrize(("make", "part"), EVERY_PART)
def test_no_instruction_beyond_those_explained(make: Make, part: str) -> None:
    """In each loop and outside them, the traced kernel does what the other one does, but for the extras."""
    assert unexplained(make(), make().traced, part) == {}


@pytest.mark.parametrize(("make", "part"), IDENTICAL)
def test_identical(make: Make, part: str) -> None:
    """Where nothing is explained (the k-loops, above all), both have the same instructions, arithmetic included."""
    assert exact_difference(make().traced.parts[part], make().written.parts[part]) == {}


@pytest.mark.parametrize(("make", "part"), EVERY_PART)
def test_no_explanation_is_idle(make: Make, part: str) -> None:
    """An extra that the traced kernel no longer has leaves the list (by the ptxas that the list was made with)."""
    if not same_ptxas():
        pytest.skip(f"the list was made with another ptxas than {find_ptxas().id}")
    found = difference(make().traced.parts[part], make().written.parts[part])
    assert found == make().allowed(part)


@each_chip
def test_k_loops_need_no_explanation(make: Make) -> None:
    """No extra is about a k-loop."""
    assert not [extra for extra in make().extras if "k-loop" in extra.part]


@pytest.mark.parametrize(("parts", "extra"), EVERY_EXTRA)
def test_extra_names_what_exists(parts: tuple[str, ...], extra: Extra) -> None:
    """An extra is about a part there is, counts something, and blames a class and a method of the package."""
    assert extra.part in parts
    assert all(extra.work.values())
    sources = [file.read_text("utf-8") for file in Path(tilekit.__file__).parent.rglob("*.py")]
    blamed = re.findall(r"`([A-Z]\w+)\.?(\w*)`", extra.why)
    assert blamed
    for name, method in blamed:
        assert any(f"\nclass {name}" in source and f"def {method}" in source for source in sources), name


@each_chip
def test_same_resources(make: Make) -> None:
    """Registers at launch, barriers, shared memory and spills are the same; a few more registers are in use at most."""
    both = make()
    traced, written = both.traced, both.written
    assert traced.resources == written.resources
    assert traced.resources.spill_store_bytes == traced.resources.spill_load_bytes == 0
    assert both.kernel.text.shared_bytes == both.shared_bytes
    for kind in ("R", "UR"):
        assert traced.program.highest_register(kind) <= written.program.highest_register(kind) + 4


def test_same_registers_for_each_role() -> None:
    """Both give and take registers by the same setmaxnreg, in the same order."""
    traced, written = (
        [(i.opcode, i.operands) for i in assembled.program.instructions if i.base == "USETMAXREG"]
        for assembled in (hopper.pair().traced, hopper.pair().written)
    )
    assert len(written) == 2
    assert traced == written


def in_load_loop(ptx: str) -> str:
    """One more for each k-block of the load role: the row of A changes."""
    return re.sub(r"( *(?:@\w+ )?cp\.async.*\[a_map, \{(\w+), (\w+)\}\])", r"xor.b32 \3, \3, \2;\n\1", ptx)


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


def claiming_slower(ptx: str) -> str:
    """One more fence for each tile claimed."""
    return ptx.replace(
        "clusterlaunchcontrol.try_cancel", "fence.proxy.async.shared::cta;\nclusterlaunchcontrol.try_cancel"
    )


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("make", "change", "part", "kind"),
    [
        (hopper.pair, in_load_loop, hopper.LOAD_K, ARITHMETIC),
        (hopper.pair, in_k_loop, hopper.MMA_K, ARITHMETIC),
        (hopper.pair, waiting_twice, hopper.MMA_K, "FENCE.VIEW.ASYNC.S"),
        (hopper.pair, in_epilogue, hopper.MMA_TILE, ARITHMETIC),
        (hopper.pair, in_set_up, ONCE, "NANOSLEEP"),
        (blackwell.pair, in_load_loop, blackwell.LOAD_K, ARITHMETIC),
        (blackwell.pair, in_k_loop, blackwell.MMA_K, ARITHMETIC),
        (blackwell.pair, claiming_slower, blackwell.CLAIM, "FENCE.VIEW.ASYNC.S"),
        (blackwell.pair, in_epilogue, blackwell.EPILOGUE_TILE, ARITHMETIC),
        (blackwell.pair, in_set_up, ONCE, "NANOSLEEP"),
    ],
)
def test_one_more_instruction_is_reported(make: Make, change: Callable[[str], str], part: str, kind: str) -> None:
    """An instruction added to the text of the traced kernel is found, in its part and there alone."""
    both = make()
    text = change(both.kernel.ptx)
    assert text.count(";") == both.kernel.ptx.count(";") + 1
    broken = both.assembled(text, both.kernel.name)
    found = {name: unexplained(both, broken, name) for name in both.parts}
    assert found.pop(part).get(kind, 0) >= 1
    assert not any(found.values())


def test_page_is_current() -> None:
    """`python -m tests.zero_cost.table` would change nothing (with the ptxas that the page names)."""
    if not same_ptxas():
        pytest.skip(f"the page was made with another ptxas than {find_ptxas().id}")
    assert "\n".join(table.page()) + "\n" == table.PAGE.read_text("utf-8")
