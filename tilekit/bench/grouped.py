"""A grouped matmul to run: rows of A, sorted by group, each multiplied with the matrix of its group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tilekit.bench.workload import error_limit
from tilekit.dtypes import BF16, DType
from tilekit.errors import ArgumentError
from tilekit.targets import ChipName

if TYPE_CHECKING:
    from tilekit.arrays import ArrayView
    from tilekit.bench.machine import Machine
    from tilekit.tiles.call import Major

__all__ = ["APART", "GroupedWorkload", "Groups", "layout", "parse_groups", "spread"]

APART = 1 << 40
"""Between the addresses of arrays that have no memory, so that they do not overlap."""


def spread(rows: int, groups: int) -> tuple[int, ...]:
    """Return sizes of `groups` groups with `rows` rows in all, exponentially distributed: few large ones, many small.

    That is what the picker's model expects of groups, whose sizes only the device knows.
    """
    shares = [-log(1 - (index + 0.5) / groups) for index in range(groups)]
    whole, so_far = sum(shares), 0.0
    ends = [0]
    for share in shares:
        so_far += share
        ends.append(round(rows * so_far / whole))
    return tuple(end - start for start, end in pairwise(ends))


def parse_groups(shape: str) -> tuple[tuple[int, ...], int, int]:
    """Read ``G8 4096x7168x2048``, whose groups' sizes are a `spread`, or ``700,90,1300x7168x2048``: sizes, N and K."""
    found = re.fullmatch(r"(?:G(\d{1,6}) (\d{1,18})|(\d{1,9}(?:,\d{1,9})*))x(\d{1,18})x(\d{1,18})", shape)
    if found is None or found[1] == "0":
        legal = "G8 4096x7168x2048, groups and the rows of all, or 700,90,1300x7168x2048, the rows of each"
        raise ArgumentError.of("shape", shape, legal=legal, nearest="G8 4096x7168x2048", code="TK-BENCH-001")
    sizes = spread(int(found[2]), int(found[1])) if found[1] else tuple(int(size) for size in found[3].split(","))
    return sizes, int(found[4]), int(found[5])


def layout(number: int, shape: tuple[int, ...], dtype: DType, *, transposed: bool = False) -> ArrayView:
    """View an array in memory that does not exist, C-ordered, or with its last dimensions exchanged."""
    from tilekit.arrays import ArrayView, c_strides

    strides = c_strides(shape)
    if transposed:
        (*outer, rows, columns), (*steps, across, along) = shape, strides
        shape, strides = (*outer, columns, rows), (*steps, along, across)
    return ArrayView((1 + number) * APART, shape, strides, dtype, "cpu", "numpy", None)


@dataclass(frozen=True, slots=True)
class Groups:
    """Which rows belong to which group.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each group; a group may have none.
    ends : array of int32 on the device
        One past the last row of each group; or, `counted`, how many rows it has.
    counted : bool
        Whether groups begin a whole number of rows apart.
    """

    sizes: tuple[int, ...]
    ends: Any
    counted: bool = False


