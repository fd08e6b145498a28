"""Which configs a gemv may have, for tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.picker import ranked
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.targets import Target

WARPS, PREFETCHES, FETCHES = (4, 8, 16), (0, 1, 2), (128, 256)
"""Values of `warps`, `prefetch` and `l2_bytes` that tuning tries; the model's candidates have the usual ones."""


class GemvChoices:
    """The configs of a gemv."""

    def plain(self, spec: GemvSpec) -> str:
        """The name of the spec without its functions."""
        return replace(spec, functions=ElementwiseSpec()).name

    def config(self, values: Mapping[str, Any], target: Target) -> GemvConfig:
        """Build a config from its fields by name."""
        return GemvConfig(**values)

    def ranked(
        self,
        spec: GemvSpec,
        target: Target,
        *,
        m: int,
        n: int,
        k: int,
        batches: int = 1,
        groups: int = 0,
        read: float = 1.0,
        sms: int | None = None,
        tuning: bool = False,
    ) -> list[GemvConfig]:
        """Configs best first; the picker chooses from all that have the usual warps and prefetch."""
        return [] if tuning else [e.config for e in ranked(spec, target, n=n, k=k, sms=sms)]

    def variants(self, config: GemvConfig, spec: GemvSpec, target: Target) -> list[GemvConfig]:
        """The same slots with other warps, prefetch and fetches of L2."""
        changed = (
            replace(config, warps=warps, prefetch=steps, l2_bytes=fetched)
            for warps, steps, fetched in product(WARPS, PREFETCHES, FETCHES)
            if (warps != config.warps) + (steps != config.prefetch) + (fetched != config.l2_bytes) == 1
        )
        return [one for one in changed if one.legal(target, spec)]
