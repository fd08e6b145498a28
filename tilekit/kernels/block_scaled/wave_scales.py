"""Scales on AMD chips: threads bring them to LDS, a word for each row, from where they lie as a tensor core reads them.

An atom is of 128 rows and four scales, which are a word of a `ScaleTile`: 128 elements of K of e4m3 or e5m2, and a half
of them as many bytes of e2m1. They come through registers, or past them where a schedule has loads stages ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.errors import TraceError
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import GMEM, SMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_io.buffer import OUTSIDE
from tilekit.tile_io.buffer_to_lds import LdsWriter
from tilekit.tile_op.block_scaled import ATOM_BYTES, ATOM_COLUMNS, ATOM_ROWS, ScaleFormat
from tilekit.tiles.call import Call, fits
from tilekit.tiles.scale_tile import WORD_BYTES, ScaleTile
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Tile

LANES = ATOM_ROWS // ATOM_COLUMNS
"""Rows whose words lie one behind another, 16 bytes apart."""


class WaveScaleLoader:
    """Loads the scales of a stage, zeros (2^-127) where there are none.

    Parameters
    ----------
    w
        The writer. The scales' address (``<tile>``), how many atoms there are along K (``<tile>_along``) and how many
        blocks of 128 rows (``<tile>_blocks``) become kernel parameters.
    tile
        The image to fill.
    scaled
        The format.
    operand
        Whose scales of the call they are, ``"a"`` or ``"b"``.
    role
        The role that loads, all of its threads.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for a role of a single thread.
    """

    prefetches = False
    """Threads bring nothing into L2 ahead of time."""

    def __init__(self, w: Writer, tile: ScaleTile, scaled: ScaleFormat, operand: str, *, role: Role) -> None:
        if role.one_thread:
            raise TraceError(
                f"one thread of role {role.name!r} loads scales {tile.name!r}; nearest: one_thread=False",
                code="TK-TRACE-017",
            )
        self.tile, self.name = tile, tile.name
        self.first_thread, self.threads = w.lanes * role.warps.start, w.lanes * len(role.warps)
        side = tile.of.name
        self.address = w.parameter(tile.name, GMEM, lambda call: call.address(f"scale_{operand}"))
        self.along = w.parameter(
            f"{tile.name}_along", U32, lambda call: fits("atoms of scales along K", -(-call.k // scaled.atom_k))
        )

        def blocks(call: Call) -> int:
            return -(-call.matrix(side).extents[1] // ATOM_ROWS)

        self.blocks = w.parameter(f"{tile.name}_blocks", U32, blocks)

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray) -> BoundWaveScaleLoader:
        """Prepare this thread's rows; once a role."""
        return BoundWaveScaleLoader(self, w.thread() - self.first_thread, stages)


@dataclass(frozen=True)
class BoundWaveScaleLoader:
    """A `WaveScaleLoader` in a role: thread t has the words of rows t, t + threads, …."""

    loader: WaveScaleLoader
    thread: Value
    stages: SharedArray
    writer = None

    def at(self, w: Writer, tile: Tile) -> WaveScaleCopies:
        """Turn to an output tile: A's scales go along its rows, B's along its columns."""
        return WaveScaleCopies(self, _Atoms(w, self.loader, tile))


