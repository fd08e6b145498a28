"""Choosing a config: every legal candidate, ranked by a small model of its time on the chip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

from tilekit.kernels.matmul import blackwell_model, hopper_model
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.estimates import Estimate, Grid
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

    def resident(self, config: Any, sms: int) -> int:
        """CTAs that so many multiprocessors hold at once."""

    def estimate(self, config: Any, spec: MatmulSpec, grid: Grid) -> Estimate:
        """Model the time of one launch."""


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
    grid = _grid(config, spec, target, m=m, n=n, k=k, batches=batches, sms=sms)
    return _MODELS[target.name].estimate(config, spec, grid)


def _grid(
    config: KernelConfig, spec: MatmulSpec, target: Target, *, m: int, n: int, k: int, batches: int, sms: int
) -> Grid:
    resident = _MODELS[target.name].resident(config, sms)
    return Grid.of(config, spec, m=m, n=n, k=k, batches=batches, resident=resident)


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
    spec.check(target)
    sms = sms or target.multiprocessors
    model = _MODELS[target.name]
    every = model.spares(spec, target) if spares else model.candidates(spec, target)
    fitting = (config for config in every if config.cluster_size <= sms)
    grids = ((config, _grid(config, spec, target, m=m, n=n, k=k, batches=batches, sms=sms)) for config in fitting)
    # Where no tile is shared, a streamed schedule is that of another config.
    found = [model.estimate(config, spec, grid) for config, grid in grids if grid.kept or not config.streamed]
    return sorted(found, key=lambda e: e.total)


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
    spec: MatmulSpec, target: Target, *, m: int, n: int, k: int, batches: int = 1, sms: int | None = None
) -> KernelConfig:
    """The best candidate by the model."""
    return ranked(spec, target, m=m, n=n, k=k, batches=batches, sms=sms)[0].config
