"""Filling a standard payload: one loader for A, one for B."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_io.cp_async import BoundCpAsyncLoader, CopyWriter, CpAsyncLoader, CpAsyncTile
from tilekit.tile_io.tma import BoundTmaLoader, TmaLoader, TmaTile
from tilekit.tile_pipeline.payload import Stage
from tilekit.tile_schedule.raster import Tile


class StandardLoader:
    """Loads A by the tile's rows and B by its columns, each shared with the cluster's CTAs that need the same.

    Parameters
    ----------
    w
        The writer. With a batch, ``a_batch_step`` and ``b_batch_step`` (0 or 1) become kernel parameters: an operand
        with step 0 is the same for every batch index.
    a, b
        The operand loaders.
    tiles
        Where the ring's tiles lie, by operand name.
    cluster
        This CTA's place in its cluster.
    """

    def __init__(
        self,
        w: Writer,
        a: TmaLoader | CpAsyncLoader,
        b: TmaLoader | CpAsyncLoader,
        tiles: dict[str, SharedArray],
        cluster: ClusterPosition,
    ) -> None:
        self.a = a
        self.b = b
        self._tiles = tiles
        self._cluster = cluster
        self._share_a = cluster.share_a(w)
        self._share_b = cluster.share_b(w)
        self._steps: tuple[Operand, Operand] = (0, 0)
        if a.batched:
            self._steps = (w.parameter("a_batch_step", U32), w.parameter("b_batch_step", U32))

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor maps close."""
        self.a.prefetch(w)
        self.b.prefetch(w)

    def bind(self, w: Writer) -> BoundStandardLoader:
        """Prepare the addresses of this CTA's share of a stage; once a role."""
        half = self._cluster.half  # of B, which the CTAs of a pair divide
        a = self.a.bind(w, self._tiles[self.a.tile.name], self._share_a)
        b = self.b.bind(w, self._tiles[self.b.tile.name], self._share_b)
        copying = [loader for loader in (a, b) if isinstance(loader, BoundCpAsyncLoader)]
        return BoundStandardLoader(
            a=a,
            b=b,
            first_column=half * self.b.tile.rows if half is not None else 0,
            batch_steps=self._steps,
            writer=CopyWriter(copying) if copying else None,
        )


@dataclass(frozen=True)
class BoundStandardLoader:
    """A `StandardLoader` in a role.

    Attributes
    ----------
    writer
        The copies of the role's own threads, where they make any.
    """

    a: BoundTmaLoader | BoundCpAsyncLoader
    b: BoundTmaLoader | BoundCpAsyncLoader
    first_column: Operand
    batch_steps: tuple[Operand, Operand]
    writer: CopyWriter | None

    def at(self, w: Writer, tile: Tile) -> StandardTile:
        """Turn to `tile`: what its k-blocks have in common, once a tile."""
        batches = [tile.batch * step if isinstance(tile.batch, Value) else 0 for step in self.batch_steps]
        return StandardTile(
            (
                self.a.at(w, tile.row, batches[0]),
                self.b.at(w, tile.column + self.first_column, batches[1]),
            )
        )


@dataclass(frozen=True)
class StandardTile:
    """A tile to be loaded: the copies of each operand."""

    operands: tuple[TmaTile | CpAsyncTile, ...]

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this CTA's share of the copies that fill `stage` from element `k` on."""
        for copies in self.operands:
            copies.load(w, stage, k)
