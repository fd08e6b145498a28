"""Tensor memory: named regions of its columns, which components claim, in one allocation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier, Whole, illegal, require_whole
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tiles.cluster import Cluster

MIN_COLUMNS = 32


def allocated_columns(columns: int) -> int:
    """Columns that an allocation of at least `columns` takes: a power of two from 32 on (PTX ISA, tcgen05.alloc)."""
    return max(MIN_COLUMNS, 1 << max(columns - 1, 0).bit_length())


@dataclass(frozen=True)
class TensorRegion:
    """Columns of tensor memory that one component has claimed.

    Attributes
    ----------
    name, claimant
        What it holds, and the component that claimed it.
    first, columns
        The first column of the allocation that it has, and how many.
    """

    name: str
    claimant: str
    first: int
    columns: int

    @property
    def end(self) -> int:
        """The first column behind it."""
        return self.first + self.columns

    def at(self, base: Value) -> Value:
        """Address of its first column in an allocation at `base`."""
        return base + self.first


@component
class TensorMemory:
    """The tensor memory of a CTA, as its components have claimed it.

    Components claim regions when they are made: accumulators, scales, operands that an instruction reads from there.
    The columns of the one allocation follow from the claims. A role of one warp allocates, and hands the address to the
    others through shared memory.

    Parameters
    ----------
    w
        The writer; the address is kept in its shared memory.
    capacity
        Columns of the chip's tensor memory.
    allocates
        The role that allocates and frees, of one warp.
    others
        The other roles that learn the address.
    cluster
        This CTA's place in its cluster.
    barrier
        A named barrier for the hand-over of the address.

    Raises
    ------
    TraceError
        ``TK-TRACE-013`` where more than one warp would allocate.
    """

    def __init__(
        self,
        w: Writer,
        *,
        capacity: Annotated[int, Whole(MIN_COLUMNS)],
        allocates: Role,
        others: tuple[Role, ...],
        cluster: Cluster,
        barrier: Barrier,
    ) -> None:
        if not w.target.tensor_columns:
            raise TraceError(
                f"{w.target.name} has no tensor memory; nearest: RegisterAccumulators, or target='sm_100a'",
                code="TK-TARGET-003",
            )
        require_whole("TensorMemory", "capacity", capacity, Whole(MIN_COLUMNS, w.target.tensor_columns))
        if len(allocates.warps) != 1:
            raise TraceError(
                f"role {allocates.name!r} has {len(allocates.warps)} warps, but one warp allocates tensor memory; "
                "nearest: a role of one warp",
                code="TK-TRACE-013",
            )
        self.capacity = capacity
        self.cluster = cluster
        self.regions: list[TensorRegion] = []
        self._allocates = allocates
        self._roles = (allocates, *others)
        self._barrier = barrier
        self._threads = w.lanes * sum(len(role.warps) for role in self._roles)
        w.barriers.claim(barrier, meeting="the hand-over of tensor memory", threads=self._threads)
        (address,) = self.declared()
        self._address = w.shared.place(address)
        self._bases: dict[str, Value] = {}

    @staticmethod
    def declared() -> tuple[SharedDeclaration, ...]:
        """Shared memory of the address. A word would do; a whole 16 bytes keep what follows aligned."""
        return (SharedDeclaration("tensor_memory.address", 16),)

    @property
    def columns(self) -> int:
        """Columns of the allocation."""
        return allocated_columns(max((region.end for region in self.regions), default=0))

    def claim(self, name: str, *, columns: int, claimant: str, alignment: int = 1) -> TensorRegion:
        """Reserve columns behind those claimed before.

        Parameters
        ----------
        name
            What they hold; no two regions have one name.
        columns
            How many.
        claimant
            The component, for errors and reports.
        alignment
            What the first column is a multiple of.

        Raises
        ------
        TraceError
            ``TK-TRACE-016`` for a second claim of a name, for more columns than there are, and for a claim that comes
            after the allocation; all claimants concerned are named.
        """
        known = next((region for region in self.regions if region.name == name), None)
        if known is not None:
            raise TraceError(
                f"tensor memory {name!r} is claimed by {claimant} and by {known.claimant}; give one of them another "
                "name",
                code="TK-TRACE-016",
            )
        used = max((region.end for region in self.regions), default=0)
        region = TensorRegion(name, claimant, -(-used // alignment) * alignment, columns)
        if self._bases:
            raise TraceError(
                f"{claimant} claims {columns} columns of tensor memory as {name!r}, but role "
                f"{next(iter(self._bases))!r} has them allocated already; claim before roles are traced, when the "
                "component is made",
                code="TK-TRACE-016",
            )
        if region.end > self.capacity:
            claims = ", ".join(f"{r.name!r} of {r.claimant} {r.columns}" for r in [*self.regions, region])
            over = region.end - self.capacity
            raise TraceError(
                f"tensor memory has {self.capacity} columns, and the claims end at {region.end}, {over} over: "
                f"{claims}; nearest for {name!r}: {max(0, self.capacity - region.first)}",
                code="TK-TRACE-016",
            )
        self.regions.append(region)
        return region

    def bind(self, w: Writer, role: Role) -> Value:
        """Allocate, or learn the address: once a role, by whole warps of all the roles; later only look it up."""
        if role.warps not in [known.warps for known in self._roles]:
            others = tuple(other.name for other in self._roles[1:])
            raise illegal("TensorMemory", "others", others, f"every role that reaches it, {role.name!r} too", role.name)
        if role.name not in self._bases:
            if role is self._allocates:
                group = self.cluster.group
                address = w.shared_base + self._address.offset
                w.ptx.tcgen05.alloc(dst=address, columns=self.columns, group=group)
                w.ptx.tcgen05.relinquish(group=group)
            self._bases[role.name] = self._hand_over(w)
        return self._bases[role.name]

    def free(self, w: Writer, warp: Value) -> None:
        """Deallocate; by the warp that allocated, after all roles are done (a barrier of the CTA or the cluster)."""
        with w.when(warp == self._allocates.warps.start):
            address = w.ptx.tcgen05.load_address(src=w.shared_base + self._address.offset)
            w.ptx.tcgen05.dealloc(address=address, columns=self.columns, group=self.cluster.group)

    def _hand_over(self, w: Writer) -> Value:
        w.ptx.tcgen05.fence_before()
        w.barrier(id=self._barrier, threads=self._threads)
        w.ptx.tcgen05.fence_after()
        address: Value = w.ptx.tcgen05.load_address(src=w.shared_base + self._address.offset)
        return address
