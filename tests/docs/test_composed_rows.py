"""The emulator's page has a row for every kernel that an example, a page or the tests compose."""

from __future__ import annotations

import pytest
from pages import ROOT

from tests.emulator.ptx.corpus.write_composed import BEGIN, END, PAGE, sources


@pytest.mark.parametrize("file", [str(file.relative_to(ROOT)) for file in sources()] + ["tests/composed.py"])
def test_every_composition_has_a_row(file: str) -> None:
    """A file without one was added since `python -m tests.emulator.ptx.corpus.write_composed` ran."""
    table = PAGE.read_text("utf-8").split(BEGIN)[1].split(END)[0]
    assert f"](../{file})" in table
