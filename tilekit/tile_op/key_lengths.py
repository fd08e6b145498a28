"""How many queries and keys a tile's batch entry or sequence has: those of the call, or its own."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.fit import component
from tilekit.assembly.types import GMEM, S32, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.call import Call
from tilekit.tiles.heads import HeadTile


@dataclass(frozen=True)
class OwnLengths:
    """The extents of a tile's batch entry or sequence.

    Attributes
    ----------
    queries, keys
        How many it has, u32.
    apart
        What it adds to how far the last key is from the last query, beside what the launch knows; s32.
    first_key
        Where its first key lies among the positions of the array, u32.
    """

    queries: Value
    keys: Value
    apart: Value | int = 0
    first_key: Value | int = 0


class WholeLengths:
    """Every batch entry has the queries and keys of the call."""

    def known_apart(self, call: Call) -> int:
        """How far the last key is from the last query, as far as the launch knows."""
        return call.k - call.m

    def of(self, w: Writer, tile: HeadTile, queries: Value, keys: Value) -> OwnLengths:
        """The extents of a tile's batch entry or sequence, of a call of so many `queries` and `keys`."""
        return OwnLengths(queries, keys)


@component
class KeyLengths(WholeLengths):
    """A number of keys in use for each batch entry, s32 in device memory.

    Parameters
    ----------
    w
        The writer; the lengths' address is a kernel parameter.
    """

    def __init__(self, w: Writer) -> None:
        self.address = w.parameter("key_lengths", GMEM, lambda call: call.address("key_lengths"))

    def known_apart(self, call: Call) -> int:
        """The queries alone."""
        return -call.m

    def of(self, w: Writer, tile: HeadTile, queries: Value, keys: Value) -> OwnLengths:
        """As many keys as are in use, not below 0 and not above those that there are; the same in all lanes."""
        address = (self.address + w.widen_multiply(tile.batch, 4)).retyped(GMEM)
        found = w.isa.memory.load_global_u32(address=address, valid=tile.batch >= 0)
        length = found if w.divergent else w.broadcast(found, lane=0)
        length = w.minimum(length.retyped(S32), keys.retyped(S32))
        length = w.select(length > 0, length, 0, S32)
        return OwnLengths(queries, length.retyped(U32), apart=length)


class PackedLengths(WholeLengths):
    """A sequence of its own for each tile, which says where it lies."""

    def known_apart(self, call: Call) -> int:
        """Nothing."""
        return 0

    def of(self, w: Writer, tile: HeadTile, queries: Value, keys: Value) -> OwnLengths:
        """The sequence's."""
        own = tile.sequence
        assert own is not None
        return OwnLengths(own.queries, own.keys, (own.keys - own.queries).retyped(S32), own.first_key)
