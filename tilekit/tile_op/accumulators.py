"""Accumulators as an epilogue sees them, wherever they are: blocks of rows, read as fragments of some rows a warp."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import OWN_RULE, Whole, illegal, require_whole
from tilekit.assembly.types import U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulator_fragments import QUAD_FRAGMENT, AccumulatorFragment
from tilekit.tiles.stage import Promote
from tilekit.tiles.tile import Tile

WARPGROUP_OF_EPILOGUE = "each warpgroup of the epilogue"
"""The meeting for which components on the way of the accumulators out share named barriers."""


OfLayout = Annotated[int, OWN_RULE]
"""A block or columns of accumulators; which there are is the layout's to say (`require_columns`)."""


def require_group(op: str, group: Warpgroup | None) -> Warpgroup:
    """Check that an instruction of whole warpgroups knows which of them it is in.

    Raises
    ------
    TraceError
        ``TK-TRACE-013`` where a role without the epilogue is to multiply into registers.
    """
    if group is None:
        raise TraceError(
            f"{op} leaves its sums in the registers of the warps that multiply, and is bound without their Warpgroup: "
            "they store the tile too; nearest: Warpgroup.of(w, warp, role), in a plan without an epilogue role",
            code="TK-TRACE-013",
        )
    return group


def require_warpgroups(w: Writer, owner: str, **roles: tuple[Role, int]) -> None:
    """Check that roles, each given by its argument's name, have so many warpgroups.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with the warps that are legal.
    """
    for name, (role, groups) in roles.items():
        warps = groups * w.target.matrix_waves
        if len(role.warps) != warps or role.one_thread:
            given = f"{role.name!r} of {len(role.warps)} warps" + (", one thread" if role.one_thread else "")
            raise illegal(owner, name, given, f"a role of {warps} warps, all of whose threads work")


def require_sharing(op: str, argument: str, given: int, group: Warpgroup) -> None:
    """Check that as many warpgroups, or waves, share a tile as an instruction divides it among.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with the number of the role.
    """
    if given != group.sharing:
        whose = f"those of role {group.role.name!r} that share a tile, {len(group.role.warps)} warps in all"
        raise illegal(op, argument, given, f"{group.sharing}: {whose}", group.sharing)


def require_storing_role(epilogue: str, role: Role, group: Warpgroup) -> None:
    """Check that an epilogue was made for the role that stores.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with that role.
    """
    if role.warps != group.role.warps:
        storing = group.role
        legal = f"the role that stores, {storing.name!r} of warps {storing.warps.start} to {storing.warps.stop - 1}"
        raise illegal(epilogue, "role", role.name, legal, storing.name)


def require_layout(epilogue: str, layout: AccumulatorLayout, tile: AccumulatorTile) -> None:
    """Check that an epilogue was made for accumulators that lie as those do which it is given.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with both.
    """
    given = tile.layout
    if (layout.blocks, layout.rows, layout.columns, layout.parts) != (
        given.blocks,
        given.rows,
        given.columns,
        given.parts,
    ):
        legal = f"that of the accumulators, {given.words} a warpgroup"
        raise illegal(epilogue, "layout", layout.words, legal, "the op's layout")


def require_columns(reads: str, layout: AccumulatorLayout, block: int, left: int, columns: int) -> None:
    """Check what an epilogue reads of a tile: a block, and whole fragments of its columns.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with the nearest.
    """
    width, words = layout.fragment.columns, "the columns of a fragment"
    require_whole(reads, "block", block, Whole(0, layout.blocks - 1))
    require_whole(reads, "left", left, Whole(0, layout.columns - width, width, words))
    require_whole(reads, "columns", columns, Whole(width, layout.columns - left, width, words))


