"""The rules engine: what a config breaks on a chip, and the nearest change that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilekit.targets import Target


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes
    ----------
    rule
        Its name.
    field, text
        The config's field to change, and what is wrong.
    phase
        Which of the table's phases found it.
    """

    rule: str
    field: str
    text: str
    phase: int = 0


Rule = Callable[[Any, Target, Any], Iterable[Violation]]
"""Yields what a config (of the table's kind) breaks on a chip for a spec."""


@dataclass(frozen=True)
class Choice:
    """The rule of a field that has a few legal values.

    Attributes
    ----------
    field, values
        The field, and all it may be.
    words
        What is legal, as the error says it.
    """

    field: str
    values: Sequence[Any]
    words: str

    def __call__(self, config: Any, chip: Target, spec: Any) -> tuple[Violation, ...]:
        given = getattr(config, self.field)
        if given in self.values:
            return ()
        return (Violation(self.field, self.field, f"{self.field}={given!r}: {self.words}"),)


@dataclass(frozen=True)
class RuleBook:
    """The rules of one kind of config, a frozen dataclass.

    Attributes
    ----------
    phases
        The rules. A phase is checked once the one before it finds nothing, so its rules may rely on that one's.
    values
        Values to suggest of a field that is no `Choice`.
    fallbacks
        What else to change where no value of the field itself helps.
    least
        The change that asks for the least of everything, where none of one field helps.
    """

    phases: tuple[tuple[Rule, ...], ...]
    values: Callable[[str, Any, Target, Any], Sequence[Any]]
    fallbacks: tuple[str, ...]
    least: Callable[[Any], str]

    def problems(self, config: Any, chip: Target, spec: Any) -> list[str]:
        """One sentence for each broken rule, ending in ``nearest: <field>=<value>``, the least change that mends it.

        Those that are left, or that a later phase finds, follow, of the config with these changes.
        """
        said: dict[str, None] = {}
        for _ in range(2 * len(self.phases)):  # a change may ask for another of the same phase
            found = self.violations(config, chip, spec)
            changes: dict[str, Any] = {}
            for violation in found:
                nearest = self._nearest_change(violation, found, config, chip, spec)
                words = self.least(config) if nearest is None else f"{nearest[0]}={nearest[1]!r}"
                said[f"{violation.text}; nearest: {words}"] = None
                changes |= [] if nearest is None else [nearest]
            if not changes:
                break
            config = replace(config, **changes)
        return list(said)

    def violations(self, config: Any, chip: Target, spec: Any) -> list[Violation]:
        """All broken rules of the first phase that has any."""
        for number, rules in enumerate(self.phases):
            found = [replace(v, phase=number) for rule in rules for v in rule(config, chip, spec)]
            if found:
                return found
        return []

    def _nearest_change(
        self, violation: Violation, found: list[Violation], config: Any, chip: Target, spec: Any
    ) -> tuple[str, Any] | None:
        """The nearest value of the violation's field, or else of another one, that mends it; None if there is none.

        Best is a change after which only the other fields' violations are left; next one after which this phase or a
        later one finds that another field must change too; and where two rules ask for more than one field can give,
        one that mends this.
        """
        others = {v.field for v in found} - {violation.field}
        known = {v.rule for v in found} - {violation.rule}
        second: tuple[str, Any] | None = None
        third: tuple[str, Any] | None = None
        for field in dict.fromkeys((violation.field, *self.fallbacks)):
            for value in self._candidates(config, chip, spec, field):
                left = self.violations(replace(config, **{field: value}), chip, spec)
                if all(v.field in others for v in left):
                    return field, value
                if second is None and all(v.field != violation.field and v.phase >= violation.phase for v in left):
                    second = field, value
                if third is None and all(v.rule in known or v.phase > violation.phase for v in left):
                    third = field, value
        return second or third

    def _candidates(self, config: Any, chip: Target, spec: Any, field: str) -> list[Any]:
        """Values of a field, those nearest to the config's first, and of two as near the larger."""
        choices = {rule.field: rule.values for rules in self.phases for rule in rules if isinstance(rule, Choice)}
        values = choices[field] if field in choices else self.values(field, config, chip, spec)
        given = getattr(config, field)
        legal = [value for value in values if value is not None]
        return sorted(legal, key=lambda value: (_distance(value, given), -_size(value)))


def _distance(value: Any, given: Any) -> float:
    if given is None:  # as the kernel finds best: no value is nearer than another
        return 0.0
    if isinstance(value, tuple):
        return float(sum(abs(v - g) for v, g in zip(value, given, strict=True)))
    if isinstance(value, str) and isinstance(given, str):
        return float(value[:1] != given[:1])
    return float(abs(value - given)) if isinstance(value, int) else 0.0


def _size(value: Any) -> int:
    return sum(value) if isinstance(value, tuple) else value if isinstance(value, int) else 0