@dataclass(frozen=True, slots=True)
class GroupedWorkload:
    """``(M, K)`` rows in groups, times ``(G, K, N)``: the experts' product of a mixture of experts.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each group.
    n, k : int
    routing : str
        A word for how the rows are spread over the groups.
    dtype, out_dtype : DType
    a_major, b_major : "k" or "mn"
        The contiguous dimension.
    rows : int or None
        How far apart groups begin, of which each has up to so many rows; None where they lie behind each other.
    """

    family: ClassVar[str] = "grouped_matmul"
    batch: ClassVar[None] = None
    read: ClassVar[float] = 1.0

    sizes: tuple[int, ...]
    n: int
    k: int
    routing: str = "even"
    dtype: DType = BF16
    out_dtype: DType = BF16
    a_major: Major = "k"
    b_major: Major = "k"
    rows: int | None = None

    def __post_init__(self) -> None:
        most = sum(self.sizes) if self.rows is None else self.rows
        if not self.sizes or min(self.sizes) < 0 or max(self.sizes) > most or sum(self.sizes) == 0:
            legal = "rows of each group, none negative, not all zero, and no more than rows"
            raise ArgumentError.of("sizes", self.sizes, legal=legal, code="TK-BENCH-001")

    @classmethod
    def parse(cls, shape: str, like: Self) -> Self:
        """Read what `parse_groups` does; everything but the shape is taken from ``like``."""
        sizes, n, k = parse_groups(shape)
        return replace(like, sizes=sizes, n=n, k=k)

    @property
    def m(self) -> int:
        """Rows of A in memory."""
        return sum(self.sizes) if self.rows is None else self.rows * len(self.sizes)

    @property
    def row_groups(self) -> int:
        """How many groups there are."""
        return len(self.sizes)

    @property
    def label(self) -> str:
        """Groups and shape, as ``G8 34560x7168x2048``."""
        return f"G{len(self.sizes)} {sum(self.sizes)}x{self.n}x{self.k}"

    @property
    def kind(self) -> str:
        """Types and routing."""
        lie = "" if self.rows is None else f" masked, up to {self.rows}"
        return f"{self.dtype}→{self.out_dtype} {self.a_major}/{self.b_major} {self.routing}{lie}"

    @property
    def bits(self) -> int:
        """Of an element of A."""
        return self.dtype.bits

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * sum(self.sizes) * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result; the matrix of an empty group is not read."""
        rows, groups = sum(self.sizes), sum(size > 0 for size in self.sizes)
        inputs = (rows * self.k + groups * self.n * self.k) * self.dtype.bytes
        return inputs + rows * self.n * self.out_dtype.bytes

    @property
    def error_limit(self) -> float:
        """Largest relative (Frobenius) error of a right answer."""
        return error_limit(self.dtype, self.out_dtype)

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return standard normal operands on a machine, the groups, and an output: ``(a, b, groups, out)``."""
        (a_shape, a_turned), (b_shape, b_turned) = self._stored
        a, b = (machine.normal(shape, self.dtype, next(seeds)) for shape in (a_shape, b_shape))
        a, b = a.swapaxes(-1, -2) if a_turned else a, b.swapaxes(-1, -2) if b_turned else b
        told = self.sizes if self.rows is not None else tuple(accumulate(self.sizes))
        groups = Groups(self.sizes, machine.upload(np.array(told, np.int32)), self.rows is not None)
        return a, b, groups, machine.empty((*self._outer, self.n), self.out_dtype)

    @property
    def _outer(self) -> tuple[int, ...]:
        """Leading dimensions of A and of the result."""
        return (self.m,) if self.rows is None else (len(self.sizes), self.rows)

    @property
    def _stored(self) -> tuple[tuple[tuple[int, ...], bool], tuple[tuple[int, ...], bool]]:
        """The C-ordered shapes of both operands, and whether they are read with the last dimensions exchanged."""
        (*leading, rows), groups = self._outer, len(self.sizes)
        a = (*leading, rows, self.k) if self.a_major == "k" else (*leading, self.k, rows)
        b = (groups, self.n, self.k) if self.b_major == "k" else (groups, self.k, self.n)
        return (a, self.a_major != "k"), (b, self.b_major == "k")

    def spec_on(self, target: ChipName) -> Any:
        """What computes it on a chip."""
        from tilekit.kernels.grouped.arguments import GroupedArguments

        (a_shape, a_turned), (b_shape, b_turned) = self._stored
        a = layout(0, a_shape, self.dtype, transposed=a_turned)
        b = layout(1, b_shape, self.dtype, transposed=b_turned)
        out, bounds = layout(2, (*self._outer, self.n), self.out_dtype), np.zeros(len(self.sizes), np.int32)
        how = {"ends" if self.rows is None else "counts": bounds}
        return GroupedArguments.parse(a, b, out=out, target=target, **how).spec  # type: ignore[arg-type]

    def kernel(self, target: ChipName, config: Any) -> Any:
        """The kernel that computes it with a config."""
        import tilekit

        return tilekit.compile(self.spec_on(target), target=target, config=config)

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        from tilekit.kernels.grouped.arguments import GroupedArguments

        a, b, groups, out = operands
        how = {"counts" if groups.counted else "ends": groups.ends, "target": kernel.target.name}
        return kernel.plan(GroupedArguments.parse(a, b, out=out, **how))

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the product of each group that has rows."""
        a, b, groups, out = operands
        found, ends = [], list(accumulate(groups.sizes))
        for group, (size, end) in enumerate(zip(groups.sizes, ends, strict=True)):
            if size:
                at: Any = (group, slice(0, size)) if groups.counted else slice(end - size, end)
                found.append((a[at], b[group], out[at]))
        return found

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return the product: nothing is behind it."""
        return product
