"""What groups of rows have in common, whatever their operands: sizes, shapes in words, counts of work."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tilekit.bench.accuracy import Accuracy, accuracy_of, error_limit
from tilekit.bench.views import layout
from tilekit.bench.workload import MOST, require_extent
from tilekit.dtypes import BF16, DType
from tilekit.errors import ArgumentError
from tilekit.targets import DEFAULT, ChipName

if TYPE_CHECKING:
    from tilekit.bench.machine import Machine
    from tilekit.epilogue.functions import Activation
    from tilekit.kernels.matmul.spec import Accumulation

__all__ = ["GroupOperands", "Groups", "RowGroups", "parse_groups", "spread"]


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


@dataclass(frozen=True, slots=True)
class Groups:
    """Which rows belong to which group.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each group; a group may have none.
    bounds : array of int32 on the device
        One past the last row of each group; or, `counted`, how many rows it has.
    counted : bool
        Whether groups begin a whole number of rows apart.
    """

    sizes: tuple[int, ...]
    bounds: Any
    counted: bool = False

    @property
    def keywords(self) -> dict[str, Any]:
        """As `tilekit.grouped_matmul` takes them."""
        return {"counts" if self.counted else "ends": self.bounds}

    def rows(self) -> Iterator[tuple[int, Any]]:
        """Each group that has rows: its number, and where these are."""
        for group, (size, end) in enumerate(zip(self.sizes, accumulate(self.sizes), strict=True)):
            if size:
                yield group, (group, slice(0, size)) if self.counted else slice(end - size, end)


@dataclass(frozen=True, slots=True)
class GroupOperands:
    """The arrays of one call.

    Attributes
    ----------
    a, b : array
        Rows of all groups, and a matrix a group.
    more : dict
        Where groups end, and scales, by the keywords of `tilekit.grouped_matmul`.
    """

    a: Any
    b: Any
    more: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowGroups(ABC):
    """Rows in groups, each times the matrix of its group: the part of a workload that no type of operands changes.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each group.
    n, k : int
    dtype, out_dtype : DType
    rows : int or None
        How far apart groups begin, of which each has up to so many rows; None where they lie behind each other.
    activation : str or None
        Of the result's elements; what is timed has none.
    """

    batch: ClassVar[None] = None
    read: ClassVar[float] = 1.0
    accumulation: ClassVar[Accumulation] = "fast"

    sizes: tuple[int, ...]
    n: int
    k: int
    rows: int | None = None
    dtype: DType = BF16
    out_dtype: DType = BF16
    activation: Activation | None = None

    def __post_init__(self) -> None:
        for name in ("n", "k"):
            require_extent(name, getattr(self, name))
        most = MOST if self.rows is None else self.rows
        if not self.sizes or min(self.sizes) < 0 or max(self.sizes) > most or sum(self.sizes) == 0 or self.m > MOST:
            room = "" if self.rows is None else f", and no more than the {self.rows} that there is room for"
            legal = f"rows of each group, none negative, not all zero{room}, {MOST} in all at most"
            most = min(most, MOST // max(1, len(self.sizes)))
            fitting = tuple(min(max(size, 0), most) for size in self.sizes)
            nearest = fitting if sum(fitting) else (1,) * max(1, len(fitting)) if self.rows != 0 else None
            raise ArgumentError.of("sizes", self.sizes, legal=legal, nearest=nearest, code="TK-BENCH-001")

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
    @abstractmethod
    def kind(self) -> str:
        """Types, and how groups lie, in a few words."""

    @property
    def fused(self) -> str:
        """What is done with elements, behind the rest of `kind`."""
        return f" +{self.activation}" if self.activation else ""

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

    @property
    def outer(self) -> tuple[int, ...]:
        """Leading dimensions of A and of the result."""
        return (self.m,) if self.rows is None else (len(self.sizes), self.rows)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.outer, self.n)

    @property
    def bounds(self) -> dict[str, Any]:
        """Where groups end, or how many rows each has, by the keyword of `tilekit.grouped_matmul`."""
        numbers = tuple(accumulate(self.sizes)) if self.rows is None else self.sizes
        return {"ends" if self.rows is None else "counts": np.array(numbers, np.int32)}

    def told(self, machine: Machine) -> tuple[Any, bool]:
        """The same on a machine, and whether rows are counted."""
        (numbers,) = self.bounds.values()
        return machine.upload(numbers), self.rows is not None

    @property
    @abstractmethod
    def layouts(self) -> GroupOperands:
        """The operands as they lie in memory that does not exist."""

    @abstractmethod
    def operands(self, seed: int, place: Callable[[Any], Any] = lambda stored: stored) -> GroupOperands:
        """Return standard normal operands; `place` makes of NumPy arrays those of a device."""

    @abstractmethod
    def wide(self, operands: GroupOperands, group: int, at: Any) -> tuple[Any, Any]:
        """The rows `at` of a group, and its matrix, in float64."""

    def call(self, operands: GroupOperands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.grouped_matmul` is called with."""
        return operands.a, operands.b, {**operands.more, "activation": self.activation}

    def accuracy(self, operands: GroupOperands, out: Any) -> Accuracy:
        """Compare the groups' rows of an answer with float64, each element against the error its sum may have."""
        expected, magnitudes, found = [], [], []
        for group, at in Groups(self.sizes, None, self.rows is not None).rows():
            a, b = self.wide(operands, group, at)
            expected.append(a @ b)
            magnitudes.append(np.abs(a) @ np.abs(b))
            found.append(out[at])
        sums, largest, answer = (np.concatenate(parts) for parts in (expected, magnitudes, found))
        return accuracy_of(sums, largest, answer, self.dtype, self.out_dtype, self.activation)

    def placed(self, out: Any) -> Any:
        """An output as a call takes it."""
        return out

    @property
    def spec(self) -> Any:
        """What computes it on the usual chip."""
        return self.spec_on(DEFAULT.name)

    def spec_on(self, target: ChipName) -> Any:
        """What computes it on a chip."""
        a, b, more = self.call(self.layouts)
        out = layout(2, self.out_shape, self.out_dtype)
        return self.arguments.parse(a, b, out=out, target=target, **more).spec

    @property
    @abstractmethod
    def arguments(self) -> Any:
        """What reads such calls."""

    def kernel(self, target: ChipName, config: Any) -> Any:
        """The kernel that computes it with a config."""
        import tilekit

        return tilekit.compile(self.spec_on(target), target=target, config=config)

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return the product: nothing is behind it."""
        return product
