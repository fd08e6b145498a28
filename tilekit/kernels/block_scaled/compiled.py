"""A compiled block-scaled matmul: a matmul's kernel that binds scales too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from tilekit.annotations import takes
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.block_scaled.arguments import BlockScaledArguments
from tilekit.kernels.block_scaled.quantised import QuantisedSpec
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.plan import EmulatorKeywords, Plan
from tilekit.kernels.scaled.keywords import ScaledOperands


class ScaledBindKeywords(ScaledOperands, EmulatorKeywords, total=False):
    """What `BlockScaledKernel.bind` takes beside operands, scales and output."""

    device: str | None


class BlockScaledKernel(MatmulKernel):
    """A block-scaled matmul for one spec, config and target."""

    CALL = "tilekit.scaled_matmul"
    spec: BlockScaledSpec

    @takes(ScaledBindKeywords)
    def bind(  # type: ignore[override]  # scales are operands, and have no default
        self, a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any = None, **keywords: Unpack[ScaledBindKeywords]
    ) -> Plan:
        """Prepare a launch, as every kernel does; scales are as `tilekit.lay_out_scales` returns them."""
        return self._bound(a, b, out, {**keywords, "scale_a": scale_a, "scale_b": scale_b})

    def _arguments(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Arguments:
        spec = self.spec
        how: dict[str, Any] = {"out_dtype": spec.out_dtype}
        if isinstance(spec, QuantisedSpec):
            how = {"out_dtype": spec.out_scaled, "scale_layout": spec.scale_layout}
        activation = spec.functions.activation
        return BlockScaledArguments.parse(a, b, out=out, activation=activation, target=self.target.name, **how, **given)

    def _check_fit(self, arguments: Any) -> None:
        for name, scales in arguments.scales.items():
            if scales.plain:
                raise ArgumentError(
                    f"{name} has shape {scales.view.shape}, a row of scales for each row: a kernel reads them in "
                    f"blocks of 128 rows and 4 scales; pass tilekit.lay_out_scales({name}), or call "
                    "tilekit.scaled_matmul, which does",
                    code="TK-SCALE-002",
                )
        self._require(
            [("the format", arguments.format.name, self.spec.scaled)],
            "build a kernel for these arrays, or call tilekit.scaled_matmul",
        )
        super()._check_fit(arguments)
