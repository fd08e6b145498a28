"""A schedule over groups of rows, each with a matrix of its own: the products of a mixture of experts.

How many rows a group has is only known on the device, so every role counts the tiles as it goes: the tiles of a group
follow each other, column by column, and a cluster takes every so many-th of all.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tiles.call import Call, Schedule
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.tile import Tile


class GroupedScheduler:
    """Tiles ``cluster, cluster + clusters, …`` of all groups.

    Bounds may be anything. An end counts as the nearest between the end before it and the last row of all, a count as
    the nearest between 0 and the rows of a group: bad bounds make groups empty or shorter, nothing outside the operands
    is read or outside the output written, and every role sees the same tiles.

    Parameters
    ----------
    w
        The writer; ``group_bounds`` (the address of one u32 a group), ``group_count``, ``group_rows``, ``tile_columns``
        and ``rows`` become kernel parameters.
    tile_m, tile_n
        The CTA tile.
    cluster
        This CTA's place in its cluster.
    k
        K of the problem, u32.
    counted
        Whether the bounds count the rows of groups that begin every ``group_rows`` rows; else they are the ends of
        groups that lie behind each other.
    every_group
        Whether a group without rows has a row of tiles too, none of whose rows is its: what is stored for groups.
    """

    yields_early = True

    def __init__(
        self,
        w: Writer,
        *,
        tile_m: int,
        tile_n: int,
        cluster: Cluster,
        k: Value,
        rows: Value,
        counted: bool,
        every_group: bool = False,
    ) -> None:
        self._tile_m, self._tile_n = tile_m, tile_n
        self._cluster = cluster
        self._k = k
        self._rows = rows
        self._every = every_group
        self._bounds = w.parameter("group_bounds", GMEM, lambda call: call.address("groups"))
        self._count = w.parameter("group_count", U32, lambda call: call.number("groups"))
        self._group_rows = None
        if counted:
            self._group_rows = w.parameter("group_rows", U32, lambda call: call.number("group_rows"))
        self._columns = w.parameter("tile_columns", U32, self._tile_columns)

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output: how many tiles there are, is known on the device only."""
        rows = -(-call.m // (self._tile_m * self._cluster.m))
        return Schedule(call.resident, rows * self._tile_columns(call))

    def _tile_columns(self, call: Call) -> int:
        return -(-call.n // (self._tile_n * self._cluster.n))

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def ask(self, w: Writer) -> None:
        """Nothing to ask for."""

    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles."""
        uniform = not role.one_thread
        cluster = self._cluster
        index = w.variable(U32, cluster.index(w), "tile")
        stride = cluster.count(w)
        group, before, first, end, rows = (
            w.variable(U32, 0, name) for name in ("group", "before", "group_first", "group_end", "group_tiles")
        )
        for turn in w.repeat("tile", uniform=uniform):
            for step in w.repeat("group", uniform=uniform):
                step.again = self._seek(w, index, group, before, first, end, rows)
            found = group < self._count
            with w.when(found):
                within = index - before
                column = within // rows
                row = within - column * rows
                yield Tile(
                    row=first + (row * cluster.m + cluster.row) * self._tile_m,
                    column=(column * cluster.n + cluster.column) * self._tile_n,
                    batch=group,
                    k_first=0,
                    k_end=self._k,
                    row_first=first,
                    row_end=end,
                )
            index.assign(index + stride)
            turn.again = found

    def _seek(
        self, w: Writer, index: Value, group: Value, before: Value, first: Value, end: Value, rows: Value
    ) -> Value:
        """Look at `group`; go on to the next one where tile `index` lies behind it, and say so."""
        valid: Value = group < self._count
        address = (self._bounds + w.widen_multiply(group, 4)).retyped(GMEM)
        bound = w.isa.memory.load_count(address=address, valid=valid)
        if self._group_rows is not None:
            first.assign(group * self._group_rows)
            bound = first + w.minimum(bound, self._group_rows)
        bound = w.minimum(bound, self._rows)
        end.assign(w.select(bound > first, bound, first))
        height = self._tile_m * self._cluster.m
        lines = (end - first + (height - 1)) // height
        rows.assign(w.select(lines == 0, 1, lines) if self._every else lines)
        tiles = rows * self._columns
        beyond: Value = valid & ((index - before) >= tiles)
        before.assign(w.select(beyond, before + tiles, before))
        group.assign(w.select(beyond, group + 1, group))
        first.assign(w.select(beyond, end, first))
        return beyond
