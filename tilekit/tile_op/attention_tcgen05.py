"""The two products of attention on Blackwell: queries by keys into tensor memory, and weights from there by values."""

from __future__ import annotations

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Whole, require_whole
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.descriptors import ADDRESS_MASK, TCGEN05_MODES, MatrixDescriptor
from tilekit.tile_op.tcgen05 import LANES, MAX_COLUMNS, instruction_descriptor
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage

DEPTH = 16
"""Elements of K that an instruction multiplies, of 16 bits each."""

_ACROSS = 1 << 16
"""In an instruction descriptor: B is contiguous along N (PTX ISA, tcgen05.mma, Instruction descriptor)."""

_COLUMNS = DEPTH // 2
"""Columns of tensor memory that hold the weights of one instruction: two in each."""


@component
class TensorScores:
    """S = Q Kᵀ: 128 queries by a tile of keys, both K-major in shared memory, into as many columns as there are keys.

    Parameters
    ----------
    queries, keys
        The tiles; of the one, the first 128 rows.

    Raises
    ------
    TraceError
        ``TK-PART-001`` for rows that the instruction has no shape for, ``TK-TRACE-017`` for tiles that are not K-major
        or not of 16-bit elements.
    """

    def __init__(self, queries: OperandTile, keys: OperandTile) -> None:
        _require_heads("TensorScores", queries, keys)
        require_whole("TensorScores", "queries.rows", queries.rows, Whole(LANES, step=8))
        require_whole("TensorScores", "keys.rows", keys.rows, Whole(DEPTH, MAX_COLUMNS, DEPTH))
        self.queries = queries
        self.keys = keys
        self.query_descriptor = MatrixDescriptor.of(queries, TCGEN05_MODES)
        self.key_descriptor = MatrixDescriptor.of(keys, TCGEN05_MODES)
        self.descriptor = instruction_descriptor(queries, keys, m=LANES, n=keys.rows)

    def bind(self, w: Writer, queries: tuple[SharedArray, ...], keys: SharedArray) -> BoundTensorScores:
        """Prepare the descriptors of each tile of queries, in the thread that issues."""
        return BoundTensorScores(w, self, queries, keys)


class BoundTensorScores:
    """`TensorScores` in a role."""

    def __init__(self, w: Writer, op: TensorScores, queries: tuple[SharedArray, ...], keys: SharedArray) -> None:
        self._op = op
        self._key_stride = keys.stride >> 4
        self._queries = [_low(w, place, op.query_descriptor) for place in queries]
        self._keys = _low(w, keys, op.key_descriptor)

    def multiply(self, w: Writer, scores: Value, tile: int, keys: Stage) -> None:
        """Issue the product of tile `tile` of the queries with a stage of keys, into the columns from `scores` on."""
        op = self._op
        b_low = self._keys + keys.index * self._key_stride
        for index in range(op.queries.k // DEPTH):
            a, b = op.query_descriptor.offset(index) >> 4, op.key_descriptor.offset(index) >> 4
            w.ptx.tcgen05.mma_f16(
                d=scores,
                a=w.ptx.tcgen05.descriptor(low=self._queries[tile] + a, high=op.query_descriptor.high),
                b=w.ptx.tcgen05.descriptor(low=b_low + b, high=op.key_descriptor.high),
                idesc=op.descriptor,
                accumulate=index > 0,
                group=1,
            )


@component
class TensorWeighted:
    """O += P V: weights in tensor memory, two a column, by a tile of values, of which a row is a key.

    Parameters
    ----------
    values
        The tile, as loaded: its rows are positions, its slices chunks of N.

    Raises
    ------
    TraceError
        As `TensorScores`.
    """

    def __init__(self, values: OperandTile) -> None:
        _require_heads("TensorWeighted", values, values)
        require_whole("TensorWeighted", "values.rows", values.rows, Whole(DEPTH, step=DEPTH))
        require_whole("TensorWeighted", "values.k", values.k, Whole(DEPTH, MAX_COLUMNS, DEPTH))
        self.values = values
        self.matrix = MatrixDescriptor.across(values, TCGEN05_MODES, k=DEPTH)
        self.descriptor = instruction_descriptor(values, values, m=LANES, n=values.k) | _ACROSS

    def bind(self, w: Writer, values: SharedArray) -> BoundTensorWeighted:
        """Prepare the descriptors, in the thread that issues."""
        return BoundTensorWeighted(w, self, values)


class BoundTensorWeighted:
    """`TensorWeighted` in a role."""

    def __init__(self, w: Writer, op: TensorWeighted, values: SharedArray) -> None:
        self._op = op
        self._stride = values.stride >> 4
        self._values = _low(w, values, op.matrix)

    def multiply(self, w: Writer, sums: Value, weights: Value, values: Stage, *, accumulate: Value | bool) -> None:
        """Issue the product with a stage; it overwrites the sums unless `accumulate` holds."""
        op = self._op
        low = self._values + values.index * self._stride
        for index in range(op.values.rows // DEPTH):
            w.ptx.tcgen05.mma_f16_tensor(
                d=sums,
                a=weights + _COLUMNS * index,
                b=w.ptx.tcgen05.descriptor(low=low + (op.matrix.offset(index) >> 4), high=op.matrix.high),
                idesc=op.descriptor,
                accumulate=accumulate if index == 0 else True,
                group=1,
            )


def _low(w: Writer, place: SharedArray, descriptor: MatrixDescriptor) -> Value:
    """The low word of a descriptor of an array's first stage."""
    first = w.shared_base.retyped(U32) + place.offset
    return ((first & ADDRESS_MASK) >> 4) | descriptor.low


def _require_heads(owner: str, a: OperandTile, b: OperandTile) -> None:
    """Check that tiles are K-major ones of one 16-bit type."""
    for tile in (a, b):
        if tile.major != "k" or tile.dtype.name not in ("bf16", "f16") or not tile.swizzle_bytes:
            raise TraceError(
                f"{owner} reads swizzled K-major tiles of bf16 or f16; {tile.name!r} is {tile.dtype.name}, "
                f"{tile.major}-major, swizzle_bytes={tile.swizzle_bytes}; nearest: bf16, 'k', 128",
                code="TK-TRACE-017",
            )
    if a.dtype is not b.dtype:
        raise TraceError(
            f"{owner} multiplies tiles of one type; {a.name!r} is {a.dtype.name}, {b.name!r} is {b.dtype.name}; "
            f"nearest: {a.dtype.name} for both",
            code="TK-TRACE-017",
        )
