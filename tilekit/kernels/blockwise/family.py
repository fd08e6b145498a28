"""Products with scales of blocks among the families: the matmul's kernels with another payload and accumulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tilekit.kernels.arguments import Arguments
from tilekit.kernels.blockwise.arguments import BlockwiseArguments, GroupedBlockwiseArguments
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.grouped.family import GROUPED_MATMUL
from tilekit.kernels.grouped.family import select as select_grouped
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.family import MATMUL, build, select


class BlockwiseKernel(MatmulKernel):
    """A product with scales of blocks for one spec, config and target; `bind` takes them as scale_a and scale_b."""

    spec: BlockwiseSpec

    def _arguments(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Arguments:
        spec = self.spec
        scales = {name: given.get(name) for name in ("scale_a", "scale_b")}
        others = {name: value for name, value in given.items() if name not in scales}
        functions = {"activation": spec.functions.activation, "out_dtype": spec.out_dtype, "target": self.target.name}
        return BlockwiseArguments.parse(a, b, **scales, out=out, **functions, **others)

    def _check_fit(self, arguments: Any) -> None:
        built, given = self.spec.scale_load, arguments.spec.scale_load
        if built == "tma":  # threads read scales wherever they are
            self._require(
                [("how scale_a is loaded", given, built)],
                "build a kernel for these arrays, pass scales whose rows lie behind each other in multiples of 16 "
                "bytes, or call tilekit.scaled_matmul",
            )
        super()._check_fit(arguments)


BLOCKWISE = replace(
    MATMUL,
    name="blockwise",
    summary="D = activation(sum over K of scale_a * scale_b * (A @ B) + bias), 8 bits, a scale for 128 elements of K",
    arguments=BlockwiseArguments,
    spec=BlockwiseSpec,
    select=partial(select, kind=BlockwiseKernel),
    compile=partial(build, kind=BlockwiseKernel),
)

GROUPED_BLOCKWISE = replace(
    BLOCKWISE,
    name="grouped_blockwise",
    summary=GROUPED_MATMUL.summary.replace("A @ B", "scaled A @ B"),
    arguments=GroupedBlockwiseArguments,
    select=partial(select_grouped, kind=BlockwiseKernel),
)
