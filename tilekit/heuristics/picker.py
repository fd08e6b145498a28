"""The picker: every legal candidate of a spec, ranked by a model of its time on a chip."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilekit.targets import Target

Array = NDArray[Any]


class Config(Protocol):
    """What the picker asks of a config, a frozen dataclass."""

    def legal(self, target: Target, spec: Any) -> bool:
        """Whether a kernel can be built with it."""


@dataclass(frozen=True)
class Estimates:
    """What a model says of many configs: the time of each at once, and the rest of one that is asked for.

    Attributes
    ----------
    total
        The time of a launch with each config, in the model's unit.
    at
        The estimate of the config with a number; it has the `config`.
    usable
        Numbers of the configs that may be picked; None: of all.
    """

    total: Array
    at: Callable[[int], Any]
    usable: Array | None = None

    def ranked(self) -> Iterator[int]:
        """Numbers of the usable ones, best first, and of equals the first."""
        usable = np.arange(len(self.total)) if self.usable is None else self.usable
        yield from usable[np.argsort(self.total[usable], kind="stable")].tolist()

    def best(self) -> Any:
        """The estimate of the best one."""
        if self.usable is None:
            return self.at(int(np.argmin(self.total)))
        return self.at(int(self.usable[np.argmin(self.total[self.usable])]))


class Model(ABC):
    """A family's model of a chip. `spec` and `problem` are the family's own: what is computed, and how much of it."""

    @abstractmethod
    def candidates(self, spec: Any, target: Target) -> Iterable[Config]:
        """Every legal config that may be picked."""

    def tuning_candidates(self, spec: Any, target: Target) -> Iterable[Config]:
        """Legal configs that only tuning tries."""
        return ()

    def collect(self, configs: Sequence[Any], spec: Any) -> Any:
        """What the estimates of these configs depend on; it is kept from problem to problem."""
        return configs

    @abstractmethod
    def estimates(self, collected: Any, spec: Any, target: Target, problem: Any) -> Estimates:
        """Model the time of one launch of each."""


@lru_cache(maxsize=64)
def _collected(model: Model, spec: Any, target: Target, tuning: bool) -> Any:
    every = model.tuning_candidates(spec, target) if tuning else model.candidates(spec, target)
    return model.collect(list(every), spec)


def estimates(model: Model, spec: Any, target: Target, problem: Any, *, tuning: bool = False) -> Estimates:
    """Estimates of all candidates, or, `tuning`, of those that only tuning tries."""
    return model.estimates(_collected(model, spec, target, tuning), spec, target, problem)


def ranked(model: Model, spec: Any, target: Target, problem: Any, *, tuning: bool = False) -> list[Any]:
    """The estimates, best first."""
    found = estimates(model, spec, target, problem, tuning=tuning)
    return [found.at(i) for i in found.ranked()]


def pick(model: Model, spec: Any, target: Target, problem: Any) -> Any:
    """The candidate with the best estimate."""
    return estimates(model, spec, target, problem).best().config


def closest(
    configs: Iterable[Any],
    spec: Any,
    target: Target,
    overrides: Mapping[str, Any],
    *,
    decisive: Collection[str],
    plain: Callable[[Mapping[str, Any]], Any],
) -> Any:
    """The first config that has the fields in `overrides`.

    Where there is none, the first one with the `decisive` fields among them that may have the others in place, else
    what `plain` makes of the decisive ones, with the others: it may break rules.
    """
    best, shape = list(configs), {name: value for name, value in overrides.items() if name in decisive}
    for config in chain.from_iterable(_with(asked, best) for asked in (overrides, shape)):
        changed = replace(config, **overrides)
        if changed.legal(target, spec):
            return changed
    return replace(plain(shape), **overrides)


def _with(fields: Mapping[str, Any], configs: Iterable[Any]) -> Iterator[Any]:
    """The configs that have these fields."""
    return (config for config in configs if all(getattr(config, name) == value for name, value in fields.items()))


def table(columns: Mapping[str, int], rows: Iterable[Sequence[str]], configs: Iterable[Any]) -> str:
    """Print figures of configs, right-aligned in columns of so many characters, with the configs behind them."""
    lines = [" ".join(f"{name:>{width}}" for name, width in columns.items()) + "  config"]
    lines += [
        " ".join(f"{figure:>{width}}" for figure, width in zip(row, columns.values(), strict=True)) + f"  {config}"
        for row, config in zip(rows, configs, strict=True)
    ]
    return "\n".join(lines)
