"""A grouped matmul to run: rows of A, sorted by group, each multiplied with the matrix of its group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tilekit.bench.workload import error_limit
from tilekit.dtypes import BF16, DType
from tilekit.errors import ArgumentError

if TYPE_CHECKING:
    from tilekit.bench.machine import Machine

__all__ = ["GroupedWorkload", "Groups"]


@dataclass(frozen=True, slots=True)
class Groups:
    """Which rows belong to which group.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each group; a group may have none.
    ends : array of int32 on the device
        One past the last row of each group.
    """

    sizes: tuple[int, ...]
    ends: Any


@dataclass(frozen=True, slots=True)
class GroupedWorkload:
    """``(M, K)`` rows in groups, times ``(G, K, N)`` with K contiguous: the experts' product of a mixture of experts.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each group.
    n, k : int
    routing : str
        A word for how the rows are spread over the groups.
    dtype, out_dtype : DType
    """

    family: ClassVar[str] = "grouped_matmul"

    sizes: tuple[int, ...]
    n: int
    k: int
    routing: str = "even"
    dtype: DType = BF16
    out_dtype: DType = BF16

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 0 or sum(self.sizes) == 0:
            raise ArgumentError.of(
                "sizes", self.sizes, legal="rows of each group, none negative, not all zero", code="TK-BENCH-001"
            )

    @property
    def label(self) -> str:
        """Groups and shape, as ``G8 34560x7168x2048``."""
        return f"G{len(self.sizes)} {sum(self.sizes)}x{self.n}x{self.k}"

    @property
    def kind(self) -> str:
        """Types and routing."""
        return f"{self.dtype}→{self.out_dtype} k/k {self.routing}"

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
        rows = sum(self.sizes)
        a = machine.normal((rows, self.k), self.dtype, next(seeds))
        b = machine.normal((len(self.sizes), self.n, self.k), self.dtype, next(seeds)).swapaxes(-1, -2)
        ends = machine.upload(np.array(list(accumulate(self.sizes)), np.int32))
        return a, b, Groups(self.sizes, ends), machine.empty((rows, self.n), self.out_dtype)

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the product of each group that has rows."""
        a, b, groups, out = operands
        ends = list(accumulate(groups.sizes))
        return [
            (a[end - size : end], b[group], out[end - size : end])
            for group, (size, end) in enumerate(zip(groups.sizes, ends, strict=True))
            if size
        ]

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return the product: nothing is behind it."""
        return product
