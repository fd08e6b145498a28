"""Clusters as loaders and pipelines see them: who shares which operand with whom."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer


@dataclass(frozen=True)
class Multicast:
    """How the CTAs of a cluster share one operand: each fetches a slice and sends it to all of them.

    Attributes
    ----------
    sharers
        CTAs that need the same tile.
    slice
        Which of the tile's `sharers` slices this CTA fetches, u32.
    mask
        The CTAs to send to, a bit a rank, b16.
    """

    sharers: int
    slice: Value
    mask: Value


@dataclass(frozen=True)
class ClusterPosition:
    """Where this CTA stands in its cluster of `m` by `n` output tiles; rank = row + m * column."""

    m: int
    n: int
    rank: Value
    row: Value
    column: Value

    @classmethod
    def read(cls, w: Writer, m: int, n: int) -> ClusterPosition:
        """Read the special registers once."""
        rank = w.ptx.cluster.cta_rank() if m * n > 1 else w.constant(U32, 0)
        row = rank % m if m > 1 else w.constant(U32, 0)
        column = rank // m if n > 1 else w.constant(U32, 0)
        return cls(m, n, rank, row, column)

    def share_a(self, w: Writer) -> Multicast | None:
        """A is the same for the CTAs of one row: they split it along M."""
        if self.n == 1:
            return None
        ranks = sum(1 << (self.m * column) for column in range(self.n))
        return Multicast(self.n, self.column, self._mask(w, ranks, self.row))

    def share_b(self, w: Writer) -> Multicast | None:
        """B is the same for the CTAs of one column: they split it along N."""
        if self.m == 1:
            return None
        return Multicast(self.m, self.row, self._mask(w, (1 << self.m) - 1, self.column * self.m))

    def meet(self, w: Writer, threads: int) -> None:
        """Wait for every thread of the cluster; for the `threads` of the CTA where it is alone."""
        if self.size > 1:
            w.ptx.cluster.arrive()
            w.ptx.cluster.wait()
        else:
            w.ptx.barrier.sync(id=0, threads=threads)

    @property
    def size(self) -> int:
        """CTAs of the cluster."""
        return self.m * self.n

    @property
    def senders(self) -> int:
        """CTAs whose loads fill a stage here: those of this row (they share A) and of this column (they share B)."""
        return self.m + self.n - 1

    def sends_here(self, rank: Value) -> Value:
        """Whether the CTA of `rank` is one of the senders."""
        if self.m == 1 or self.n == 1:
            return rank < self.size
        return (rank < self.size) & ((rank % self.m == self.row) | (rank // self.m == self.column))

    def _mask(self, w: Writer, ranks: int, shift: Value) -> Value:
        mask = w.constant(U32, ranks) << shift
        result: Value = w.ptx.convert.narrow_u16(wide=mask)
        return result
