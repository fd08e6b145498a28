"""The engine of rules and picker, with a family that is made here: it knows no matmul and no chip."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.heuristics import picker
from tilekit.heuristics.rules import Choice, RuleBook, Violation
from tilekit.targets import SM_90A, Target

HERE = Path(tilekit.__file__).parent / "heuristics"


@dataclass(frozen=True)
class Oven:
    """A config: trays of loaves, and how hot."""

    trays: int = 1
    loaves: tuple[int, int] = (2, 3)
    heat: str = "low"

    def legal(self, target: Target, spec: int) -> bool:
        """Whether `RULES` find nothing."""
        return not RULES.violations(self, target, spec)


def _room(config: Oven, chip: Target, spec: int) -> Iterator[Violation]:
    size = config.trays * config.loaves[0] * config.loaves[1]
    if size > spec:
        yield Violation("room", "loaves", f"{size} loaves are {size - spec} over the {spec} of an oven")


def _crust(config: Oven, chip: Target, spec: int) -> Iterator[Violation]:
    if config.heat == "high" and config.trays > 1:
        yield Violation("crust", "heat", "heat='high' burns all trays but one")


RULES = RuleBook(
    phases=(
        (Choice("trays", (1, 2, 4), "1, 2 or 4"), Choice("heat", ("low", "high"), "low or high"), _crust),
        (_room,),
    ),
    values=lambda field, config, chip, spec: [(m, n) for m in range(1, 9) for n in range(1, 9)],
    fallbacks=("trays",),
    least=lambda config: "trays=1, loaves=(1, 1)",
)


@pytest.mark.parametrize(
    ("config", "spec", "problems"),
    [
        (Oven(), 6, []),
        (Oven(trays=3), 64, ["trays=3: 1, 2 or 4; nearest: trays=4"]),
        (Oven(trays=2, heat="high"), 64, ["heat='high' burns all trays but one; nearest: heat='low'"]),
        (Oven(5, heat="x"), 64, ["trays=5: 1, 2 or 4; nearest: trays=4", "heat='x': low or high; nearest: heat='low'"]),
        (
            Oven(5, heat="x"),
            9,
            [
                "trays=5: 1, 2 or 4; nearest: trays=4",
                "heat='x': low or high; nearest: heat='low'",
                "24 loaves are 15 over the 9 of an oven; nearest: loaves=(1, 2)",
            ],
        ),
        (Oven(loaves=(4, 4)), 12, ["16 loaves are 4 over the 12 of an oven; nearest: loaves=(3, 4)"]),
        (Oven(trays=4), 3, ["24 loaves are 21 over the 3 of an oven; nearest: trays=1, loaves=(1, 1)"]),
    ],
)  # fmt: skip
def test_rules_say_what_is_wrong_and_what_is_nearest(config: Oven, spec: int, problems: list[str]) -> None:
    """The nearest value of the field mends, of two as near the larger; else the least. A later phase's follow."""
    assert RULES.problems(config, SM_90A, spec) == problems
    assert config.legal(SM_90A, spec) == (not problems)


@dataclass(frozen=True)
class Baked:
    """An estimate."""

    config: Oven
    minutes: float


class Model(picker.Model):
    """Fewer batches of bread are quicker; two trays are never picked, and one config only tuning tries."""

    def __init__(self) -> None:
        self.collected = 0

    def candidates(self, spec: int, target: Target) -> Iterator[Oven]:
        every = (Oven(trays, loaves) for trays in (1, 2, 4) for loaves in ((1, 1), (2, 2), (2, 3)))
        return (config for config in every if config.legal(target, spec))

    def tuning_candidates(self, spec: int, target: Target) -> tuple[Oven, ...]:
        return (Oven(heat="high"),)

    def collect(self, configs: Sequence[Oven], spec: int) -> Sequence[Oven]:
        self.collected += 1
        return configs

    def estimates(self, collected: Sequence[Oven], spec: int, target: Target, problem: int) -> picker.Estimates:
        minutes = np.array([-(-problem // (c.trays * c.loaves[0] * c.loaves[1])) for c in collected])
        usable = np.flatnonzero([config.trays != 2 for config in collected])
        return picker.Estimates(minutes, lambda i: Baked(collected[i], minutes[i]), usable)


def test_the_best_of_the_usable_candidates_is_picked() -> None:
    """Ranked by the model, the first of equals first, none that is of no use; the configs are collected once a spec."""
    model = Model()
    order = [(e.config, e.minutes) for e in picker.ranked(model, 64, SM_90A, 12)]
    assert [minutes for _, minutes in order] == sorted(minutes for _, minutes in order)
    assert [config.trays for config, _ in order] == [4, 4, 1, 1, 4, 1]
    assert picker.pick(model, 64, SM_90A, 12) == order[0][0] == Oven(4, (2, 2))
    assert picker.pick(model, 6, SM_90A, 12) == Oven(1, (2, 3))
    assert picker.pick(model, 64, SM_90A, 100) == Oven(4, (2, 3))
    assert model.collected == 2
    (only,) = picker.ranked(model, 64, SM_90A, 12, tuning=True)
    assert only.config.heat == "high"


def test_the_closest_to_what_is_asked_for() -> None:
    """The first config that has it; else one that has the decisive part and may have the rest; else a plain one."""
    ordered = [Oven(4, (2, 2)), Oven(1, (2, 3)), Oven(1, (1, 1))]
    made: list[Mapping[str, Any]] = []

    def plain(shape: Mapping[str, Any]) -> Oven:
        made.append(shape)
        return Oven()

    def closest(**overrides: Any) -> Any:
        return picker.closest(ordered, 16, SM_90A, overrides, decisive=("loaves",), plain=plain)

    assert closest(trays=1) == Oven(1, (2, 3))
    assert closest(loaves=(1, 1), heat="high") == Oven(1, (1, 1), "high")
    assert closest(loaves=(2, 2), trays=2) == Oven(2, (2, 2))
    assert not made
    assert closest(loaves=(3, 3), trays=2) == Oven(2, (3, 3))
    assert made == [{"loaves": (3, 3)}]


def test_a_table_of_figures() -> None:
    """Figures are right-aligned under their names, with the config behind them."""
    text = picker.table({"n": 3, "minutes": 8}, [("1", "2.5"), ("22", "10")], ["first", "second"])
    assert text.splitlines() == ["  n  minutes  config", "  1      2.5  first", " 22       10  second"]


def test_the_engine_imports_no_family() -> None:
    """Of tilekit it imports what a chip is, and itself."""
    for file in HERE.glob("*.py"):
        modules = {
            node.module for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)
        }
        own = {module for module in modules if module and module.startswith("tilekit.")}
        assert own <= {"tilekit.targets"}, file
