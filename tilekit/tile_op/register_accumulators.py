"""Accumulators in the registers of the warps that multiply, whatever the instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import illegal
from tilekit.assembly.types import F32, S32, RegisterType
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulators import AccumulatorLayout, OfLayout, Warpgroup, require_columns
from tilekit.tiles.stage import AsyncReader, HeldStage, Promote, Stage
from tilekit.tiles.tile import Tile


class RegisterOp(Protocol):
    """An instruction that leaves its sums in registers."""

    @property
    def layout(self) -> AccumulatorLayout:
        """How a warpgroup holds its accumulators: a block has one fragment a warp."""


@component
class RegisterAccumulators:
    """Accumulators in registers, a tile of them for each block: the warps that multiply run the epilogue too.

    Parameters
    ----------
    op
        The instruction.
    whole
        Whether sums of whole numbers are handed on as they are, their bits in place of an f32's; else they are rounded
        to f32.
    """

    allocated = False

    def __init__(self, op: RegisterOp, *, whole: bool = False) -> None:
        self._whole = whole
        self.layout = op.layout
        self._type: RegisterType = getattr(op, "sums", F32)
        self._declared: list[RegisterTile] | None = None

    @property
    def _tiles(self) -> list[RegisterTile]:
        """The registers of each block."""
        if self._declared is None:
            name = type(self).__name__
            said = f"{name} has no registers, which a role's producer declares; nearest: {name}(...).producer(w, role)"
            raise TraceError(said, code="TK-FIT-001")
        return self._declared

    @_tiles.setter
    def _tiles(self, tiles: list[RegisterTile]) -> None:
        self._declared = tiles

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def free(self, w: Writer, warp: Value) -> None:
        """Nothing to free."""

    @property
    def registers(self) -> int:
        """Registers of a thread that they take."""
        return self.layout.blocks * self.layout.rows * self.layout.columns // self.layout.threads

    @checked
    def producer(self, w: Writer, role: Role) -> RegisterAccumulators:
        """Declare the registers; once a role.

        Raises
        ------
        TraceError
            ``TK-PART-001`` where the role's threads have no register left beside them.
        """
        layout = self.layout
        room = role.registers or w.target.launch_registers(w.threads)
        if self.registers >= room:
            legal = f"less than the {room} registers of a thread of role {role.name!r}, which needs some for addresses"
            raise illegal(type(self).__name__, "op", f"{self.registers} accumulators a thread", legal, "a smaller tile")
        registers = layout.rows * layout.columns // layout.threads
        self._tiles = [w.tile(self._type, registers, "acc") for _ in range(layout.blocks)]
        return self

    @checked
    def consumer(self, w: Writer, group: Warpgroup) -> FinishedRegisters:
        """The same registers, complete when the role's own program order says so."""
        return FinishedRegisters(self)

    @contextmanager
    def acquire(self, tile: Tile | None = None) -> Iterator[RegisterAccumulators]:
        """Enter with the registers, which are free and complete when the role's own program order says so."""
        yield self

    def __iter__(self) -> Iterator[RegisterTile]:
        return iter(self._tiles)

    def turns(self, w: Writer, reader: AsyncReader) -> Iterator[Sequence[tuple[int, RegisterTile]]]:
        """The blocks whose instructions are issued together, and their registers: all of them at once."""
        yield tuple(enumerate(self._tiles))

    def carried(self, w: Writer, stage: Stage, accumulate: Value | bool) -> Value | bool:
        """Whether a k-block's first instruction adds to what the registers hold; `accumulate`: it is not the first."""
        return accumulate

    @property
    def promote(self) -> Promote | None:
        """Nothing is left to do with a k-block: the instructions add to what the registers hold."""
        return None

    def ways(self, w: Writer, tile: Tile) -> Iterator[Promote | None]:
        """One way for all tiles."""
        yield self.promote

    def clear(self, w: Writer) -> None:
        """Zero the accumulators with ordinary moves."""
        for tile in self._tiles:
            for register in tile:
                register.assign(0.0 if self._type is F32 else 0)

    @checked
    def read(self, w: Writer, block: OfLayout, left: OfLayout, columns: OfLayout) -> list[RegisterTile]:
        """Return `columns` columns of a block: the registers, or whole numbers as f32."""
        (values,) = self._read(self._tiles, block, left, columns)
        if self._type is S32:
            turned = w.isa.convert.bits_f32 if self._whole else w.isa.convert.float_s32
            values = RegisterTile([turned(whole=value) for value in values])
        return [values]

    def _read(self, tiles: Sequence[RegisterTile], block: int, left: int, columns: int) -> list[RegisterTile]:
        layout = self.layout
        require_columns(f"{type(self).__name__}.read", layout, block, left, columns)
        tile = tiles[block]
        first, last = (place * len(tile) // layout.columns for place in (left, left + columns))
        return [layout.fragment.fours(tile[first:last])]

    def done(self, w: Writer) -> None:
        """Nothing to hand back."""


@dataclass(frozen=True)
class FinishedRegisters:
    """Registers whose sums are complete, for the epilogue of the role that made them."""

    accumulators: RegisterAccumulators

    @contextmanager
    def acquire(self, tile: Tile) -> Iterator[RegisterAccumulators]:
        """Enter with the registers: there is nothing to wait for."""
        yield self.accumulators


class PromotedAccumulators(RegisterAccumulators):
    """Sums in registers of their own, to which those of each k-block are added when its instructions are complete.

    For 8-bit types, of whose sums the tensor core keeps 13 bits from one instruction to the next. A k-block begins
    anew, so its sums must be read before the next one's instructions are issued.
    """

    def producer(self, w: Writer, role: Role) -> PromotedAccumulators:
        """Declare the registers; once a role."""
        super().producer(w, role)
        self._w = w
        self._sums = [w.tile(F32, len(tile), "sum") for tile in self._tiles]
        return self

    @contextmanager
    def acquire(self, tile: Tile | None = None) -> Iterator[PromotedAccumulators]:
        """Enter with the registers, the sums being zero."""
        self.clear(self._w)
        yield self

    def carried(self, w: Writer, stage: Stage, accumulate: Value | bool) -> bool:
        """Never: a k-block's sums are its own."""
        return False

    @property
    def promote(self) -> Promote:
        """Add the k-block's sums."""
        return self._add

    def _add(self, w: Writer, stage: HeldStage) -> None:
        stage.release()  # it has nothing more for the sums, and the load role may wait for it
        for sums, partial in zip(self._sums, self._tiles, strict=True):
            for register, value in zip(sums, partial, strict=True):
                register.assign(register + value)

    def clear(self, w: Writer) -> None:
        """Zero the sums."""
        for sums in self._sums:
            for register in sums:
                register.assign(0.0)

    @checked
    def read(self, w: Writer, block: OfLayout, left: OfLayout, columns: OfLayout) -> list[RegisterTile]:
        """Return the registers of `columns` columns of a block."""
        return self._read(self._sums, block, left, columns)
