"""Clusters as loaders and pipelines see them: who shares which operand with whom."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import Whole, illegal, require_whole, require_word
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Role, Writer


@dataclass(frozen=True)
class Multicast:
    """How the CTAs of a cluster share one operand: each fetches a slice and sends it to all of them.

    Attributes
    ----------
    participants
        CTAs that need the same tile.
    slice
        Which of the tile's `participants` slices this CTA fetches, u32.
    mask
        The CTAs to send to, a bit a rank, b16.
    """

    participants: int
    slice: Value
    mask: Value


def require_alone(loader: object, tile: str, multicast: Multicast | None, *, other: str = "") -> None:
    """Check that CTAs do not share a tile whose loader writes to its own CTA's shared memory alone.

    Parameters
    ----------
    loader, tile
        The loader, and the name of its tile.
    multicast
        How the CTAs share the tile, if they do.
    other
        What could load for all of them, to be named.

    Raises
    ------
    TraceError
        ``TK-TRACE-013``.
    """
    if multicast is None:
        return
    raise TraceError(
        f"the {type(loader).__name__} of tile {tile!r} writes to its own CTA's shared memory, but "
        f"{multicast.participants} CTAs of the cluster are to share the tile; nearest: a cluster in which no CTA "
        f"shares it{f', or {other}' if other else ''}",
        code="TK-TRACE-013",
    )


@dataclass(frozen=True)
class Cluster:
    """Where this CTA stands in its cluster of `m` by `n` output tiles; rank = row + m * column.

    Or in one of `k` CTAs that share the sum of one output tile: then `m` and `n` are 1, and the rank is the `k_rank`.

    Attributes
    ----------
    m, n, k
        Extents of the cluster.
    rank, row, column
        This CTA's, u32.
    group
        CTAs that one matrix instruction spans: 2 for CTA pairs, whose ranks differ in bit 0 (so `m` is even).
    half, is_leader
        With pairs: which CTA of its pair this one is (u32), and whether it is the one that issues the pair's matrix
        instructions (the first; a predicate).
    """

    m: int
    n: int
    rank: Value
    row: Value
    column: Value
    group: int = 1
    half: Value | None = None
    is_leader: Value | None = None
    k: int = 1

    @classmethod
    def read(cls, w: Writer, m: int, n: int, *, group: int = 1, k: int = 1) -> Cluster:
        """Read the special registers once.

        Raises
        ------
        TraceError
            ``TK-PART-001`` for extents that are not those of the kernel's clusters, and for pairs in an odd `m`.
        """
        for name, extent in (("m", m), ("n", n), ("k", k)):
            require_whole("Cluster.read", name, extent, Whole(1))
        require_word("Cluster.read", "group", group, (1, 2))
        if m % group:
            raise illegal("Cluster.read", "m", m, f"a multiple of group={group}: a pair is two rows", m + 1)
        if k > 1 and m * n > 1:
            raise illegal("Cluster.read", "k", k, f"1 where CTAs share operands (m={m}, n={n})", 1)
        if m * n * k != w.cluster:
            legal = f"extents of the kernel's clusters of {w.cluster} CTAs; {m} x {n} x {k} are {m * n * k}"
            raise illegal("Cluster.read", "m", m, legal, max(1, w.cluster // (n * k)))
        rank = w.cluster_rank() if m * n * k > 1 else w.constant(U32, 0)
        nought = w.constant(U32, 0)
        row = nought if m == 1 else rank if n == 1 else rank % m
        column = nought if n == 1 else rank // m
        if group == 1:
            return cls(m, n, rank, row, column, k=k)
        half = row if m == 2 else row & 1
        return cls(m, n, rank, row, column, group, half, half == 0)

    def index(self, w: Writer) -> Value:
        """Return the cluster's number in the (one-dimensional) grid."""
        # By way of the CTA's: for %clusterid ptxas divides.
        result: Value = w.cta() // self.size
        return result

    def count(self, w: Writer) -> Value:
        """Return the clusters of the grid."""
        result: Value = w.cta_count() // self.size
        return result

    @property
    def share_a_count(self) -> int:
        """CTAs that need the same tile of A: those of one row."""
        return self.n

    @property
    def share_b_count(self) -> int:
        """CTAs that need the same tile of B: those of one column; of a CTA pair each holds its own half."""
        return self.m // self.group

    def share_a(self, w: Writer) -> Multicast | None:
        """A is the same for the CTAs of one row: they split it along M."""
        if self.share_a_count == 1:
            return None
        ranks = sum(1 << (self.m * column) for column in range(self.n))
        return Multicast(self.n, self.column, self._mask(w, ranks, self.row))

    def share_b(self, w: Writer) -> Multicast | None:
        """B is the same for the CTAs of one column (of pairs, those of the same half): they split it along N."""
        if self.share_b_count == 1:
            return None
        ranks = sum(1 << row for row in range(0, self.m, self.group))
        first = self.column * self.m
        if self.half is not None:
            first = first + self.half
        return Multicast(self.share_b_count, self.row // self.group, self._mask(w, ranks, first))

    def pair_mask(self, w: Writer) -> Value:
        """The CTAs of this pair, a bit a rank, b16."""
        return self._mask(w, (1 << self.group) - 1, self._pair(self.rank))

    def senders_mask(self, w: Writer) -> Value:
        """The CTAs whose loads fill a stage of this CTA's group, a bit a rank, b16: its rows and its column."""
        rows = sum(((1 << self.group) - 1) << (self.m * column) for column in range(self.n))
        mask = w.constant(U32, rows) << self._pair(self.row)
        if self.m > self.group:
            mask = mask | (w.constant(U32, (1 << self.m) - 1) << (self.column * self.m))
        result: Value = w.isa.convert.narrow_u16(wide=mask)
        return result

    def sync(self, w: Writer, threads: int) -> None:
        """Wait for every thread of the cluster; for the `threads` of the CTA where it is alone.

        Raises
        ------
        TraceError
            ``TK-ROLE-003`` where the kernel has more threads than that: those of no role.
        """
        if threads < w.threads:
            raise TraceError(
                f"the kernel has {w.threads} threads, and its roles {threads}, which wait for each other: what the "
                f"others do, no role says; nearest: threads={threads}",
                code="TK-ROLE-003",
            )
        if self.size > 1:
            w.cluster_arrive()
            w.cluster_wait()
        else:
            w.barrier(id=0, threads=threads)

    @property
    def size(self) -> int:
        """CTAs of the cluster."""
        return self.m * self.n * self.k

    @property
    def k_rank(self) -> Value:
        """Which range of K this CTA has, of those that share a sum."""
        if self.m * self.n > 1:
            raise illegal(
                "Cluster", "k", self.k, f"more than 1, and m=n=1, where CTAs share sums; m={self.m}, n={self.n}"
            )
        return self.rank

    @property
    def senders(self) -> int:
        """CTAs whose loads fill a stage here: those of this row (they share A) and of this column (they share B).

        It is also how many CTAs (with pairs: leaders) read what this CTA loads.
        """
        return self.m // self.group + self.n - 1

    def crews(self, role: Role) -> int:
        """CTAs of the cluster in which `role` works."""
        return self.size // self.group if role.leaders_only else self.size

    def sends_here(self, rank: Value) -> Value:
        """Whether the CTA of `rank` is one of the senders."""
        if self.m == 1 or self.n == 1:
            return rank < self.size
        return (rank < self.size) & ((rank % self.m == self.row) | (rank // self.m == self.column))

    def map(self, w: Writer, array: SharedArray, rank: int) -> Value:
        """Address of the first element of `array` in the CTA of `rank`."""
        return w.cluster_address(w.shared_base + array.offset, rank)

    def _pair(self, own: Value) -> Operand:
        """Row or rank of the first CTA of this pair (this CTA's own without pairs)."""
        if self.half is None:
            return own
        return 0 if self.size == self.group else own - self.half

    def _mask(self, w: Writer, ranks: int, shift: Operand) -> Value:
        mask = w.constant(U32, ranks) << shift
        result: Value = w.isa.convert.narrow_u16(wide=mask)
        return result
