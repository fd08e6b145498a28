"""Filling a payload: a loader for each of its tiles, each with coordinates of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial, reduce
from typing import Annotated, ClassVar, Protocol, cast, get_args

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import checked, component, handed, require_protocol, said
from tilekit.assembly.legal import OWN_RULE
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.call import Call
from tilekit.tiles.cluster import Cluster, Multicast
from tilekit.tiles.stage import AsyncWriter, Stage
from tilekit.tiles.tile import Side, Tile


class TileCopies(Protocol):
    """The copies of one tile of a payload, for one output tile: what its k-blocks have in common."""

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this CTA's share of the copies that fill `stage` from element `k` of K on."""


class PrefetchedCopies(TileCopies, Protocol):
    """Copies of a tile whose loader `prefetches`."""

    def prefetch(self, w: Writer, k: Operand) -> None:
        """Bring what :meth:`load` would load into L2."""


class BoundTileLoader(Protocol):
    """A `TileLoader` in a role."""

    @property
    def writer(self) -> AsyncWriter | None:
        """What the role's own threads write; None where one thread starts copies that complete on their own."""

    def at(self, w: Writer, tile: Tile) -> TileCopies:
        """Turn to an output tile."""


class TileLoader(Protocol):
    """What a payload asks of the loader of one of its tiles: coordinates and tensor map are the loader's own."""

    @property
    def name(self) -> str:
        """Of the tile."""

    @property
    def prefetches(self) -> bool:
        """Whether its copies can bring a tile into L2 alone."""

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""

    def bind(self, w: Writer, stages: SharedArray) -> BoundTileLoader:
        """Prepare addresses of the tile's images in `stages`; once a role."""


@component
class PayloadLoader:
    """Loads every tile of a stage.

    Parameters
    ----------
    loaders
        One for each tile, in the order in which their copies are started.
    tiles
        Where the ring's tiles lie, by name.

    Raises
    ------
    TraceError
        ``TK-TRACE-018`` for a loader of a tile that a stage does not hold, and for two loaders of one tile.
    """

    def __init__(self, loaders: Sequence[TileLoader], tiles: dict[str, SharedArray]) -> None:
        self._loaders = tuple(loaders)
        self._tiles = tiles
        loaded: dict[str, TileLoader] = {}
        for loader in self._loaders:
            if loader.name not in tiles:
                raise _unknown(type(loader).__name__, loader.name, tiles)
            if loader.name in loaded:
                raise TraceError(
                    f"tile {loader.name!r} of a stage is loaded by {type(loaded[loader.name]).__name__} and by "
                    f"{type(loader).__name__}; load each tile once",
                    code="TK-TRACE-018",
                )
            loaded[loader.name] = loader

    @property
    def sides(self) -> dict[str, Side]:
        """Along what of the output tiles are loaded, by their names, as far as their loaders say."""
        sides = ((loader.name, said(loader, "side", "first")) for loader in self._loaders)
        return {name: side for name, side in sides if side in get_args(Side)}

    @property
    def brings(self) -> int | None:
        """Bytes that the copy engine brings to a stage; None where a loader does not say (`TmaLoader.brings`)."""
        brought = [getattr(loader, "brings", None) for loader in self._loaders]
        known = [each for each in brought if each is not None]
        return sum(known) if len(known) == len(brought) else None

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""
        for loader in self._loaders:
            loader.prefetch(w)

    @checked
    def bind(self, w: Writer) -> BoundPayloadLoader:
        """Prepare addresses; once a role.

        Raises
        ------
        TraceError
            ``TK-TRACE-011`` where two loaders group their copies in different ways: a thread has one open group.
        """
        made = ((loader, loader.bind(w, self._tiles[loader.name])) for loader in self._loaders)
        bound = tuple(handed(loader, "bind", one, BoundTileLoader) for loader, one in made)
        writers = {loader.name: own.writer for loader, own in zip(self._loaders, bound, strict=True) if own.writer}
        kinds = {type(writer) for writer in writers.values()}
        if len(kinds) > 1:
            raise TraceError(
                "the threads of a role have one group of copies open, but the loaders of "
                + " and ".join(f"{name} group theirs by {type(writer).__name__}" for name, writer in writers.items())
                + "; load all tiles that threads copy in the same way",
                code="TK-TRACE-011",
            )
        return BoundPayloadLoader(
            bound, reduce(lambda one, other: one.joined(other), writers.values()) if writers else None
        )

    def tile_at(self, w: Writer, name: str, tile: Tile) -> PrefetchedCopies:
        """Turn to `tile` for one of the payload's tiles alone, to bring it into L2: of the others nothing is prepared.

        Raises
        ------
        TraceError
            ``TK-TRACE-012`` for a tile whose loader cannot, ``TK-TRACE-018`` for one that is not loaded here.
        """
        loader = next((loader for loader in self._loaders if loader.name == name), None)
        if loader is None:
            raise _unknown("a prefetch", name, (loader.name for loader in self._loaders))
        if not loader.prefetches:
            raise TraceError(
                f"{name} is copied by threads, which bring nothing into L2 ahead of time; take prefetch=0",
                code="TK-TRACE-012",
            )
        return cast(PrefetchedCopies, loader.bind(w, self._tiles[name]).at(w, tile))


