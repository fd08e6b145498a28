"""docs/blackwell.md shows what these tests do."""

from __future__ import annotations

from tests.matmul.launches_sm_100a import CASES
from tests.matmul.page_sm_100a import PAGE, current
from tests.matmul.sweep import SEEDS, runs_of


def test_the_page_is_current() -> None:
    """Its tables are those of the kernels and bugs there are now: `python -m tests.matmul.page_sm_100a`."""
    text = PAGE.read_text("utf-8")
    assert text == current(text)


def test_the_sweep_on_the_page_is_this_one() -> None:
    """The launches it reports are those that the sweep makes now."""
    launches = sum(len(list(runs_of(case))) for case in CASES)
    assert f"{launches} launches of {len(CASES)} kernels under {len(SEEDS)} seeds: 0 bad." in PAGE.read_text("utf-8")
