"""Choosing a matmul's config: the picker's engine, with the model of the chip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tilekit.heuristics import picker as engine
from tilekit.heuristics.picker import Estimates
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.estimates import Configs, Estimate, Grids
from tilekit.kernels.matmul.platforms import Model, platform
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target


@dataclass(frozen=True)
class Extents:
    """How much of a product there is, and how many multiprocessors compute it.

    Attributes
    ----------
    m, n, k, batches
        Extents.
    sms
        Multiprocessors; None: the target's.
    groups
        Groups of rows, with `m` rows in all; 0 where there are none.
    read, read_b
        The part of A, and of B, that lies in memory once: of images, whose pixels are part of several rows, less than
        1.
    """

    m: int
    n: int
    k: int
    batches: int = 1
    sms: int | None = None
    groups: int = 0
    read: float = 1.0
    read_b: float = 1.0


@dataclass(frozen=True, eq=False)
class _Model(engine.Model):
    """A chip's model as the engine takes it: with the grids that a problem's tiles make."""

    chip: Model

    def candidates(self, spec: MatmulSpec, target: Target) -> Iterable[KernelConfig]:
        return self.chip.candidates(spec, target)

    def tuning_candidates(self, spec: MatmulSpec, target: Target) -> Iterable[KernelConfig]:
        return self.chip.tuning_candidates(spec, target)

    def collect(self, configs: Sequence[Any], spec: MatmulSpec) -> Configs:
        return self.chip.collect(configs, spec)

    def estimates(self, collected: Configs, spec: MatmulSpec, target: Target, problem: Extents) -> Estimates:
        """Estimates; of use are configs whose clusters fit, and streamed ones where a tile is shared.

        A cluster that does not fit counts as if one CTA did. Where no tile is shared, a streamed schedule is that of
        another config. A cluster half of whose CTAs would have no tile is of use where there is no other: of 365 such
        configs that were timed beside the same tile in another cluster, it took 13 % more time in the mean (H200).
        """
        sms = problem.sms or target.multiprocessors
        shape = {"m": problem.m, "n": problem.n, "k": problem.k, "batches": problem.batches, "groups": problem.groups}
        resident = np.maximum(self.chip.resident(collected, sms), 1)
        grids = Grids.of(collected, spec, **shape, resident=resident, read=(problem.read, problem.read_b))
        usable = (collected.size <= sms) & ((grids.kept > 0) | (collected.stream_k == 0))
        useful = usable & ~grids.vain
        usable = np.flatnonzero(useful if useful.any() else usable)
        return replace(self.chip.estimates(collected, spec, grids), usable=usable)


@cache
def _model(target: Target) -> _Model:
    return _Model(platform(target).model)


def default_config(spec: MatmulSpec, target: Target) -> KernelConfig:
    """The config that suits large outputs on `target`; legal for every spec."""
    return platform(target).model.default(spec)


def candidates(spec: MatmulSpec, target: Target) -> list[KernelConfig]:
    """Every legal candidate for `spec` on `target`."""
    return list(platform(target).model.candidates(spec, target))


def variants(config: KernelConfig, spec: MatmulSpec, target: Target) -> list[KernelConfig]:
    """Legal variants of a config in what the model knows nothing of; only tuning tries them."""
    return list(platform(target).model.variants(config, spec, target))


def estimate(config: KernelConfig, spec: MatmulSpec, target: Target, **problem: Any) -> Estimate:
    """Model the time of one launch; `problem` is the fields of `Extents`."""
    return estimates([config], spec, target, **problem)[0]


def estimates(configs: Sequence[KernelConfig], spec: MatmulSpec, target: Target, **problem: Any) -> list[Estimate]:
    """Model the time of one launch with each of several configs, which are compared with each other alone."""
    model = _model(target)
    found = model.estimates(model.collect(configs, spec), spec, target, Extents(**problem))
    return [found.at(number) for number in range(len(configs))]


def ranked(
    spec: MatmulSpec,
    target: Target,
    *,
    m: int,
    n: int,
    k: int,
    batches: int = 1,
    sms: int | None = None,
    groups: int = 0,
    read: float = 1.0,
    read_b: float = 1.0,
    tuning: bool = False,
) -> list[Estimate]:
    """All candidates whose clusters fit on `sms` multiprocessors (by default the target's), best first.

    With `tuning`: those that only tuning tries. Of `groups`, `m` counts the rows of all.

    Raises
    ------
    ArgumentError
        ``TK-MM-004`` for operands that no matrix instruction of the target reads.
    """
    spec.check(target)
    return engine.ranked(
        _model(target), spec, target, Extents(m, n, k, batches, sms, groups, read, read_b), tuning=tuning
    )


def closest(
    spec: MatmulSpec,
    target: Target,
    overrides: Mapping[str, Any],
    *,
    m: int,
    n: int,
    k: int,
    batches: int = 1,
    groups: int = 0,
    read: float = 1.0,
) -> KernelConfig:
    """The best candidate that has the fields in `overrides`, or can have them in place, or a plain config with them.

    The last may break rules. For fields of which only tuning tries all values, it is also looked at what tuning tries.
    """
    spec.check(target)
    chip, problem = platform(target).model, Extents(m, n, k, batches, groups=groups, read=read)
    best = engine.ranked(_model(target), spec, target, problem)
    if overrides.keys() & chip.TUNED:
        best += engine.ranked(_model(target), spec, target, problem, tuning=True)
    found: KernelConfig = engine.closest(
        [e.config for e in best],
        spec,
        target,
        overrides,
        decisive=chip.DECISIVE,
        plain=lambda shape: chip.plain(spec, shape),
    )
    return found


def quickest(spec: MatmulSpec, target: Target, problem: Extents) -> Estimate:
    """The estimate of the best candidate."""
    spec.check(target)
    found: Estimate = engine.estimates(_model(target), spec, target, problem).best()
    return found


def pick(
    spec: MatmulSpec,
    target: Target,
    *,
    m: int,
    n: int,
    k: int,
    batches: int = 1,
    sms: int | None = None,
    groups: int = 0,
    read: float = 1.0,
    read_b: float = 1.0,
) -> KernelConfig:
    """The best candidate by the model; for `groups` of `m` rows in all, the one that is expected to be."""
    spec.check(target)
    fixed = platform(target).model.FOR_GROUPS
    if groups and fixed is not None:
        return fixed if fixed.legal(target, spec) else platform(target).model.default(spec)
    found = engine.estimates(_model(target), spec, target, Extents(m, n, k, batches, sms, groups, read, read_b))
    if not len(found.total):  # a payload of the caller's may leave no config room: this one says what it lacks
        default = platform(target).model.default(spec)
        default.check(target, spec)
        return default
    config: KernelConfig = found.best().config
    return config
