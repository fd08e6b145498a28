"""Choosing a config: every legal candidate, ranked by a small model of its time on the chip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.estimates import Array, Configs, Estimate, Estimates, Grids
from tilekit.kernels.matmul.sm_90a import model as hopper_model
from tilekit.kernels.matmul.sm_100a import model as blackwell_model
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target


class _Model(Protocol):
    """What the module of a chip's model has."""

    def default(self, spec: MatmulSpec) -> KernelConfig:
        """What suits large outputs."""

    def plain(self, spec: MatmulSpec, wishes: Mapping[str, Any]) -> KernelConfig:
        """A config for wishes that no candidate meets: what goes with the tile, without a cluster beyond a pair."""

    def candidates(self, spec: MatmulSpec, target: Target) -> Iterable[KernelConfig]:
        """Every legal candidate."""

    def spares(self, spec: MatmulSpec, target: Target) -> Iterable[KernelConfig]:
        """Legal configs that only tuning tries."""

    def variants(self, config: Any, spec: MatmulSpec, target: Target) -> Iterable[KernelConfig]:
        """Legal variants of a config in what the model knows nothing of."""

    def collect(self, configs: Sequence[Any], spec: MatmulSpec) -> Configs:
        """What the estimates of these configs depend on."""

    def resident(self, configs: Any, sms: int) -> Array:
        """CTAs of each config that so many multiprocessors hold at once."""

    def estimates(self, configs: Any, spec: MatmulSpec, grids: Grids) -> Estimates:
        """Model the time of one launch of each."""


_MODELS = cast("dict[str, _Model]", {"sm_90a": hopper_model, "sm_100a": blackwell_model})


def default_config(spec: MatmulSpec, target: Target) -> KernelConfig:
    """The config that suits large outputs on `target`; legal for every spec."""
    return _MODELS[target.name].default(spec)


def candidates(spec: MatmulSpec, target: Target) -> list[KernelConfig]:
    """Every legal candidate for `spec` on `target`."""
    return list(_MODELS[target.name].candidates(spec, target))


def variants(config: KernelConfig, spec: MatmulSpec, target: Target) -> list[KernelConfig]:
    """Legal variants of a config in what the model knows nothing of; only tuning tries them."""
    return list(_MODELS[target.name].variants(config, spec, target))


def estimate(
    config: KernelConfig, spec: MatmulSpec, target: Target, *, m: int, n: int, k: int, batches: int, sms: int
) -> Estimate:
    """Model the time of one launch on `sms` multiprocessors."""
    one = _MODELS[target.name].collect([config], spec)
    found, _ = _estimates(one, spec, target, m=m, n=n, k=k, batches=batches, sms=sms)
    return found.at(0)


@lru_cache(maxsize=64)
def _collected(spec: MatmulSpec, target: Target, spares: bool) -> Configs:
    model = _MODELS[target.name]
    every = model.spares(spec, target) if spares else model.candidates(spec, target)
    return model.collect(list(every), spec)


def _estimates(
    configs: Configs,
    spec: MatmulSpec,
    target: Target,
    *,
    m: int,
    n: int,
    k: int,
    batches: int,
    sms: int,
    groups: int = 0,
) -> tuple[Estimates, Grids]:
    """An estimate of each, and how its tiles fall; a cluster that does not fit counts as if one CTA did."""
    model = _MODELS[target.name]
    resident = np.maximum(model.resident(configs, sms), 1)
    grids = Grids.of(configs, spec, m=m, n=n, k=k, batches=batches, resident=resident, groups=groups)
    return model.estimates(configs, spec, grids), grids


def ranked(
    spec: MatmulSpec,
    target: Target,
    *,
    m: int,
    n: int,
    k: int,
    batches: int = 1,
    sms: int | None = None,
    spares: bool = False,
) -> list[Estimate]:
    """All candidates whose clusters fit on `sms` multiprocessors (by default the target's), best first.

    With `spares`: those that only tuning tries.

    Raises
    ------
    ArgumentError
        ``TK-MM-004`` for operands that no matrix instruction of the target reads.
    """
    found, usable = _usable(spec, target, m=m, n=n, k=k, batches=batches, sms=sms, spares=spares)
    order = usable[np.argsort(found.total[usable], kind="stable")]
    return [found.at(i) for i in order.tolist()]


def _usable(
    spec: MatmulSpec,
    target: Target,
    *,
    m: int,
    n: int,
    k: int,
    batches: int,
    sms: int | None,
    spares: bool,
    groups: int = 0,
) -> tuple[Estimates, Array]:
    """Estimates of every config, and the numbers of those that are of use."""
    spec.check(target)
    configs = _collected(spec, target, spares)
    sms = sms or target.multiprocessors
    found, grids = _estimates(configs, spec, target, m=m, n=n, k=k, batches=batches, sms=sms, groups=groups)
    # Where no tile is shared, a streamed schedule is that of another config.
    return found, np.flatnonzero((configs.size <= sms) & ((grids.kept > 0) | (configs.streamed == 0)))


def closest(
    spec: MatmulSpec, target: Target, wishes: Mapping[str, Any], *, m: int, n: int, k: int, batches: int = 1
) -> KernelConfig:
    """The best candidate whose fields are as wished.

    Where there is none, the best one with that tile (and pairs, or none, and schedule) that may have the wishes in
    place, else a plain config for that tile with the wishes: it may break rules. Who wishes for a schedule or for
    streamed tiles gets them though only tuning tries them.
    """
    best = [e.config for e in ranked(spec, target, m=m, n=n, k=k, batches=batches)]
    if wishes.keys() & {"schedule", "stream_k"}:
        best += [e.config for e in ranked(spec, target, m=m, n=n, k=k, batches=batches, spares=True)]
    shape = {name: value for name, value in wishes.items() if name in ("tile", "cta_group", "schedule")}
    for asked in (wishes, shape):
        for config in best:
            as_asked = all(getattr(config, name) == value for name, value in asked.items())
            if as_asked and (changed := config.changed(**wishes)).legal(target, spec):
                return changed
    return _MODELS[target.name].plain(spec, shape).changed(**wishes)


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
) -> KernelConfig:
    """The best candidate by the model; for `groups` of `m` rows in all, the one that is expected to be."""
    found, usable = _usable(spec, target, m=m, n=n, k=k, batches=batches, sms=sms, spares=False, groups=groups)
    return found.at(int(usable[np.argmin(found.total[usable])])).config
