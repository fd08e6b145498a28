"""Which calls are a gemv, and which config a gemv gets: every legal candidate, ranked by a small model of its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilekit.heuristics import picker as engine
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.rules import CLUSTER
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.gemv.weights import shape_of
from tilekit.targets import Target

MOST_TOKENS = 8
"""Rows of A up to which a gemv is chosen: 8 x 6144 x 4096 takes 14.5 us, and 15.2 as the matmul's best (H200)."""

# The model's constants, of an H200 (132 SMs, 1.7 GHz under load).

DRAM_RATE = 4.4e12
"""Bytes a second that DRAM delivers to a long kernel."""

SM_RATE = 70e9
"""Bytes a second that one SM takes in."""

LATENCY = 0.8e-6
"""Seconds from a load to its data, with DRAM busy."""

BALANCE = 0.2
"""How DRAM's rate goes with the tiles of an SM on average, over those of the busiest.

6144 x 4096 takes 14.2 us in tiles of 16 columns, and 15.4 in tiles of 32, of which 72 of 132 SMs have one and 60 two.
"""

CLUSTER_SECONDS = 0.5e-6
"""What a cluster adds to a launch."""

CLUSTER_COST = 0.03
"""Time lost to CTAs of a cluster that wait for each other at every tile (an assumption)."""


@dataclass(frozen=True)
class Estimate:
    """What the model says of one config for one problem.

    Attributes
    ----------
    clusters, rounds
        The grid, and tiles of a cluster at most.
    filled
        Part of the slots' bytes that exist: K is seldom a whole number of steps.
    seconds
        Time of a launch.
    """

    config: GemvConfig
    clusters: int
    rounds: int
    filled: float
    seconds: float


def candidates(spec: GemvSpec, target: Target) -> Iterator[GemvConfig]:
    """Every legal candidate for `spec` on `target`; where the model sees no difference, the first is taken.

    Two CTAs an SM with 16 columns each (K-major) were the quickest, or within 2 % of it, at 16 shapes from 2112x7168 to
    57344x8192, since every cluster that fits has had a part of the tiles (H200).
    """
    for groups, depth in ((1, 2), (2, 2), (1, 4), (4, 1), (1, 3), (2, 1), (1, 1)):
        for ctas in (2, 1):
            for cluster in CLUSTER.values:
                config = GemvConfig(groups=groups, depth=depth, cluster=cluster, ctas_per_sm=ctas)
                if config.legal(target, spec):
                    yield config


def estimate(config: GemvConfig, spec: GemvSpec, *, n: int, k: int, sms: int) -> Estimate:
    """Model the time of one launch: bytes over the slowest of DRAM, SMs and what is on its way at once."""
    columns = config.columns(spec)
    tiles = -(-n // columns)
    resident = max(1, sms * config.ctas_per_sm // config.cluster)
    rounds = -(-tiles // resident)
    clusters = min(tiles, resident)
    busiest = sum(-(-max(0, tiles - first) // resident) for first in range(0, resident, max(1, sms // config.cluster)))
    balance = tiles * config.cluster / sms / max(busiest, 1)
    ctas = clusters * config.cluster
    block = shape_of(spec).k_block
    share = -(-k // (config.cluster * block)) * block
    step = config.k_step(spec)
    steps = max(1, -(-share // step))
    filled = max(k, 1) / (steps * step * config.cluster)
    tokens = spec.tokens / columns  # each tile reads the tokens again, from L2 or L1
    rate = min(
        DRAM_RATE * min(1, balance) ** BALANCE,
        min(ctas, sms) * SM_RATE / (1 + tokens),
        ctas * config.bytes_in_flight(spec) * filled / LATENCY,
    )
    moved = tiles * columns * k * spec.b_dtype.bytes
    seconds = moved / rate + LATENCY
    if config.cluster > 1:
        seconds = seconds * (1 + CLUSTER_COST) + CLUSTER_SECONDS
    return Estimate(config, clusters, rounds, filled, seconds)


@dataclass(frozen=True)
class Extents:
    """How many columns and how much of K there is, and how many multiprocessors; None: the target's."""

    n: int
    k: int
    sms: int | None = None


class _Model(engine.Model):
    """The model as the picker's engine takes it."""

    def candidates(self, spec: GemvSpec, target: Target) -> Iterator[GemvConfig]:
        return candidates(spec, target)

    def estimates(
        self, collected: Sequence[GemvConfig], spec: GemvSpec, target: Target, problem: Extents
    ) -> engine.Estimates:
        sms = problem.sms or target.multiprocessors
        found = [estimate(config, spec, n=problem.n, k=problem.k, sms=sms) for config in collected]
        return engine.Estimates(np.array([e.seconds for e in found]), found.__getitem__)


_MODEL = _Model()


def ranked(spec: GemvSpec, target: Target, *, n: int, k: int, sms: int | None = None) -> list[Estimate]:
    """All candidates, best first by the model, for `sms` multiprocessors (by default the target's)."""
    return engine.ranked(_MODEL, spec, target, Extents(n, k, sms))


RANKING_UNITS = {
    "clusters": "clusters of the grid",
    "rounds": "tiles of a cluster at most",
    "filled": "part of the loaded bytes that exist",
    "seconds": "of the launch (in microseconds in the table); the config with the fewest is picked",
}
"""What the figures of a ranking are, by their names in an `Estimate`."""


def ranking(estimates: Sequence[Estimate]) -> str:
    """Print estimates as a table, in the order given."""
    rows = ((f"{e.clusters}", f"{e.rounds}", f"{e.filled:.0%}", f"{e.seconds * 1e6:.2f}") for e in estimates)
    return engine.table({"clusters": 8, "rounds": 6, "filled": 6, "µs": 8}, rows, (e.config for e in estimates))


@lru_cache(maxsize=1024)
def pick(spec: GemvSpec, target: Target, *, n: int, k: int, sms: int | None = None) -> GemvConfig:
    """The first of :func:`ranked`."""
    found: GemvConfig = engine.pick(_MODEL, spec, target, Extents(n, k, sms))
    return found
