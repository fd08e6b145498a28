"""Which configs of sm_100a's attention tuning tries, in the order of the model's cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilekit.kernels.attention.sm_100a.config import BlackwellAttentionConfig, default_config
from tilekit.kernels.attention.sm_100a.model import block_cycles
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target

_POLYNOMIALS = (0, 4, 8, 16)


def candidates(spec: AttentionSpec, target: Target, queries: int) -> Iterator[BlackwellAttentionConfig]:
    """Legal configs: the picker's choice, then tiles and blocks by the cycles of a query and key, with most stages."""
    best = default_config(spec, target, queries)
    yield best
    made = []
    for tiles in (1,) if spec.group else (1, 2):
        for keys in range(32, 129, 16):
            sized = (replace(best, tiles=tiles, keys=keys, stages=stages) for stages in range(6, 0, -1))
            found = next((config for config in sized if config.legal(target, spec)), None)
            if found is not None:
                made.append(found)
    made.sort(key=lambda one: (block_cycles(spec, one).bound / (one.queries * one.keys), -one.queries * one.keys))
    yield from (config for config in made if config != best)


def variants(config: BlackwellAttentionConfig, spec: AttentionSpec, target: Target) -> list[BlackwellAttentionConfig]:
    """Legal configs that differ in one choice which costs no tile its place."""
    changed = [replace(config, slack=slack) for slack in (0, 4, 8)]
    changed += [replace(config, polynomial=polynomial) for polynomial in _POLYNOMIALS]
    changed += [replace(config, stages=config.stages + more) for more in (-1, 1)]
    return [one for one in changed if one != config and one.legal(target, spec)]