@dataclass(frozen=True)
class BoundPayloadLoader:
    """A `PayloadLoader` in a role.

    Attributes
    ----------
    loaders
        Of each tile.
    writer
        The copies of the role's own threads, where they make any.
    """

    loaders: tuple[BoundTileLoader, ...]
    writer: AsyncWriter | None

    @checked
    def at(self, w: Writer, tile: Tile) -> PayloadCopies:
        """Turn to `tile`: what its k-blocks have in common, once a tile."""
        return PayloadCopies(tuple(handed(one, "at", one.at(w, tile), TileCopies) for one in self.loaders))


@dataclass(frozen=True)
class PayloadCopies:
    """The copies of every tile of a payload, for one output tile."""

    tiles: tuple[TileCopies, ...]

    @checked
    def load(self, w: Writer, stage: Stage, k: Annotated[Value, OWN_RULE]) -> None:
        """Start this CTA's share of the copies that fill `stage` from element `k` on."""
        for copies in self.tiles:
            copies.load(w, stage, k)


class BoundOperandLoader(Protocol):
    """An `OperandLoader` in a role."""

    @property
    def writer(self) -> AsyncWriter | None:
        """What the role's own threads write; None where one thread starts copies that complete on their own."""

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> TileCopies:
        """Turn to the tile at `row` of M or N, whose first k-block begins at element `k`."""


class RowsTile(Protocol):
    """The image of rows of M or N: of an operand's elements (`OperandTile`), or of their scales (`ScaleTile`)."""

    @property
    def name(self) -> str:
        """Of the tile, and of its images in maps and reports."""

    @property
    def rows(self) -> int:
        """Of M or N."""


class OperandLoader(Protocol):
    """Loads tiles of a matrix by the first row of M or N, which a CTA may share with others of its cluster."""

    @property
    def tile(self) -> RowsTile:
        """The image that it fills."""

    @property
    def batched(self) -> bool:
        """Whether the operand has a batch dimension: `at` is then given a batch index."""

    @property
    def prefetches(self) -> bool:
        """Whether its copies can bring a tile into L2 alone."""

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundOperandLoader:
        """Prepare addresses of this CTA's part of the tile in `stages`; once a role."""


