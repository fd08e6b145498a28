"""The two products of attention on Hopper: queries by keys from shared memory, and weights in registers by values."""

from __future__ import annotations

from tilekit.assembly.fit import component
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import B32, F32, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.descriptors import ADDRESS_MASK, WGMMA_MODES, MatrixDescriptor
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage

WARPGROUP_ROWS = 64
"""Queries of a warpgroup: rows of an instruction."""

DEPTH = 16
"""Elements of K that an instruction multiplies."""


@component
class Scores:
    """S = Q Kᵀ: a warpgroup's 64 queries by a tile of keys, both K-major in shared memory.

    Parameters
    ----------
    queries, keys
        The tiles; a warpgroup multiplies its 64 rows of the one with all of the other.
    """

    def __init__(self, queries: OperandTile, keys: OperandTile) -> None:
        self.queries = queries
        self.keys = keys
        self.query_descriptor = MatrixDescriptor.of(queries, WGMMA_MODES)
        self.key_descriptor = MatrixDescriptor.of(keys, WGMMA_MODES)

    def bind(self, w: Writer, queries: SharedArray, keys: SharedArray, group: Warpgroup) -> BoundScores:
        """Prepare the descriptors of a warpgroup; once a role."""
        return BoundScores(w, self, queries, keys, group.part)


class BoundScores:
    """`Scores` in a role."""

    def __init__(self, w: Writer, op: Scores, queries: SharedArray, keys: SharedArray, part: Value | int) -> None:
        self._op = op
        self._query_stride, self._key_stride = queries.stride >> 4, keys.stride >> 4
        first = w.shared_base.retyped(U32) + queries.offset + part * op.queries.offset_of(WARPGROUP_ROWS)
        self._queries = ((first & ADDRESS_MASK) >> 4) | op.query_descriptor.low
        first = w.shared_base.retyped(U32) + keys.offset
        self._keys = ((first & ADDRESS_MASK) >> 4) | op.key_descriptor.low

    def tile(self, w: Writer) -> RegisterTile:
        """Registers for the scores."""
        return w.tile(F32, self._op.keys.rows // 2, "scores")

    def multiply(self, w: Writer, scores: RegisterTile, queries: Stage, keys: Stage) -> None:
        """Issue the product of two stages, a group of its own."""
        op = self._op
        a_low = self._queries + queries.index * self._query_stride
        b_low = self._keys + keys.index * self._key_stride
        w.ptx.wgmma.fence()
        for index in range(op.queries.k // DEPTH):
            a, b = op.query_descriptor.offset(index) >> 4, op.key_descriptor.offset(index) >> 4
            w.ptx.wgmma.mma_16bit(
                acc=scores,
                a=w.ptx.wgmma.descriptor(low=a_low + a, high=op.query_descriptor.high),
                b=w.ptx.wgmma.descriptor(low=b_low + b, high=op.key_descriptor.high),
                accumulate=index > 0,
                n=op.keys.rows,
                type=op.keys.dtype.name,
                a_mn_major=0,
                b_mn_major=0,
            )
        w.ptx.wgmma.commit()


@component
class Weighted:
    """O += P V: weights in registers by a tile of values, of which a row is a key and N is contiguous.

    The registers that hold a row of scores are those that the instruction reads a row of A from, so that weights
    need no exchange (PTX ISA, wgmma, Register Fragments: D of m64nN, A of m64k16).

    Parameters
    ----------
    values
        The tile, as loaded: its rows are positions, its slices chunks of N.
    """

    def __init__(self, values: OperandTile) -> None:
        self.values = values
        self.descriptor = MatrixDescriptor.across(values, WGMMA_MODES, k=DEPTH)

    def bind(self, w: Writer, values: SharedArray) -> BoundWeighted:
        """Prepare the descriptors; once a role."""
        return BoundWeighted(w, self, values)


class BoundWeighted:
    """`Weighted` in a role."""

    def __init__(self, w: Writer, op: Weighted, values: SharedArray) -> None:
        self._op = op
        self._stride = values.stride >> 4
        first = w.shared_base.retyped(U32) + values.offset
        self._values = ((first & ADDRESS_MASK) >> 4) | op.descriptor.low

    def sums(self, w: Writer) -> RegisterTile:
        """Registers for the output."""
        return w.tile(F32, self._op.values.k // 2, "out")

    def weights(self, w: Writer) -> RegisterTile:
        """Registers for packed weights."""
        return w.tile(B32, self._op.values.rows // 4, "weights")

    def pack(self, w: Writer, weights: RegisterTile, scores: list[Value]) -> None:
        """Round the weights, in the order of their registers, to the type of the values."""
        pack = getattr(w.ptx.convert, f"pack_{self._op.values.dtype.name}")
        for index, register in enumerate(weights):
            register.assign(pack(low=scores[2 * index], high=scores[2 * index + 1]))

    def multiply(
        self, w: Writer, sums: RegisterTile, weights: RegisterTile, values: Stage, *, accumulate: Value
    ) -> None:
        """Issue the product with a stage, a group of its own; it overwrites the sums unless `accumulate` holds."""
        op = self._op
        low = self._values + values.index * self._stride
        w.ptx.wgmma.fence()
        for index in range(op.values.rows // DEPTH):
            w.ptx.wgmma.mma_16bit_registers(
                acc=sums,
                a=weights[4 * index : 4 * index + 4],
                b=w.ptx.wgmma.descriptor(low=low + (op.descriptor.offset(index) >> 4), high=op.descriptor.high),
                accumulate=accumulate if index == 0 else True,
                n=op.values.k,
                type=op.values.dtype.name,
                b_mn_major=1,
            )
        w.ptx.wgmma.commit()
