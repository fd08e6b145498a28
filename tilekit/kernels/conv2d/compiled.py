"""A compiled convolution: a matmul's kernel that binds images and filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from tilekit.annotations import takes
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.conv2d.arguments import ConvArguments, ConvOperands
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.plan import EmulatorKeywords, Plan


class ConvBindKeywords(ConvOperands, EmulatorKeywords, total=False):
    """What `ConvKernel.bind` takes beside operands and output."""

    device: str | None


class ConvKernel(MatmulKernel):
    """A convolution for one spec, config and target; a plain matmul's spec is one of 1x1 filters."""

    CALL = "tilekit.conv2d"

    @takes(ConvBindKeywords)
    def bind(  # type: ignore[override]  # no scales of rows and columns
        self, x: Any, w: Any, out: Any = None, **keywords: Unpack[ConvBindKeywords]
    ) -> Plan:
        """Prepare a launch, as every kernel does, of arrays as `tilekit.conv2d` takes them."""
        return self._bound(x, w, out, keywords)

    def _arguments(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Arguments:
        spec = self.spec
        built: dict[str, Any] = {
            "out_dtype": spec.out_dtype,
            "activation": spec.functions.activation,
            "target": self.target.name,
        }
        return ConvArguments.parse(a, b, out=out, accumulation=spec.accumulation, **built, **given)

    def _check_fit(self, arguments: Any) -> None:
        given, what = arguments.spec, "how images and filters are loaded"
        if isinstance(given, ConvSpec) and isinstance(self.spec, ConvSpec):
            self._require(
                [(what, _way(given), _way(self.spec))], "build a kernel for these arrays, or call tilekit.conv2d"
            )
        super()._check_fit(arguments)


def _way(spec: MatmulSpec) -> str:
    """What decides which elements of K there are, and where."""
    return spec.swaps[0] if spec.copies else ", ".join((*spec.swaps, f"swizzle {spec.swizzles(swapped=False)[0]}"))