@component
class StandardLoader(PayloadLoader):
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
    further
        The loaders of what a stage holds beside them.
    """

    def __init__(
        self,
        w: Writer,
        a: OperandLoader,
        b: OperandLoader,
        tiles: dict[str, SharedArray],
        cluster: Cluster,
        further: Sequence[TileLoader] = (),
    ) -> None:
        shares = cluster.share_a(w), cluster.share_b(w)
        step_a, step_b = (
            w.parameter(f"{name}_batch_step", U32, partial(_batch_step, name)) if a.batched else None
            for name in ("a", "b")
        )
        rows = AlongRows(a, shares[0], step_a)
        super().__init__((rows, AlongColumns(b, shares[1], step_b, cluster.half), *further), tiles)


@component
@dataclass(frozen=True)
class AlongRows:
    """A `TileLoader` of an operand that goes along with the rows of the output tile, as A does.

    Attributes
    ----------
    loader
        Loads the operand's tiles.
    multicast
        How the CTAs of a cluster share them.
    batch_step
        What a batch index is multiplied by, u32; None where all batches share the operand.
    """

    loader: OperandLoader
    multicast: Multicast | None = None
    batch_step: Value | None = None

    side: ClassVar[Side] = "rows"
    """Along what of the output it goes."""

    def __post_init__(self) -> None:
        require_protocol(type(self.loader).__name__, "tile", self.loader.tile, RowsTile)

    @property
    def name(self) -> str:
        """Of the tile."""
        return self.loader.tile.name

    @property
    def prefetches(self) -> bool:
        """Whether its copies can bring a tile into L2 alone."""
        return self.loader.prefetches

    @property
    def brings(self) -> int | None:
        """Bytes that the copy engine brings to a stage; None where the loader does not say."""
        return getattr(self.loader, "brings", None)

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""
        self.loader.prefetch(w)

    def bind(self, w: Writer, stages: SharedArray) -> _BoundAlong:
        """Prepare addresses of the tile's images in `stages`; once a role."""
        w.uses(self, "loader", self.name, along="m")
        return _BoundAlong(self, self._bound(w, stages), 0)

    def _bound(self, w: Writer, stages: SharedArray) -> BoundOperandLoader:
        bound = self.loader.bind(w, stages, self.multicast)
        return handed(self.loader, "bind", bound, BoundOperandLoader)

    def first(self, tile: Tile, offset: Operand) -> Value:
        """First row of M that the CTA needs."""
        return tile.row


@component
@dataclass(frozen=True)
class AlongColumns(AlongRows):
    """The same along the columns of the output tile, as B, of which the CTAs of a pair have a half each.

    Attributes
    ----------
    half
        Which half this CTA has, u32; None without pairs.
    """

    half: Value | None = None
    side: ClassVar[Side] = "columns"

    def bind(self, w: Writer, stages: SharedArray) -> _BoundAlong:
        """Prepare addresses of the tile's images in `stages`; once a role."""
        w.uses(self, "loader", self.name, along="n")
        bound = self._bound(w, stages)
        return _BoundAlong(self, bound, self.half * self.loader.tile.rows if self.half is not None else 0)

    def first(self, tile: Tile, offset: Operand) -> Value:
        """First row of N that the CTA needs."""
        return tile.column + offset


@dataclass(frozen=True)
class _BoundAlong:
    """Rows or columns in a role."""

    side: AlongRows
    loader: BoundOperandLoader
    offset: Operand

    @property
    def writer(self) -> AsyncWriter | None:
        return self.loader.writer

    def at(self, w: Writer, tile: Tile) -> TileCopies:
        step = self.side.batch_step
        batch = tile.batch * step if isinstance(tile.batch, Value) and step is not None else 0
        copies = self.loader.at(w, self.side.first(tile, self.offset), batch, tile.k_first)
        return handed(self.loader, "at", copies, TileCopies)


def _unknown(component: str, name: str, tiles: Iterable[str]) -> TraceError:
    known = list(tiles)
    nearest = "".join(f"; nearest: {found!r}" for found in get_close_matches(str(name), known, 1, 0.0))
    return TraceError(
        f"{component} is for tile {name!r}, but the tiles of a stage are "
        f"{', '.join(map(repr, known)) or 'none'}{nearest}",
        code="TK-TRACE-018",
    )


def _batch_step(name: str, call: Call) -> int:
    return call.matrix(name).batch_step
