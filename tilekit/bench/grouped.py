"""A grouped matmul to run: rows of A, sorted by group, each multiplied with the matrix of its group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tilekit.bench.row_groups import GroupOperands, Groups, RowGroups
from tilekit.bench.views import Lying

if TYPE_CHECKING:
    from tilekit.bench.machine import Machine
    from tilekit.tiles.call import Major

__all__ = ["GroupedWorkload"]


@dataclass(frozen=True, slots=True)
class GroupedWorkload(RowGroups):
    """``(M, K)`` rows in groups, times ``(G, K, N)``: the experts' product of a mixture of experts.

    Attributes
    ----------
    routing : str
        A word for how the rows are spread over the groups.
    a_major, b_major : "k" or "mn"
        The contiguous dimension.
    """

    family: ClassVar[str] = "grouped_matmul"

    routing: str = "even"
    a_major: Major = "k"
    b_major: Major = "k"

    @property
    def kind(self) -> str:
        """Types and routing."""
        lie = "" if self.rows is None else f" masked, up to {self.rows}"
        return f"{self.dtype}→{self.out_dtype} {self.a_major}/{self.b_major} {self.routing}{lie}" + self.fused

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return standard normal operands on a machine, the groups, and an output: ``(a, b, groups, out)``."""
        a, b = (one.cut(machine.normal(one.stored, one.dtype, next(seeds))) for one in self._lying)
        return a, b, Groups(self.sizes, *self.told(machine)), machine.empty((*self.outer, self.n), self.out_dtype)

    @property
    def _lying(self) -> tuple[Lying, Lying]:
        """How both operands lie; M-major rows of groups that begin apart are rows of all of them, (K, G, R)."""
        groups, last = len(self.sizes), ((-1, -2),)
        if self.a_major == "k":
            a = Lying((*self.outer, self.k), self.dtype)
        elif self.rows is None:
            a = Lying((self.k, *self.outer), self.dtype, last)
        else:
            a = Lying((self.k, *self.outer), self.dtype, ((0, 1), (1, 2)), rows=2)
        if self.b_major == "k":
            return a, Lying((groups, self.n, self.k), self.dtype, last)
        return a, Lying((groups, self.k, self.n), self.dtype)

    @property
    def layouts(self) -> GroupOperands:
        """The operands as they lie in memory that does not exist."""
        a, b = self._lying
        return GroupOperands(a.view(0), b.view(1), self.bounds)

    def operands(self, seed: int, place: Callable[[Any], Any] = lambda stored: stored) -> GroupOperands:
        """Return standard normal operands, rows padded to 16 bytes; `place` makes of NumPy arrays those of a device."""
        random = np.random.default_rng(seed)
        a, b = (
            one.cut(place(random.standard_normal(one.stored, dtype=np.float32).astype(one.dtype.numpy)))
            for one in self._lying
        )
        return GroupOperands(a, b, {name: place(bounds) for name, bounds in self.bounds.items()})

    def wide(self, operands: GroupOperands, group: int, at: Any) -> tuple[Any, Any]:
        """The rows `at` of a group, and its matrix, in float64."""
        return operands.a[at].astype(np.float64), operands.b[group].astype(np.float64)

    @property
    def arguments(self) -> Any:
        """What reads such calls."""
        from tilekit.kernels.grouped.arguments import GroupedArguments

        return GroupedArguments

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        a, b, groups, out = operands
        return kernel.bind(a, b, out, **groups.keywords)

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the product of each group that has rows."""
        a, b, groups, out = operands
        return [(a[at], b[group], out[at]) for group, at in groups.rows()]
