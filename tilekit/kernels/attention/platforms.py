"""What attention's kernels differ in from chip to chip: how they can be configured, and who traces them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilekit.errors import ArgumentError
from tilekit.kernels.attention import candidates
from tilekit.kernels.attention import config as sm_90a
from tilekit.kernels.attention import kernel as sm_90a_kernel
from tilekit.kernels.attention.sm_100a import candidates as sm_100a_candidates
from tilekit.kernels.attention.sm_100a import config as sm_100a
from tilekit.kernels.attention.sm_100a import kernel as sm_100a_kernel
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target

AnyAttentionConfig: TypeAlias = sm_90a.AttentionConfig | sm_100a.BlackwellAttentionConfig
"""The choices of an attention kernel, of whichever chip."""


@dataclass(frozen=True)
class AttentionPlatform:
    """One chip's attention.

    Attributes
    ----------
    config
        The class of its configs.
    default
        The best of them for a spec, a target and so many queries.
    trace
        What makes a kernel of a spec, a config, a target, and the caller's own components or None.
    candidates
        Legal configs for a spec, a target and so many queries, the best known first.
    variants
        Legal configs beside one, of a spec and a target, that differ in what costs no tile its place.
    """

    config: type
    default: Callable[[AttentionSpec, Target, int], AnyAttentionConfig]
    trace: Callable[[AttentionSpec, Any, Target, sm_90a_kernel.OwnAttention | None], sm_90a_kernel.AttentionText]
    candidates: Callable[[AttentionSpec, Target, int], Iterable[AnyAttentionConfig]]
    variants: Callable[[Any, AttentionSpec, Target], Sequence[AnyAttentionConfig]]


PLATFORMS = {
    "sm_90a": AttentionPlatform(
        sm_90a.AttentionConfig, sm_90a.default_config, sm_90a_kernel.trace, candidates.candidates, candidates.variants
    ),
    "sm_100a": AttentionPlatform(
        sm_100a.BlackwellAttentionConfig,
        sm_100a.default_config,
        sm_100a_kernel.trace,
        sm_100a_candidates.candidates,
        sm_100a_candidates.variants,
    ),
}
"""By the target's name."""


def platform(target: Target) -> AttentionPlatform:
    """The platform of a target (``TK-ATT-005`` where there is none)."""
    found = PLATFORMS.get(target.name)
    if found is None:
        legal = ", ".join(map(repr, PLATFORMS))
        raise ArgumentError.of("target", target.name, legal=legal, nearest="sm_90a", code="TK-ATT-005")
    return found


def chosen_config(
    spec: AttentionSpec, target: Target, queries: int, config: AnyAttentionConfig | None
) -> AnyAttentionConfig:
    """The config given, which must be one of the target's, or the best."""
    place = platform(target)
    if config is None:
        return place.default(spec, target, queries)
    if not isinstance(config, place.config):
        raise ArgumentError.of(
            "config",
            type(config).__name__,
            legal=f"a {place.config.__name__} on {target.name}",
            nearest=place.config.__name__,
            code="TK-ATT-005",
        )
    return config