@dataclass(frozen=True)
class Warpgroup:
    """A thread's place among its role's warpgroups.

    Attributes
    ----------
    index
        Its warpgroup in the role; the number 0 where there is only one.
    part
        Which part of a tile the warpgroup has, of those that share one: its index, or the number 0 where they take
        turns and each has whole tiles.
    warp, thread
        The warp and the thread in its warpgroup: 0 to 3 and 0 to 127 where a matrix instruction is four warps'.
    waves
        Warps of a warpgroup.
    role
        The role.
    """

    index: Value | int
    part: Value | int
    warp: Value
    thread: Value
    waves: int
    role: Role

    @classmethod
    def of(cls, w: Writer, warp: Value, role: Role) -> Warpgroup:
        """Work it out once.

        Raises
        ------
        TraceError
            ``TK-PART-001`` for a role whose first warp is not the first of a warpgroup.
        """
        waves = role.matrix_waves or w.target.matrix_waves
        if role.warps.start % waves:
            first = -(-role.warps.start // waves) * waves
            legal = f"a range from a multiple of {waves} on, where a warpgroup begins; {role.name!r} has warpgroups"
            raise illegal("Role", "warps", role.warps, legal, range(first, first + len(role.warps)))
        thread = w.thread() & (waves * w.lanes - 1)
        member = warp - role.warps.start
        if len(role.warps) == waves:
            return cls(index=0, part=0, warp=member, thread=thread, waves=waves, role=role)
        index = member // waves
        part = index if role.turns == 1 else 0
        return cls(index=index, part=part, warp=member & (waves - 1), thread=thread, waves=waves, role=role)

    @property
    def sharing(self) -> int:
        """Warpgroups of the role that share a tile: one where they take turns."""
        return len(self.role.warps) // self.waves if self.role.turns == 1 else 1


@dataclass(frozen=True)
class Part:
    """Rows ``first … first + rows - 1`` of a block, which are the tile's from (`row`, `column`) on."""

    first: int
    rows: int
    row: int
    column: int


@dataclass(frozen=True)
class AccumulatorLayout:
    """How a warpgroup holds its accumulators: `blocks` of `rows` by `columns`, warp w with rows ``w rows/waves …``.

    A warp's rows of a block are read in fragments, one below the other.

    Attributes
    ----------
    blocks, rows, columns
        Extents.
    parts
        Which rows and columns of the CTA's tile the rows of a block are.
    waves, lanes
        Warps of a warpgroup, and threads of a warp.
    fragment
        Which rows and columns the accumulators of a thread are.
    """

    blocks: int
    rows: int
    columns: int
    parts: tuple[Part, ...]
    waves: int
    lanes: int
    fragment: AccumulatorFragment = QUAD_FRAGMENT

    @property
    def words(self) -> str:
        """Its extents, for errors."""
        return f"{self.blocks} x ({self.rows} x {self.columns})"

    @property
    def threads(self) -> int:
        """Threads of a warpgroup."""
        return self.waves * self.lanes

    @property
    def fragments(self) -> int:
        """Fragments of a warp's rows in a block."""
        return self.rows // (self.waves * self.fragment.rows)

    @property
    def rows_of_a_thread(self) -> list[int]:
        """Rows that a thread holds, of all blocks, counted from its first."""
        apart, own = self.fragment.apart, self.rows // self.waves
        return [row for row in range(0, self.blocks * self.rows, apart) if row % self.rows < own]

    @property
    def side_by_side(self) -> int:
        """Warpgroups that have columns of the same rows."""
        return 1

    def share_of(self, column: Value) -> Value | int:
        """Which of those side by side has a column."""
        return 0

    @property
    def tile_rows(self) -> int:
        """Rows of the CTA's tile that the warpgroup holds."""
        return self.blocks * max(part.row + part.rows for part in self.parts)

    def place(self, part: Value | int) -> tuple[Value | int, Value | int]:
        """Row and column of the tile at which the warpgroup with that part of it begins."""
        return part * self.tile_rows, 0

    def row_of(self, block: int) -> int:
        """First row of a block, from where the warpgroup begins."""
        return block * self.rows

    def column_of(self, column: int) -> int:
        """Where a column of its accumulators is, from where the warpgroup begins."""
        return column

    def first_row(self, thread: Value) -> Value:
        """First row of a block that this thread's warp holds."""
        return (thread // self.lanes) * (self.rows // self.waves)

    def corner(self, w: Writer, thread: Value) -> tuple[Value | int, Value | int]:
        """Row and column of the tile that the block's row `first_row` and column 0 are."""
        if self.waves == 1:
            return 0, 0
        row, column = self.first_row(thread), 0
        if len(self.parts) == 1:
            return row, column
        upper = self.parts[1]
        above = self.first_row(thread) >= upper.first
        return (
            w.select(above, row - (upper.first - upper.row), row),
            w.select(above, upper.column, 0, U32),
        )


class AccumulatorTile(Protocol):
    """A finished tile in the hands of an epilogue."""

    @property
    def layout(self) -> AccumulatorLayout:
        """How a warpgroup holds them."""

    def clear(self, w: Writer) -> None:
        """Zero the accumulators: what an empty sum needs."""

    def read(self, w: Writer, block: int, left: int, columns: int) -> list[RegisterTile]:
        """Return `columns` columns of a block from `left` on, in fours, a fragment for each of a warp's.

        `left` and `columns` are multiples of ``layout.fragment.columns``.
        """

    def done(self, w: Writer) -> None:
        """Everything has been read: the next tile may overwrite it."""


class Accumulators(Protocol):
    """Where accumulators live, and how the mma role hands them to the epilogue."""

    @property
    def allocated(self) -> bool:
        """Whether they must be freed once every role is done."""

    def initialise(self, w: Writer) -> None:
        """Prepare barriers (one thread)."""

    def producer(self, w: Writer, role: Role) -> AccumulatorProducer:
        """Prepare the mma role; by all of its threads, once."""

    def consumer(self, w: Writer, group: Warpgroup) -> AccumulatorConsumer:
        """Prepare the role that stores, be it an epilogue role or the mma role itself; by all of its threads, once."""

    def free(self, w: Writer, warp: Value) -> None:
        """Give back what was allocated; by every warp, after a barrier of the CTA, or of the cluster."""


class AccumulatorProducer(Protocol):
    """What an mma role may do with accumulators: fill the next ones."""

    def acquire(self, tile: Tile) -> AbstractContextManager[Any]:
        """Wait until they are free and enter with what the op multiplies `tile` into; on exit hand them over."""

    @property
    def promote(self) -> Promote | None:
        """What is left to do with a k-block whose reads are done; None where there is nothing."""

    def ways(self, w: Writer, tile: Tile) -> Iterator[Promote | None]:
        """Device branches over ways to sum `tile`, one of which it takes; each has its own k-loop and `promote`."""


class AccumulatorConsumer(Protocol):
    """What an epilogue role may do with accumulators: read the next finished ones."""

    def acquire(self, tile: Tile) -> AbstractContextManager[AccumulatorTile]:
        """Wait until those of `tile` are complete."""
