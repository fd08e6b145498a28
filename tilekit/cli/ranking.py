"""Rankings of configs as `tilekit dump --what ranking` shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilekit.cli.tables import columns, fitted

if TYPE_CHECKING:
    from tilekit.bench.conv2d import ConvWorkload
    from tilekit.bench.row_groups import RowGroups
    from tilekit.bench.workload import MatmulWorkload
    from tilekit.kernels.compiled import CompiledKernel


@dataclass(frozen=True)
class Ranking:
    """Every config that a kernel's family chooses from for a shape, and those that only tuning tries, best first.

    Attributes
    ----------
    estimates, others
        Those that are chosen from, and those of tuning.
    units
        What the figures of an estimate are.
    table
        Prints estimates.
    """

    estimates: Sequence[Any]
    others: Sequence[Any]
    units: Mapping[str, str]
    table: Callable[[Sequence[Any]], str]

    def text(self) -> str:
        """The tables, and a legend behind them."""
        lines = [self._fitted(self.estimates)]
        if self.others:
            lines += ["", "Only `tilekit tune` tries these:", self._fitted(self.others)]
        width = max(map(len, self.units))
        return "\n".join([*lines, "", *(f"{name:<{width}}  {unit}" for name, unit in self.units.items())])

    def _fitted(self, estimates: Sequence[Any]) -> str:
        """A table; where it is wider than the terminal, each config on a line of its own."""
        head, *rows = self.table(estimates).splitlines()
        if all(len(row) <= columns() for row in rows):
            return "\n".join([head, *rows])
        configs = [str(estimate.config) for estimate in estimates]
        figures = (row.removesuffix(config).rstrip() for row, config in zip(rows, configs, strict=True))
        return fitted("\n".join([head, *(f"{a}\n    {b}" for a, b in zip(figures, configs, strict=True))]), 6)

    def facts(self) -> dict[str, Any]:
        """The same as JSON takes it."""
        return {
            "units": dict(self.units),
            "configs": [self._row(estimate) for estimate in self.estimates],
            "tuning": [self._row(estimate) for estimate in self.others],
        }

    def _row(self, estimate: Any) -> dict[str, Any]:
        # Figures come from NumPy too.
        figures = {name: float(getattr(estimate, name)) for name in self.units}
        return {"config": str(estimate.config), **figures}


def ranking_of(
    kernel: CompiledKernel, workload: MatmulWorkload | ConvWorkload | RowGroups, top: int | None = None
) -> Ranking:
    """Return the ranking for a workload, of each part the first `top`."""
    from tilekit.kernels.gemv import picker as gemv
    from tilekit.kernels.gemv.compiled import GemvKernel
    from tilekit.kernels.matmul import estimates
    from tilekit.kernels.matmul.picker import ranked

    if isinstance(kernel, GemvKernel):
        common = gemv.ranked(kernel.spec, kernel.target, n=workload.n, k=workload.k)
        return Ranking(common[:top], (), gemv.RANKING_UNITS, gemv.ranking)
    k = workload.k // kernel.spec.a_dtype.packed
    extents = {"m": workload.m, "n": workload.n, "k": k, "batches": workload.batch or 1}
    extents["groups"] = workload.row_groups
    shape: dict[str, Any] = {**extents, "read": workload.read}
    first, others = (ranked(kernel.spec, kernel.target, **shape, tuning=which)[:top] for which in (False, True))
    return Ranking(first, others, estimates.RANKING_UNITS, estimates.ranking)
