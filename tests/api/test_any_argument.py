"""Whatever value is given for whatever argument: an error of tilekit's that names the argument, or none at all."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from doors import Door, doors
from hypothesis import HealthCheck, given, settings
from odd_values import ODD, anything

from tilekit.errors import ConfigError, TilekitError
from tilekit.kernels.matmul.plan import HostPlan

DOORS = doors()


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launch is made: what an argument may be is known before."""
    monkeypatch.setattr(HostPlan, "_run", lambda _: None)
    yield


def complaint(door: Door, value: Any) -> str:
    """What is wrong with the answer to a value; empty where nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            door.open(value)
    except TilekitError as error:
        text = str(error)
        if not re.search(r"TK-[A-Z]+-\d{3}", error.code) or not text.endswith(f"[{error.code}]"):
            return f"has no code: {text}"
        if "unavailable" in text or error.code in ("TK-TUNE-001", "TK-API-002"):
            return ""  # the argument is legal, and this machine lacks the GPU
        names = (door.parameter, *door.also)
        if not any(re.search(rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9])", text) for name in names):
            return f"does not name {door.parameter}: {text[:300]}"
        if isinstance(error, ConfigError) and not error.problems:
            return "lists no problem"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


@pytest.mark.parametrize("door", DOORS, ids=str)
def test_odd_values_are_refused_in_words(door: Door) -> None:
    """Each odd value at each argument: accepted, or refused by an error with a code that names the argument."""
    found = {index: text for index, value in enumerate(ODD) if (text := complaint(door, value))}
    assert not found, "\n".join(f"{type(ODD[index])} number {index}: {text}" for index, text in found.items())
