"""A compiled product with scales of blocks: a matmul's kernel that binds scales too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilekit.kernels.arguments import Arguments
from tilekit.kernels.blockwise.arguments import BlockwiseArguments
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.matmul.compiled import MatmulKernel


class BlockwiseKernel(MatmulKernel):
    """A product with scales of blocks for one spec, config and target; `bind` takes them as scale_a and scale_b."""

    spec: BlockwiseSpec

    def _arguments(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Arguments:
        spec = self.spec
        built: dict[str, Any] = {"activation": spec.functions.activation, "out_dtype": spec.out_dtype}
        built |= {"scale_a": None, "scale_b": None, "target": self.target.name}
        return BlockwiseArguments.parse(a, b, out=out, **built | dict(given))

    def _check_fit(self, arguments: Any) -> None:
        for name in ("scale_load", "scale_b_load"):
            built, given = getattr(self.spec, name), getattr(arguments.spec, name)
            if built == "tma":  # threads read scales wherever they are
                which = "scale_a" if name == "scale_load" else "scale_b"
                self._require(
                    [(f"how {which} is loaded", given, built)],
                    "build a kernel for these arrays, pass scales whose rows lie behind each other in multiples of 16 "
                    "bytes, or call tilekit.scaled_matmul",
                )
        super()._check_fit(arguments)
