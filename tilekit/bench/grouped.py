"""A grouped matmul to run: rows of A, sorted by group, each multiplied with the matrix of its group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tilekit.bench.row_groups import Groups, RowGroups
from tilekit.bench.views import layout
from tilekit.targets import ChipName

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
        return f"{self.dtype}→{self.out_dtype} {self.a_major}/{self.b_major} {self.routing}{lie}"

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return standard normal operands on a machine, the groups, and an output: ``(a, b, groups, out)``."""
        (a_shape, a_turned), (b_shape, b_turned) = self._stored
        a, b = (machine.normal(shape, self.dtype, next(seeds)) for shape in (a_shape, b_shape))
        a, b = a.swapaxes(-1, -2) if a_turned else a, b.swapaxes(-1, -2) if b_turned else b
        return a, b, Groups(self.sizes, *self.told(machine)), machine.empty((*self.outer, self.n), self.out_dtype)

    @property
    def _stored(self) -> tuple[tuple[tuple[int, ...], bool], tuple[tuple[int, ...], bool]]:
        """The C-ordered shapes of both operands, and whether they are read with the last dimensions exchanged."""
        (*leading, rows), groups = self.outer, len(self.sizes)
        a = (*leading, rows, self.k) if self.a_major == "k" else (*leading, self.k, rows)
        b = (groups, self.n, self.k) if self.b_major == "k" else (groups, self.k, self.n)
        return (a, self.a_major != "k"), (b, self.b_major == "k")

    def spec_on(self, target: ChipName) -> Any:
        """What computes it on a chip."""
        from tilekit.kernels.grouped.arguments import GroupedArguments

        (a_shape, a_turned), (b_shape, b_turned) = self._stored
        a = layout(0, a_shape, self.dtype, transposed=a_turned)
        b = layout(1, b_shape, self.dtype, transposed=b_turned)
        out = layout(2, (*self.outer, self.n), self.out_dtype)
        return GroupedArguments.parse(a, b, out=out, target=target, **self.bounds).spec

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        from tilekit.kernels.grouped.arguments import GroupedArguments

        a, b, groups, out = operands
        return kernel.plan(GroupedArguments.parse(a, b, out=out, target=kernel.target.name, **groups.keywords))

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the product of each group that has rows."""
        a, b, groups, out = operands
        return [(a[at], b[group], out[at]) for group, at in groups.rows()]
