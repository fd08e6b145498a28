"""Which of a test's many cases every test run has: those of ``@pytest.mark.sampled(one_in=4)``."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest

FEW = 8
"""As many values of an argument are all in the sample: chips, types, strategies."""


def beyond_sample(cases: Sequence[pytest.Function], one_in: int) -> list[pytest.Function]:
    """The cases that are not in the sample: it is the same in each run, and looks as if it had been drawn.

    Each value of an argument that has at most `FEW` is in it, so it may be larger than one in `one_in`.
    """
    values: dict[str, set[str]] = {}
    for case in cases:
        for name, value in case.callspec.params.items():
            values.setdefault(name, set()).add(repr(value))
    missing = {(name, value) for name, found in values.items() if len(found) <= FEW for value in found}
    drawn = sorted(cases, key=lambda case: zlib.crc32(case.name.encode()))
    beyond = []
    for case in drawn:
        covers = {(name, repr(value)) for name, value in case.callspec.params.items()} & missing
        if covers:
            missing -= covers
        else:
            beyond.append(case)
    more = max(0, -(-len(cases) // one_in) - (len(cases) - len(beyond)))
    return beyond[more:]
