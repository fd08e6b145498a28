"""Where a fault is: what one layer of the emulator does not know, another fills in."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tilekit.emulator.core.errors import Where

KNOWN: dict[str, Any] = {"kernel": "k", "actor": object(), "instruction": object(), "line": 3, "column": 5}


@pytest.mark.parametrize("name", KNOWN)
def test_unknown_parts_are_filled_in(name: str) -> None:
    """Each part is taken from the other place where it is unknown here, and kept where it is known, also as 0."""
    assert set(KNOWN) == {field.name for field in fields(Where)}
    full, other = Where(**KNOWN), Where("other", object(), object(), 7, 9)  # type: ignore[arg-type]
    unknown = replace(full, **{name: "" if name == "kernel" else None})
    assert getattr(unknown.filled_from(other), name) is getattr(other, name)
    assert unknown.filled_from(full) == full
    assert full.filled_from(other) == full
    assert full.filled_from(Where()) == full
    assert Where(line=0).filled_from(other).line == 0
