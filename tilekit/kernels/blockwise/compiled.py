"""A compiled product with scales of blocks: a matmul's kernel that binds scales too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, cast

from tilekit.annotations import takes
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.blockwise.arguments import BlockwiseArguments, GroupedBlockwiseArguments
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.grouped.compiled import GroupedBindKeywords, GroupedKernel
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.plan import Plan


class BlockwiseKernel(MatmulKernel):
    """A product with scales of blocks for one spec, config and target; `bind` takes them as scale_a and scale_b."""

    CALL = "tilekit.scaled_matmul"
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


class ScaledGroupsBindKeywords(GroupedBindKeywords, total=False):
    """What `GroupedBlockwiseKernel.bind` takes beside operands and output."""

    scale_a: Any
    scale_b: Any


class GroupedBlockwiseKernel(GroupedKernel, BlockwiseKernel):
    """The same of groups of rows; `bind` takes where they end and their scales."""

    @takes(ScaledGroupsBindKeywords)
    def bind(  # type: ignore[override]  # groups in the place of what is behind a product
        self, a: Any, b: Any, out: Any = None, **keywords: Unpack[ScaledGroupsBindKeywords]
    ) -> Plan:
        """Prepare a launch; all but `out` are as `tilekit.grouped_matmul` takes them."""
        return self._bound(a, b, out, keywords)

    def _arguments(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Arguments:
        return GroupedBlockwiseArguments.parse(a, b, out=out, **cast(Any, {**given, **self._built}))
