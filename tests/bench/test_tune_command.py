"""Choosing by measurement."""

from __future__ import annotations

from typing import Any

import pytest

from tilekit.bench.tuning import quickest


def test_the_quickest_choice_is_taken(machine: Any) -> None:
    """Of three choices the one that costs least, measured on all the sets given."""
    launched: list[tuple[int, str]] = []

    def launch(us: int, operand: str) -> None:
        launched.append((us, operand))
        machine.spend(us * 1e-6)

    assert quickest(machine, [30, 10, 20], launch, [("x",), ("y",)]) == 10
    assert {(us, operand) for us, operand in launched} == {(us, o) for us in (10, 20, 30) for o in "xy"}


def test_a_choice_that_fails_is_passed_over(machine: Any) -> None:
    """A config that does not fit is no candidate; if none fits, the first reason is raised."""

    def launch(us: int, operand: str) -> None:
        if us < 20:
            raise MemoryError(f"{us} does not fit")
        machine.spend(us * 1e-6)

    assert quickest(machine, [10, 30, 20], launch, [("x",)]) == 20
    with pytest.raises(MemoryError, match="10 does not fit"):
        quickest(machine, [10, 15], launch, [("x",)])
    with pytest.raises(ValueError, match="nothing to choose"):
        quickest(machine, [], launch, [("x",)])
