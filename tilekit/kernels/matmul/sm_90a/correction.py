"""What an H200's times say beyond the model: trees, grown on what was left over of it, correct its best few.

The constants of the model say what limits a k-block and a launch. How much limits get in each other's way depends on
tile, cluster, layout and schedule together, and no term that was tried tells it (benchmarks/NOTES.md). Trees learn it
from the times in benchmarks/results. They see no extents, only what the model makes of them and how many tiles there
are, so that they hold for shapes that were not timed. ``python -m benchmarks.learn`` grows them, and says what they
gain on those.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilekit.heuristics.picker import Array
from tilekit.heuristics.trees import Trees
from tilekit.kernels.matmul.estimates import Grids
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

if TYPE_CHECKING:
    from tilekit.kernels.matmul.sm_90a.collected import HopperConfigs
    from tilekit.kernels.matmul.sm_90a.model import BlockClocks

PATH = Path(__file__).with_name("correction.npz")

NEAR = 1.2
"""How many times as long as the best a config may take, by the model, to be corrected: trees move few by more."""

DOUBT = 0.008
"""By how much another config than the model's own first must be better: the best of many corrections is a lucky one.

Two draws of six folds over 962 cases lose 2.06 % with 0, 2.03 % with 0.8 % and 2.07 % with 1.5 %.
"""

LEAST_CLOCKS = 6000.0
"""The model's time of a launch from which on it is corrected: the shortest that were timed take 3 us."""

MOST_CLOCKS = 1e7
"""That up to which it is: more than 5 ms fill a turn of the trees' times, in which power has not settled."""


def corrects(spec: MatmulSpec) -> bool:
    """Whether such products were timed: plain ones. What an epilogue waits for, such as a residual, was not."""
    return not (spec.own_sums or spec.own_loaders or spec.groups or spec.promoted or spec.loads_residual)


def features(
    configs: HopperConfigs, spec: MatmulSpec, grids: Grids, block: BlockClocks, clocks: Array, which: Array
) -> Array:
    """What the trees see of some configs: ``(which, features)``; `clocks` are the model's, before power limits."""
    c, waves, active = configs, np.maximum(grids.waves, 1), np.maximum(grids.active, 1)
    extents = (c.tile_m, c.tile_n, c.cluster_m, c.cluster_n, c.shares, c.cluster_k, c.k_group)
    along = ((grids.along_m, c.tile_m), (grids.along_n, c.tile_n))
    parts = (block.tensor / block.taken, block.shared / block.taken, block.l2 / block.taken)
    logarithms = (
        *(*extents, c.stages, c.buffers, c.pieces, waves, active / SM_90A.multiprocessors),
        *(np.maximum(grids.k_blocks, 1), *parts, *grids.requests, clocks),
        *(1 + count for count in (grids.outside, grids.ragged, grids.asked, grids.repeated)),
        *(np.maximum(-(-extent // tile), 1) for extent, tile in along),
    )
    as_they_are = (
        *(grids.kept > 0, c.swapped, c.pingpong, c.consumers_per_tile, c.drained, grids.tiles / (waves * active)),
    )
    same = (spec.a_major == "mn", spec.b_major == "mn", spec.a_dtype.bits == 8)
    columns = [np.log2(column[which]) for column in logarithms] + [column[which] for column in as_they_are]
    columns += [np.full(len(which), fact) for fact in same]
    return np.stack(columns, axis=1).astype(np.float32)


def corrected(
    total: Array, configs: HopperConfigs, spec: MatmulSpec, grids: Grids, block: BlockClocks, clocks: Array
) -> Array:
    """The model's times, those of the best corrected."""
    if not (len(total) and corrects(spec) and LEAST_CLOCKS <= total.min() <= MOST_CLOCKS):
        return total
    first = total.argmin()
    near = np.flatnonzero(total <= NEAR * total[first])
    better = total.astype(float)
    better[near] *= np.exp(_trees().sums(features(configs, spec, grids, block, clocks, near)))
    better[first] *= 1 - DOUBT
    return better


@cache
def _trees() -> Trees:
    return Trees.read(PATH)
