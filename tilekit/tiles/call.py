"""What a launch is given, as components see it.

A component that declares a kernel parameter says here how its value follows from the call, so that it is said once::

    w.parameter("k", U32, lambda call: call.k)
    w.parameter("bias", GMEM, lambda call: call.address("bias"))
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeVar, cast

from tilekit.dtypes import DType
from tilekit.errors import ArgumentError

Major = Literal["k", "mn"]

Load = Literal["tma"] | int
"""How an operand is loaded: by TMA, or by threads, from an address and pitches that are multiples of so many bytes."""

_Made = TypeVar("_Made")


class Scratch(Protocol):
    """Where a launch gets memory of its own."""

    def __call__(self, name: str, size: int) -> int:
        """Return the address of `size` zero bytes."""


@dataclass(frozen=True)
class Matrix:
    """A matrix, or a batch of them, as the copy engine sees it.

    Attributes
    ----------
    name
        The caller's argument.
    dtype
        Element type.
    extents
        Elements along the contiguous dimension and along the other one.
    pitch, batch_pitch
        Bytes from row to row of the contiguous dimension, and from matrix to matrix (0 where there is only one).
    batches
        Matrices; 1 for an operand that every batch index shares.
    major
        ``"k"`` or ``"mn"`` for operands; ``"mn"`` for the output (N contiguous).
    load
        How an operand can be loaded: ``"tma"``, or in pieces of the bytes that address and pitches are multiples of.
    """

    name: str
    dtype: DType
    extents: tuple[int, int]
    pitch: int
    batch_pitch: int = 0
    batches: int = 1
    major: Major = "k"
    load: Load = "tma"

    @property
    def row_pitch(self) -> int:
        """Elements from row to row."""
        return fits(f"{self.name}'s row pitch", self.pitch * 8 // self.dtype.bits)

    @property
    def matrix_pitch(self) -> int:
        """Elements from matrix to matrix."""
        return fits(f"{self.name}'s batch pitch", self.batch_pitch * 8 // self.dtype.bits)

    @property
    def batch_step(self) -> int:
        """What a batch index is multiplied by: 0 for a matrix that all of a batch share."""
        return int(self.batches > 1)


@dataclass(frozen=True)
class Schedule:
    """How a launch covers the output.

    Attributes
    ----------
    clusters
        To launch.
    tiles
        Cluster tiles in all.
    slots
        CTA tiles whose sums several CTAs share, or CTAs that keep a share each.
    """

    clusters: int
    tiles: int
    slots: int = 0


@dataclass(frozen=True)
class Call:
    """One launch of a product of matrices: D (m, n) is the product of A (m, k) and B (k, n), as the kernel computes it.

    A kernel that computes the transpose of its output sees m and n, and a and b, exchanged; `matrices["d"]` is the
    output as it lies in memory.

    Attributes
    ----------
    m, n, k
        Extents of the product.
    matrices
        Its operands ``a`` and ``b``, its output ``d``, and others by the names that components give them.
    addresses
        Of everything in device memory, matrices too.
    resident
        Clusters that run at once.
    batches
        Products.
    numbers
        By the names that components give them.
    scratch
        Memory that lives as long as the launch; None where it has none.
    cluster_size
        CTAs of a cluster.
    schedule
        How the launch covers the output; known before any parameter is asked for.
    """

    m: int
    n: int
    k: int
    matrices: Mapping[str, Matrix]
    addresses: Mapping[str, int]
    resident: int
    batches: int = 1
    numbers: Mapping[str, float] = field(default_factory=dict)
    scratch: Scratch | None = None
    cluster_size: int = 1
    schedule: Schedule = Schedule(0, 0)
    _made: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def matrix(self, name: str) -> Matrix:
        """The matrix that components call `name`."""
        return self._given("matrix", self.matrices, name)

    def address(self, name: str) -> int:
        """Where `name` lies in device memory."""
        return self._given("address", self.addresses, name)

    def number(self, name: str) -> float:
        """The number that components call `name`."""
        return self._given("number", self.numbers, name)

    def allocate(self, name: str, size: int) -> int:
        """The address of `size` zero bytes of the launch's own memory."""
        if self.scratch is None:
            raise ArgumentError(
                f"a component asks for {size} bytes of device memory for its {name}; this call has no scratch memory",
                code="TK-PAR-003",
            )
        return self.scratch(name, size)

    @property
    def ctas(self) -> int:
        """CTAs of the launch."""
        return self.schedule.clusters * self.cluster_size

    def covered(self, schedule: Schedule) -> Self:
        """The same call, of which it is known how a launch covers the output."""
        call = copy(self)
        object.__setattr__(call, "schedule", schedule)
        return call

    def once(self, owner: Hashable, make: Callable[[], _Made]) -> _Made:
        """What `make` returns, made at the first of `owner`'s requests: several parameters may follow from it."""
        if owner not in self._made:
            self._made[owner] = make()
        made: _Made = self._made[owner]
        return made

    @staticmethod
    def _given(what: str, known: Mapping[str, _Made], name: str) -> _Made:
        if name not in known:
            raise ArgumentError(
                f"a component's parameter follows from the {what} {name!r}, which this call does not have; it has "
                f"{', '.join(known) or 'none'}",
                code="TK-PAR-003",
            )
        return known[name]


class _Letter:
    """An extent that a call may lack: its own comes before this, which says that there is none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, call: Call, owner: type[Call]) -> Any:
        return call.number(self._name)


@dataclass(frozen=True)
class LetteredCall(Call):
    """A call of operands whose extents have letters: it has an m, n or k where `numbers` has that letter."""

    m = cast(Any, _Letter("m"))
    n = cast(Any, _Letter("n"))
    k = cast(Any, _Letter("k"))

    def __post_init__(self) -> None:
        for letter in ("m", "n", "k"):
            if letter not in self.numbers:
                object.__delattr__(self, letter)


def fits(what: str, value: int, bits: int = 32, code: str = "TK-MM-015") -> int:
    """Return `value` if a kernel can count it in so many bits.

    Raises
    ------
    ArgumentError
        Naming `what`, with the family's `code`.
    """
    if value >= 1 << bits:
        raise ArgumentError(
            f"{what} is {value}; the kernel counts in {bits} bits, up to {(1 << bits) - 1}; nearest: {(1 << bits) - 1}",
            code=code,
        )
    return value
