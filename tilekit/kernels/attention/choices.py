"""Attention's configs, as tuning tries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from tilekit.kernels.attention.platforms import AnyAttentionConfig, platform
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target

_PICKED = 6
"""Candidates that count as the picker's neighbours; only tuning tries those behind them."""


class AttentionChoices:
    """The configs of a chip's attention. A problem's M, N, K and groups are queries, heads, keys and heads of keys."""

    def plain(self, spec: AttentionSpec) -> str:
        """The name of the spec without the logarithms of the sums."""
        return replace(spec, lse=False).name

    def config(self, values: Mapping[str, Any], target: Target) -> AnyAttentionConfig:
        """Build a config from its fields by name."""
        made: AnyAttentionConfig = platform(target).config(**values)
        return made

    def ranked(
        self, spec: AttentionSpec, target: Target, *, m: int, tuning: bool = False, **_problem: Any
    ) -> list[AnyAttentionConfig]:
        """The first few candidates for so many queries, the picker's choice first; with `tuning` those behind them."""
        every = platform(target).candidates(spec, target, m)
        return list(islice(every, _PICKED, None) if tuning else islice(every, _PICKED))

    def variants(self, config: AnyAttentionConfig, spec: AttentionSpec, target: Target) -> list[AnyAttentionConfig]:
        """Legal variants in what costs no tile its place."""
        return list(platform(target).variants(config, spec, target))
