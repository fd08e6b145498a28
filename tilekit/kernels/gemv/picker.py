"""Which calls are a gemv, and which config a gemv gets: every legal candidate, ranked by a small model of its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from tilekit.heuristics import picker as engine
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.rules import CLUSTER
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.gemv.weights import shape_of
from tilekit.targets import Target

MOST_TOKENS = 8
"""Rows of A up to which a gemv is chosen: 8 x 6144 x 4096 takes 14.5 us, and 15.2 as the matmul's best (H200)."""

# The model's constants, of an H200 (132 SMs): fitted to 16 configs of 29 products of 1 to 8 rows. Its choice, or the
# matmul's where that is left to it, takes 1.015 times as long as the best in the mean (`python -m benchmarks.gemv`).

DRAM_RATE = 4.36e12
"""Bytes a second that DRAM delivers to a long kernel."""

SM_RATE = 81e9
"""Bytes a second that one SM takes in, if it has no tokens to read."""

TOKEN_COST = 1.93
"""How much an SM's rate falls for each token over a tile's columns: each tile reads them again, from L2 or L1."""

LATENCY = 0.34e-6
"""Seconds from a load to its data, which bounds what may be on its way."""

LAUNCH = 2.25e-6
"""Seconds of a launch that no size of the weights changes."""

BALANCE = 0.4
"""How DRAM's rate goes with the tiles of an SM on average, over those of the busiest.

6144 x 4096 takes 14.2 us in tiles of 16 columns, and 15.4 in tiles of 32, of which 72 of 132 SMs have one and 60 two.
"""

STEP_COST = 0.12
"""Time lost at the ends of a CTA's steps, over their number: 2 x 2048 x 1536 takes 3.9 us in one, and 3.2 in two."""

SUM_SECONDS = 0.13e-6
"""What a cluster adds to each round of tiles, where its CTAs' sums are added: to be multiplied by `CLUSTER_POWER`.

In clusters of eight 7 x 4288 x 1232 takes 25.6 us, in nine rounds, and 5.7 without.
"""

TOKEN_SUM_SECONDS = 0.018e-6
"""The same of each group of columns and token."""

CLUSTER_POWER = 0.8
"""How both go with the CTAs of a cluster."""

UNEVEN = 0.85
"""Tiles of an SM on average over those of the busiest, below which a matmul by TMA is quicker if K is long.

Of 38 products those below, with a second round of tiles and K from 1024 on, take 1.03 to 1.16 times as long as the
matmul's; with K of 344 to 440 0.85 (H200).
"""

LONG_K = 1024
"""Elements of K from which on that is so."""


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


SLOTS = {"k": ((1, 2), (2, 2), (1, 4), (4, 1)), "mn": ((1, 2), (2, 1))}
"""Groups and depth of the candidates, by the major of B: what was timed."""

NARROW_SLOTS = ((1, 1),)
"""The same of loads that are narrower than 16 bytes."""


def candidates(spec: GemvSpec, target: Target) -> list[GemvConfig]:
    """Every legal candidate for `spec` on `target`; where the model sees no difference, the first is taken.

    Two CTAs an SM, of which the second waits for memory while the first adds: one alone takes 16.4 us for 5 x 1200 x
    15008 in clusters of eight, and two 12.5 (H200). Only where two do not fit there is one.
    """
    for slots, ctas in product((SLOTS[spec.b_major], NARROW_SLOTS), (2, 1)):
        configs = (
            GemvConfig(groups=groups, depth=depth, cluster=cluster, ctas_per_sm=ctas)
            for (groups, depth), cluster in product(slots, CLUSTER.values)
        )
        found = [config for config in configs if config.legal(target, spec)]
        if found:
            return found
    return []


def estimate(config: GemvConfig, spec: GemvSpec, *, n: int, k: int, sms: int) -> Estimate:
    """Model the time of one launch: bytes over the slowest of DRAM, SMs and what is on its way at once."""
    columns = config.columns(spec)
    tiles = -(-n // columns)
    resident = max(1, sms * config.ctas_per_sm // config.cluster)
    rounds = -(-tiles // resident)
    clusters = min(tiles, resident)
    even = _evenness(config, tiles, resident, sms)
    ctas = clusters * config.cluster
    block = shape_of(spec).k_block
    share = -(-k // (config.cluster * block)) * block
    step = config.k_step(spec)
    steps = max(1, -(-share // step))
    filled = max(k, 1) / (steps * step * config.cluster)
    rate = min(
        DRAM_RATE * even**BALANCE,
        min(ctas, sms) * SM_RATE / (1 + TOKEN_COST * spec.tokens / columns),
        ctas * config.bytes_in_flight(spec) * filled / LATENCY,
    )
    moved = tiles * columns * k * spec.b_dtype.bytes
    seconds = moved / rate * (1 + STEP_COST / (rounds * steps)) + LAUNCH
    if config.cluster > 1:
        added = SUM_SECONDS + TOKEN_SUM_SECONDS * spec.tokens * config.groups
        seconds += rounds * config.cluster**CLUSTER_POWER * added
    return Estimate(config, clusters, rounds, filled, seconds)


def uneven(config: GemvConfig, spec: GemvSpec, target: Target, *, n: int, k: int) -> bool:
    """Whether a second round of tiles leaves much of the chip idle, for so long that a matmul by TMA is quicker.

    Clusters, whose CTAs share tiles more evenly, do not make up for it.
    """
    sms = target.multiprocessors
    tiles, resident = -(-n // config.columns(spec)), sms * config.ctas_per_sm
    return k >= LONG_K and tiles > resident and _evenness(replace(config, cluster=1), tiles, resident, sms) < UNEVEN


def _evenness(config: GemvConfig, tiles: int, resident: int, sms: int) -> float:
    """Tiles of an SM on average, over those of the busiest: 1 where all have as many."""
    apart = max(1, sms // config.cluster)  # an SM's clusters, in their order
    busiest = sum(-(-max(0, tiles - number * apart) // resident) for number in range(config.ctas_per_sm))
    return min(1.0, tiles * config.cluster / sms / max(busiest, 1))


@dataclass(frozen=True)
class Extents:
    """How many columns and how much of K there is, and how many multiprocessors; None: the target's."""

    n: int
    k: int
    sms: int | None = None


class _Model(engine.Model):
    """The model as the picker's engine takes it."""

    def candidates(self, spec: GemvSpec, target: Target) -> list[GemvConfig]:
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
