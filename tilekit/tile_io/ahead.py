"""TileIO of single values: f32 in global memory that go along with K, read a k-block before they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count, illegal, require_symbol
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.call import Call
from tilekit.tiles.tile import Tile


@component
class Ahead:
    """Values in global memory, some for each k-block, which are read while the one before is multiplied.

    Parameters
    ----------
    w
        The writer; address, extent, and elements from one to the next, to those of the next k-block and, `grouped`, of
        the next group or batch become kernel parameters.
    name
        Of the array.
    block
        Elements of K that share a value.
    grouped
        Whether each group, or batch, has its own.
    """

    def __init__(self, w: Writer, name: str, *, block: Count, grouped: bool) -> None:
        require_symbol("Ahead", "name", name)
        self._block = block

        def address(call: Call) -> int:
            require_block("Ahead", name, block, call)
            require_batches("Ahead", "grouped", grouped, name, call)
            return call.address(name)

        self._address = w.parameter(name, GMEM, address)
        fields = ("extent", "pitch", "step", *(("group",) if grouped else ()))
        self._n = {field: w.parameter(f"{name}_{field}", U32, partial(_number, f"{name}_{field}")) for field in fields}

    def turn(self, w: Writer, tile: Tile, first: Value, offsets: Sequence[int]) -> None:
        """Turn to an output tile, which takes those at `first` and `offsets` behind it, and read its first ones."""
        require_offsets("Ahead", offsets)
        n, self._first, self._offsets, self._end = self._n, first, offsets, tile.k_end
        start = self._address + w.widen_multiply(first, n["pitch"]) * 4
        if isinstance(tile.k_first, Value):
            start = start + w.widen_multiply(tile.k_first // self._block, n["step"]) * 4
        if "group" in n and isinstance(tile.batch, Value):
            start = start + w.widen_multiply(tile.batch, n["group"]) * 4
        self._at, self._k = w.variable(GMEM, start.retyped(GMEM), "values"), w.variable(U32, tile.k_first, "next_k")
        self._next = w.tile(F32, len(offsets), "ahead")
        self._read(w)

    def take(self, w: Writer) -> list[Value]:
        """Those of the next k-block; the ones behind it are then on their way."""
        found = [w.variable(F32, value, "value") for value in self._next]
        self._read(w)
        return found

    def _read(self, w: Writer) -> None:
        more = self._k < self._end
        for offset, value in zip(self._offsets, self._next, strict=True):
            at = self._at + w.widen_multiply(self._n["pitch"], 4 * offset) if offset else self._at
            valid = more & (self._first + offset < self._n["extent"])
            value.assign(w.isa.memory.load_global_f32(address=at.retyped(GMEM), valid=valid))
        self._at.assign((self._at + w.widen_multiply(self._n["step"], 4)).retyped(GMEM))
        self._k.assign(self._k + self._block)


def require_block(owner: str, name: str, block: int, call: Call) -> None:
    """Refuse a component that takes values for `block` elements of K, where the call's array has them for others."""
    declared = call.numbers.get(f"{name}_block", block)
    if declared != block:
        raise illegal(owner, "block", block, f"{declared}, the elements of K for which {name} has a value", declared)


def require_batches(owner: str, what: str, given: bool, name: str, call: Call) -> None:
    """Refuse a component that takes values for all batches, or groups, where each has its own; and the other way."""
    declared = bool(call.numbers.get(f"{name}_batched", given))
    if declared != given:
        whose = "each batch, or group, has its own" if declared else "all batches, or groups, share one"
        raise illegal(owner, what, given, f"{declared}: of {name} {whose}", declared)


def require_offsets(owner: str, offsets: object) -> None:
    """Refuse what does not say how far each of a thread's values lies behind its first."""
    if not isinstance(offsets, Sequence):
        raise illegal(owner, "offsets", offsets, "a list of whole numbers: how far behind the first each value lies")


def _number(name: str, call: Call) -> float:
    return call.number(name)
