"""TileIO past registers on AMD chips: loads from a buffer that write LDS themselves, several stages ahead.

A wave's load fills so many bytes of LDS in a row, lane by lane, so a lane loads what the swizzle has at its place.
Loads complete in groups. A lane's bytes come whole or not at all: rows of the operand end at a multiple of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import SMEM
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.errors import ArgumentError
from tilekit.targets import Target
from tilekit.tile_io.buffer import BufferOperand, Finding, TileBuffer
from tilekit.tiles.call import Call
from tilekit.tiles.cluster import Multicast, require_alone
from tilekit.tiles.operand import ATOM_ROWS, SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import AsyncWriter, Stage, Step

WORD: Final = 4
"""Bytes that rows of the operand begin at multiples of."""

WIDE: Final = 16
"""Bytes of a lane's load on chips with wide ones."""


class Along(NamedTuple):
    """Where a slice of a k-block is.

    Attributes
    ----------
    bytes
        From where its rows begin; 0 for one that lies behind them.
    outside
        Of a thread whose rows end before its bytes: bits that move every place out of the buffer, else 0.
    """

    bytes: Value
    outside: Value


@component
class BufferToLdsLoader(BufferOperand):
    """Loads one operand's tiles from global memory to LDS, zeros where the operand ends.

    Parameters
    ----------
    w
        The writer. The operand's parameters are those of a `BufferOperand`.
    tile
        The image to fill.
    role
        The role that loads, all of its threads.
    batched
        Whether the operand has a batch dimension.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for a tile that the role's waves cannot share out.

    Attributes
    ----------
    lane_bytes
        Bytes of a lane's load: 16, or 4 on chips without wide ones.
    """

    def __init__(self, w: Writer, tile: OperandTile, *, role: Role, batched: bool = False) -> None:
        self.lane_bytes = self.lane_bytes_of(w.target)
        self.wave_bytes = w.lanes * self.lane_bytes
        super().__init__(w, tile, role=role, lines=self.wave_bytes // SWIZZLE_BYTES * len(role.warps), batched=batched)
        if self.lines_apart % ATOM_ROWS:
            nearest = -(-ATOM_ROWS // (self.lines_apart // len(role.warps)))
            raise TraceError(
                f"{len(role.warps)} warps of role {role.name!r} load {self.lines_apart} lines of tile {tile.name!r} at "
                f"once, {self.lane_bytes} bytes a lane, and the swizzle repeats after {ATOM_ROWS}; nearest: {nearest} "
                "warps",
                code="TK-TRACE-017",
            )

    @staticmethod
    def lane_bytes_of(target: Target) -> int:
        """Bytes of a lane's load on a chip."""
        return WIDE if target.has("wide_loads_to_lds") else WORD

    @staticmethod
    def lane_writes(tile: OperandTile, target: Target) -> tuple[int, bool, list[list[int]]]:
        """Bytes a lane, that it writes, and where: a wave fills so many bytes in a row."""
        width = BufferToLdsLoader.lane_bytes_of(target)
        return width, True, [[lane * width for lane in range(target.lanes)]]

    def _inner(self, call: Call) -> int:
        matrix, address = call.matrix(self.tile.name), call.address(self.tile.name)
        length = matrix.extents[0] * matrix.dtype.bytes
        if (length % self.lane_bytes or (address | matrix.pitch) % WORD) and 0 not in matrix.extents:
            raise ArgumentError(
                f"{matrix.name} at address {address:#x}, with rows of {length} bytes, {matrix.pitch} bytes apart, "
                f"cannot be loaded to LDS: rows are to be whole {self.lane_bytes} bytes, at multiples of {WORD}; "
                f"nearest: rows padded to {-(-length // self.lane_bytes) * self.lane_bytes} bytes, or a BufferLoader",
                code="TK-LOAD-001",
            )
        return super()._inner(call)

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundBufferToLdsLoader:
        """Prepare a lane's places in a stage; once a role."""
        require_alone(self, self.tile.name, multicast)
        return BoundBufferToLdsLoader(w, self, stages)


class LdsWriter:
    """Groups the loads of a stage."""

    def joined(self, other: Any) -> AsyncWriter:
        """A wave has one group open, for the loads of all tiles."""
        return self

    def commit(self, w: Writer) -> None:
        """Close the group of loads started since the last commit."""
        w.gcn.buffer_lds.commit()

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups are still landing."""
        w.gcn.buffer_lds.wait(pending=pending)

    def complete(self, w: Writer, stage: Value) -> None:
        """Nothing is left to do with what has landed."""


class BoundBufferToLdsLoader:
    """A `BufferToLdsLoader` in a role.

    A wave's lanes have lines of 128 bytes one behind the other, the next ones whole swizzles further: the swizzle moves
    a lane's bytes alike in all of them.
    """

    def __init__(self, w: Writer, loader: BufferToLdsLoader, stages: SharedArray) -> None:
        self.loader = loader
        self.writer = LdsWriter()
        self._stages = stages
        wave = w.warp() - loader.first_thread // w.lanes
        place = w.lane() * loader.lane_bytes
        self._wave = wave * loader.wave_bytes
        self.line = wave * (loader.wave_bytes // SWIZZLE_BYTES) + place // SWIZZLE_BYTES
        self.along = loader.tile.swizzled(place % SWIZZLE_BYTES, self.line)

    def image(self, w: Writer, stage: Value) -> Value:
        """Where this wave's first lines lie in a stage."""
        return self._stages.at(w, stage) + self._wave

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> BufferToLdsTile:
        """Turn to the tile at `row` of M or N; once a tile."""
        return BufferToLdsTile(w, self, row, batch)


class BufferToLdsTile:
    """The loads of one tile: what its k-blocks have in common."""

    def __init__(self, w: Writer, bound: BoundBufferToLdsLoader, row: Value, batch: Operand) -> None:
        self._bound = bound
        self._buffer = TileBuffer(w, bound.loader, row, batch, line=bound.line, along=bound.along)

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this wave's loads to `stage` from element `k` on; they are in its open group."""
        for start in self.steps(w, self.image(w, stage.index), self.along(w, k)):
            start()

    def image(self, w: Writer, stage: Value) -> Value:
        """Where this wave's first lines lie in a stage."""
        return self._bound.image(w, stage)

    def along(self, w: Writer, k: Value) -> list[Along]:
        """Where the slices of a k-block from element `k` on are."""
        return [Along(*(finding.whole() for finding in both)) for both in self.finds(w, k)]

    def finds(self, w: Writer, k: Value) -> list[tuple[Finding, Finding]]:
        """The same found step by step."""
        tile, buffer = self._bound.loader.tile, self._buffer
        starts = [k + block * tile.slice_k if block else k for block in range(tile.slices)]
        return [(buffer.find_bytes(w, start), buffer.find_outside(w, start)) for start in starts]

    def steps(self, w: Writer, image: Value, along: list[Along], *, part: int = 0, parts: int = 1) -> list[Step]:
        """The loads of a k-block one by one, of one of so many equal parts of the tile's rows."""
        loader, buffer = self._bound.loader, self._buffer
        load = w.gcn.buffer_lds.load_b32_along if loader.lane_bytes == WORD else w.gcn.buffer_lds.load_b32x4_along
        return [
            partial(
                load,
                buffer=buffer.words,
                place=buffer.first(step),
                outside=along[block].outside,
                along=along[block].bytes,
                lds=image.retyped(SMEM),
                behind=loader.offset(block, step),
            )
            for block, step in loader.steps_of(part, parts)
        ]
