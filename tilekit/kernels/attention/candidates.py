"""Which configs of sm_90a's attention tuning tries: there is no model of their times, only what was quickest before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilekit.kernels.attention.config import AttentionConfig, default_config
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target

_BLOCKS = (128, 96, 80, 64, 112, 144, 160, 176)
"""Keys of a block, those that have been the quickest of some spec first."""


def candidates(spec: AttentionSpec, target: Target, queries: int) -> Iterator[AttentionConfig]:
    """Legal configs: the picker's choice, then those with its warpgroups, or others, in the order of blocks."""
    best = default_config(spec, target, queries)
    yield best
    counts = (1,) if spec.group else sorted((1, 2, 3, 4), key=lambda count: (abs(count - best.warpgroups), -count))
    for warpgroups in counts:
        for keys in _BLOCKS:
            for stages in sorted(range(2, 9), key=lambda count: abs(count - best.stages)):
                config = replace(best, warpgroups=warpgroups, keys=keys, stages=stages)
                found = next((one for one in _outputs(config, spec) if one.legal(target, spec)), None)
                if found is not None:
                    if found != best:
                        yield found
                    break


def _outputs(config: AttentionConfig, spec: AttentionSpec) -> Iterator[AttentionConfig]:
    """With an output of its own, and in the place of the queries."""
    yield replace(config, own_output=True)
    if not spec.group:
        yield replace(config, own_output=False)


def variants(config: AttentionConfig, spec: AttentionSpec, target: Target) -> list[AttentionConfig]:
    """Legal configs that differ in one choice which costs no tile its place."""
    changed = [replace(config, slack=slack) for slack in (4, 8)]
    changed += [replace(config, stages=config.stages + more) for more in (-1, 1)]
    changed += [replace(config, turns=not config.turns)] if config.warpgroups > 1 else []
    changed += [replace(config, claims=not config.claims)] if spec.right and not spec.group else []
    changed += [] if spec.group else [replace(config, own_output=not config.own_output)]
    changed += [replace(config, ahead=not config.ahead)] if config.query_stages > 1 else []
    return [one for one in changed if one != config and one.legal(target, spec)]
