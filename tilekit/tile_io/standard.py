"""Filling a standard payload: one loader for A, one for B."""

from __future__ import annotations

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_io.tma import TmaLoader
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
        self, w: Writer, a: TmaLoader, b: TmaLoader, tiles: dict[str, SharedArray], cluster: ClusterPosition
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
        """Bring both tensor maps close."""
        self.a.prefetch(w)
        self.b.prefetch(w)

    def load(self, w: Writer, stage: Stage, tile: Tile, k_block: Value) -> None:
        """Start this CTA's share of the copies that fill `stage`."""
        column = tile.column
        if self._cluster.group > 1:  # each CTA of a pair holds one half of B
            column = column + self._cluster.half * self.b.tile.rows
        for loader, row, share, step in (
            (self.a, tile.row, self._share_a, self._steps[0]),
            (self.b, column, self._share_b, self._steps[1]),
        ):
            batch = tile.batch * step if isinstance(tile.batch, Value) else 0
            loader.load(
                w,
                self._tiles[loader.tile.name],
                stage.index,
                stage.full,
                row=row,
                k_block=k_block,
                batch=batch,
                multicast=share,
            )
