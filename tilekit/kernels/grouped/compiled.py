"""Compiled products of groups of rows: a matmul's kernel that binds where the groups end, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, cast

from tilekit.annotations import takes
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.grouped.arguments import GroupedArguments
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.plan import EmulatorKeywords, Plan


class GroupedBindKeywords(EmulatorKeywords, total=False):
    """What `GroupedKernel.bind` takes beside operands and output."""

    ends: Any
    counts: Any
    epilogue: Any
    arrays: dict[str, Any] | None
    device: str | None


class GroupedKernel(MatmulKernel):
    """Products of groups of rows for one spec, config and target; any groups, wherever they end."""

    CALL = "tilekit.grouped_matmul"

    @takes(GroupedBindKeywords)
    def bind(  # type: ignore[override]  # groups in the place of what is behind a product
        self, a: Any, b: Any, out: Any = None, **keywords: Unpack[GroupedBindKeywords]
    ) -> Plan:
        """Prepare a launch, as every kernel does; `ends` or `counts` are as `tilekit.grouped_matmul` takes them."""
        return self._bound(a, b, out, keywords)

    def _arguments(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Arguments:
        own = {"components": self.spec.components}
        return GroupedArguments.parse(a, b, out=out, **cast(Any, {**given, **self._built, **own}))

    @property
    def _built(self) -> dict[str, Any]:
        """What the kernel was built for, as a call has it."""
        functions, out = self.spec.functions, self.spec.out_dtype
        return {"activation": functions.activation, "out_dtype": out, "target": self.target.name}

    def _kind_of(self, arguments: Arguments) -> str | None:
        return cast(GroupedArguments, arguments).kind