class _Atoms:
    """The scales of an output tile's rows as a buffer; once a tile.

    Attributes
    ----------
    words
        The descriptor, from the 128 rows on in which the tile begins.
    """

    def __init__(self, w: Writer, loader: WaveScaleLoader, tile: Tile) -> None:
        row = tile.row if loader.tile.of.name == "a" else tile.column
        block, of_block = row // ATOM_ROWS, loader.along * ATOM_BYTES
        base = (loader.address + w.widen_multiply(block, of_block)).retyped(GMEM)
        # A tile has rows of as many blocks, and one more where it begins within one.
        spanned = -(-loader.tile.of.rows // ATOM_ROWS) + 1
        size = w.minimum(loader.blocks - block, spanned) * of_block
        self.words = w.gcn.buffer.descriptor(base=base, bytes=size)
        self._first, self._of_block = row % ATOM_ROWS, of_block

    def place(self, of_tile: Value) -> Value:
        """Where the first word of a row of the tile is."""
        row = self._first + of_tile
        lane, column = row % LANES, row // LANES % ATOM_COLUMNS
        return row // ATOM_ROWS * self._of_block + lane * (ATOM_COLUMNS * WORD_BYTES) + column * WORD_BYTES


@dataclass(frozen=True)
class WaveScaleCopies:
    """The loads of one tile."""

    bound: BoundWaveScaleLoader
    atoms: _Atoms

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Copy this thread's words to `stage` from element `k` on, as the tile counts them."""
        bound, loader = self.bound, self.bound.loader
        tile = loader.tile
        atom = k // (tile.covered * WORD_BYTES)
        image = bound.stages.at(w, stage.index) + bound.thread * WORD_BYTES
        for left in range(0, tile.of.rows, loader.threads):
            place = self.atoms.place(bound.thread + left)
            values = [
                w.gcn.buffer.load_b32(
                    buffer=self.atoms.words,
                    place=w.select(atom + word < loader.along, place + (atom + word) * ATOM_BYTES, OUTSIDE),
                    offset=0,
                )
                for word in range(tile.words)
            ]
            with w.when(bound.thread + left < tile.of.rows):
                for word, value in enumerate(values):
                    target = (image + tile.offset(word, left)).retyped(SMEM)
                    w.gcn.lds.write_b32(address=target, value=value, offset=0)


class WaveScaleToLdsLoader(WaveScaleLoader):
    """The same past registers, for a schedule that loads stages ahead: a wave has 64 rows, and other waves the others.

    Parameters
    ----------
    w, tile, scaled, operand, role
        As of a `WaveScaleLoader`.
    behind
        Rows of other tiles whose scales the role's first waves load.
    """

    def __init__(
        self, w: Writer, tile: ScaleTile, scaled: ScaleFormat, operand: str, *, role: Role, behind: int = 0
    ) -> None:
        super().__init__(w, tile, scaled, operand, role=role)
        if tile.of.rows % w.lanes:
            raise TraceError(
                f"waves load the scales of {w.lanes} rows each, and tile {tile.of.name!r} has {tile.of.rows}; nearest: "
                f"{-(-tile.of.rows // w.lanes) * w.lanes}",
                code="TK-TRACE-017",
            )
        self.behind = behind

    def bind(self, w: Writer, stages: SharedArray) -> BoundWaveScaleToLds:  # type: ignore[override]
        """Prepare a wave's rows; once a role."""
        return BoundWaveScaleToLds(w, self, stages)


class BoundWaveScaleToLds:
    """A `WaveScaleToLdsLoader` in a role."""

    def __init__(self, w: Writer, loader: WaveScaleToLdsLoader, stages: SharedArray) -> None:
        self.loader, self.stages = loader, stages
        self.writer = LdsWriter()
        # Waves from the first one of these rows on, and round again.
        waves = loader.threads // w.lanes
        first = loader.behind // w.lanes % waves
        own = w.warp() - loader.first_thread // w.lanes
        turned = own - first if first == 0 else (own + (waves - first)) % waves
        self.row = turned * w.lanes

    def at(self, w: Writer, tile: Tile) -> WaveScaleToLdsCopies:
        """Turn to an output tile: A's scales go along its rows, B's along its columns."""
        return WaveScaleToLdsCopies(w, self, _Atoms(w, self.loader, tile))


class WaveScaleToLdsCopies:
    """The loads of one tile."""

    def __init__(self, w: Writer, bound: BoundWaveScaleToLds, atoms: _Atoms) -> None:
        self._bound, self._atoms = bound, atoms
        loader = bound.loader
        self._rows = range(0, loader.tile.of.rows, loader.threads)
        self._places = [atoms.place(bound.row + w.lane() + left) for left in self._rows]

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this wave's loads to `stage` from element `k` on; they are in its open group."""
        bound, loader = self._bound, self._bound.loader
        tile = loader.tile
        atom = k // (tile.covered * WORD_BYTES)
        image = bound.stages.at(w, stage.index) + bound.row * WORD_BYTES
        for left, place in zip(self._rows, self._places, strict=True):
            with w.when(bound.row + left < tile.of.rows):
                for word in range(tile.words):
                    inside = atom + word < loader.along
                    w.gcn.buffer_lds.load_b32_along(
                        buffer=self._atoms.words,
                        place=place,
                        outside=w.select(inside, 0, OUTSIDE),
                        along=w.select(inside, (atom + word) * ATOM_BYTES, 0),
                        lds=image.retyped(SMEM),
                        behind=tile.offset(word, left),
                    )
