"""Which configs a matmul may have, for tuning: also of convolutions, of groups, and of operands with scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.picker import pick, ranked, variants
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target


class MatmulChoices:
    """The configs of a chip's matmul."""

    def plain(self, spec: MatmulSpec) -> str:
        """The name and store of the spec without its functions and components, but with a payload, which has a cost."""
        alone = replace(spec, functions=ElementwiseSpec(), components=OwnComponents(payload=spec.components.payload))
        return f"{alone.name}.{alone.store}"

    def config(self, values: Mapping[str, Any], target: Target) -> KernelConfig:
        """Build a config from its fields by name."""
        return platform(target).config(**values)

    def ranked(
        self, spec: MatmulSpec, target: Target, *, groups: int = 0, tuning: bool = False, **problem: Any
    ) -> list[KernelConfig]:
        """Configs best first; of groups on a chip whose model has no figures for them, what they take is the first."""
        found = [e.config for e in ranked(spec, target, groups=groups, tuning=tuning, **problem)]
        if tuning or not groups:
            return found
        return list(dict.fromkeys([pick(spec, target, groups=groups, **problem), *found]))

    def variants(self, config: KernelConfig, spec: MatmulSpec, target: Target) -> list[KernelConfig]:
        """Legal variants in what the model knows nothing of."""
        return variants(config, spec, target)
