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
            self._steps = (
                w.parameter("a_batch_step", U32, lambda call: call.matrix("a").batch_step),
                w.parameter("b_batch_step", U32, lambda call: call.matrix("b").batch_step),
            )

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor maps close."""
        self.a.prefetch(w)
        self.b.prefetch(w)

    def bind(self, w: Writer) -> BoundStandardLoader:
        """Prepare the addresses of this CTA's share of a stage; once a role."""
        bound = self._bound(w, 0), self._bound(w, 1)
        copying = [loader for loader in bound if isinstance(loader, BoundCpAsyncLoader)]
        return BoundStandardLoader(
            operands=bound,
            first_column=self._first_column,
            batch_steps=self._steps,
            writer=CopyWriter(copying) if copying else None,
        )

    def operand_at(self, w: Writer, operand: int, tile: Tile) -> TmaTile | CpAsyncTile:
        """Turn to `tile` for one operand alone, 0 for A and 1 for B: of the other nothing is prepared."""
        place = _place(tile, operand, self._first_column, self._steps)
        return self._bound(w, operand).at(w, *place)

    def _bound(self, w: Writer, operand: int) -> BoundTmaLoader | BoundCpAsyncLoader:
        loader, share = ((self.a, self._share_a), (self.b, self._share_b))[operand]
        return loader.bind(w, self._tiles[loader.tile.name], share)

    @property
    def _first_column(self) -> Operand:
        half = self._cluster.half  # of B, which the CTAs of a pair divide
        return half * self.b.tile.rows if half is not None else 0


def _place(
    tile: Tile, operand: int, first_column: Operand, batch_steps: tuple[Operand, Operand]
) -> tuple[Value, Operand]:
    """Row of a tile's operand, and its batch index."""
    batch = tile.batch * batch_steps[operand] if isinstance(tile.batch, Value) else 0
    return tile.column + first_column if operand else tile.row, batch


@dataclass(frozen=True)
class BoundStandardLoader:
    """A `StandardLoader` in a role.

    Attributes
    ----------
    writer
        The copies of the role's own threads, where they make any.
    """

    operands: tuple[BoundTmaLoader | BoundCpAsyncLoader, BoundTmaLoader | BoundCpAsyncLoader]
    first_column: Operand
    batch_steps: tuple[Operand, Operand]
    writer: CopyWriter | None

    def at(self, w: Writer, tile: Tile) -> StandardTile:
        """Turn to `tile`: what its k-blocks have in common, once a tile."""
        a, b = (
            bound.at(w, *_place(tile, operand, self.first_column, self.batch_steps))
            for operand, bound in enumerate(self.operands)
        )
        return StandardTile((a, b))


@dataclass(frozen=True)
class StandardTile:
    """A tile to be loaded: the copies of each operand."""

    operands: tuple[TmaTile | CpAsyncTile, ...]

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this CTA's share of the copies that fill `stage` from element `k` on."""
        for copies in self.operands:
            copies.load(w, stage, k)
