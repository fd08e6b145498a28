"""Whatever value is given for whatever argument: an error of tilekit's that names the argument, or none at all."""

from __future__ import annotations

import operator
import random
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doors import Door, doors, emulator_doors
from hypothesis import HealthCheck, given, settings
from odd_values import ODD, anything

from tilekit.emulator import EmulatorError
from tilekit.emulator.ptx.launch import Launch
from tilekit.errors import TilekitError
from tilekit.kernels.plan import EmulatedPlan

DOORS = (*doors(), *emulator_doors())

NO_GPU = ("TK-TUNE-001", "TK-API-002")
"""The argument is legal, and it is this machine that lacks something."""

MANY = 100
"""Launches to explore beyond which a test would take long; any number of them is legal."""


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No launch runs: what an argument may be is known before. What is legal as a file's name is written elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EmulatedPlan, "_run", lambda _: None)
    monkeypatch.setattr(Launch, "run", lambda _: SimpleNamespace(clean=True))


def complaint(door: Door, value: Any) -> str:
    """What is wrong with the answer to a value; empty where nothing is."""
    if door.parameter in ("progress", "accept", "statistics") or (door.parameter == "tries" and _many(value)):
        return ""  # a call of the caller's own, whose errors are its own; what a stub cannot count; and what takes long
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            door.open({door.parameter: value})
    except TilekitError as error:
        text = str(error)
        if not re.fullmatch(r"TK-[A-Z]+-\d{3}", error.code) or not text.endswith(f"[{error.code}]"):
            return f"has no code: {text}"
        return "" if error.code in NO_GPU else _unnamed(door, text)
    except EmulatorError as error:
        return _unnamed(door, str(error))
    except ValueError as error:  # of tensor maps, which are the driver's to name
        return "" if str(error).startswith("not a legal") else f"ValueError: {str(error)[:300]}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def _many(value: Any) -> bool:
    try:
        return operator.index(value) > MANY  # of NumPy's whole numbers too
    except Exception:  # no number, or one whose methods fail
        return False


def _unnamed(door: Door, text: str) -> str:
    names = (door.parameter, *door.also)
    found = any(re.search(rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9])", text) for name in names)
    return "" if found else f"does not name {door.parameter}: {text[:300]}"


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("door", DOORS, ids=str)
def test_odd_values_are_refused_in_words(door: Door) -> None:
    """Each odd value at each argument: accepted, or refused by an error with a code that names the argument."""
    found = {index: text for index, value in enumerate(ODD) if (text := complaint(door, value))}
    assert not found, "\n".join(f"{type(ODD[index])} number {index}: {text}" for index, text in found.items())


@pytest.mark.parametrize("door", DOORS, ids=str)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=anything())
def test_any_value_is_refused_in_words(door: Door, value: Any) -> None:
    """So for values drawn at random."""
    assert not complaint(door, value)


def test_several_odd_values_at_once() -> None:
    """Two or three arguments at once, at random: no error but tilekit's comes out, whichever it is about."""
    chance = random.Random(20261122)
    calls: dict[str, list[Door]] = {}
    for door in doors():
        calls.setdefault(door.call, []).append(door)
    for _ in range(1500):
        several = chance.choice([found for found in calls.values() if len(found) > 2])
        picked = chance.sample(several, chance.choice((2, 3)))
        values = {door.parameter: chance.choice(ODD) for door in picked}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                picked[0].open(values)
            except TilekitError:
                pass
            except Exception as error:
                pytest.fail(f"{picked[0].call} with {list(values)}: {type(error).__name__}: {error}")
