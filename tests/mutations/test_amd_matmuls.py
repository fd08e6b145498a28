"""Mutations of the matmul family's kernels for AMD chips: some of two kernels, and the page of all."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ml_dtypes")

from tests.mutations.amd_matmuls import MADE, OF_EACH, RESULTS, verdicts_of


@pytest.mark.parametrize("name", ["gfx950 bf16, ping-pong", "gfx950 mxfp8"])
def test_some_are_noticed(name: str) -> None:
    """Of four mutations at most one passes, which changes when something happens and not what."""
    assert sum(one.caught == "not caught" for one in verdicts_of(name, 4)) <= 1


def test_the_page_has_every_kernel() -> None:
    """At least sixty mutations, as many of each kernel; at most one in twenty goes unnoticed, for a stated reason."""
    page = RESULTS.read_text("utf-8")
    assert re.findall(r"^## (.*)$", page, re.M) == list(MADE)
    rows = re.findall(r"^\| \d+ \| .* \| ([a-z ]+)(: [^|]*)? \|$", page, re.M)
    assert len(rows) == OF_EACH * len(MADE) > 60
    unnoticed = [reason for caught, reason in rows if caught == "not caught"]
    assert len(unnoticed) <= len(rows) / 20
    assert all(reason.startswith(": harmless: ") for reason in unnoticed)
