"""A product of a few rows to run as the gemv computes it, whatever the other families offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilekit.bench.workload import MatmulWorkload
from tilekit.targets import ChipName

__all__ = ["GemvWorkload"]


@dataclass(frozen=True, slots=True)
class GemvWorkload(MatmulWorkload):
    """``(M, K) @ (K, N)`` of up to eight rows."""

    @property
    def family(self) -> str:
        """The kernel family that computes it."""
        return "gemv"

    def spec_on(self, target: ChipName) -> Any:
        """What computes it."""
        from tilekit.epilogue.functions import ElementwiseSpec
        from tilekit.kernels.gemv.family import spec_of
        from tilekit.kernels.gemv.problem import read_gemv
        from tilekit.kernels.matmul.arguments import MatmulArguments

        a, b, out = self.views
        bias = np.zeros(self.n, np.float32) if self.bias else None
        call = MatmulArguments.parse(a, b, out=out, bias=bias, activation=self.activation, target=target, memory=False)
        functions = call.functions
        assert isinstance(functions, ElementwiseSpec), "a workload has no Python epilogue"
        return spec_of(read_gemv(a, b), a, b, self.out_dtype, functions)

    def kernel(self, target: ChipName, config: Any) -> Any:
        """The kernel that computes it with a config."""
        import tilekit

        return tilekit.compile(self.spec_on(target), target=target, config=config)

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        a, b, *_, out = operands
        return kernel.bind(a, b, out)
