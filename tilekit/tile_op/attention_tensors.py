"""Attention's tensor memory: scores, weights and sums of each tile of queries, and where three roles meet over them."""

from __future__ import annotations

from collections.abc import Sequence

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import SharedArray, mbarriers
from tilekit.assembly.types import B32, F32, TMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulators import Warpgroup, require_warpgroups
from tilekit.tile_op.tensor_accumulators import powers
from tilekit.tile_op.tensor_memory import TensorMemory

AT_ONCE = 32
"""Columns that a thread moves by one instruction."""


@component
class AttentionTensors:
    """For each of `tiles` tiles of 128 queries: columns of scores, which weights take over, and of sums.

    The role that multiplies fills scores, which the tile's warpgroup of the softmax role reads whole before it writes
    weights to their first half, two a column. These are complete when that warpgroup has written them, and the
    correction role has made the sums fit them. Scores of the next block overwrite weights that the instructions issued
    before have read: the tensor core executes what one thread issues in order. For the same reason scores that have
    come say that the sums of the block before are complete; the last ones have a commit of their own.

    Parameters
    ----------
    w
        The writer; barriers are allocated in its shared memory.
    memory
        Where the regions ``scores`` and ``sums`` are claimed.
    tiles
        Tiles of queries.
    keys, columns
        Of a block, and of the sums.
    mma, softmax, correction
        The roles: of the second a warpgroup a tile, of the third one.

    Raises
    ------
    TraceError
        ``TK-PART-001`` for roles of other warps, ``TK-TRACE-016`` for more columns than there are.
    """

    def __init__(
        self,
        w: Writer,
        memory: TensorMemory,
        *,
        tiles: Count,
        keys: Count,
        columns: Count,
        mma: Role,
        softmax: Role,
        correction: Role,
    ) -> None:
        self.tiles, self.keys, self.columns = tiles, keys, columns
        self.memory = memory
        require_warpgroups(w, "AttentionTensors", softmax=(softmax, tiles), correction=(correction, 1))
        name = type(self).__name__
        self.scores = memory.claim("scores", columns=tiles * keys, claimant=name)
        self.sums = memory.claim("sums", columns=tiles * columns, claimant=name)
        self._mma, self._softmax, self._correction = mma, softmax, correction
        waves = w.target.matrix_waves

        def barrier(what: str, arrive: tuple[Role, ...], wait: Role, arrivals: int) -> SharedArray:
            (declared,) = mbarriers(what, ("full",), tiles)
            return w.shared.place(
                declared, arrive=tuple(role.name for role in arrive), wait=(wait.name,), arrivals=arrivals
            )

        self.scores_full = barrier("scores", (mma,), softmax, 1)
        self.weights_full = barrier("weights", (softmax, correction), mma, 2 * waves)
        self.sums_full = barrier("sums", (mma,), correction, 1)

    def initialise(self, w: Writer) -> None:
        """Initialise the barriers; one thread."""
        for array in (self.scores_full, self.weights_full, self.sums_full):
            for tile in range(self.tiles):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + tile * array.stride), count=array.arrivals)
        w.ptx.mbarrier.fence_init()

    def multiplier(self, w: Writer) -> TensorMultiplier:
        """Learn where the regions are; by the multiplying role's whole warp."""
        return TensorMultiplier(w, self, self.memory.bind(w, self._mma))

    def weigher(self, w: Writer, group: Warpgroup) -> TensorWeigher:
        """The same, by all threads of the softmax role."""
        return TensorWeigher(w, self, self.memory.bind(w, self._softmax), group)

    def corrector(self, w: Writer, group: Warpgroup) -> TensorCorrector:
        """The same, by all threads of the correction role."""
        return TensorCorrector(w, self, self.memory.bind(w, self._correction), group)


class _Phase:
    """The parity of a barrier's phase that a role waits for next, the same of every tile's."""

    def __init__(self, w: Writer, name: str) -> None:
        self.parity = w.variable(U32, 0, name)

    def advance(self) -> None:
        """Go on to the next phase."""
        self.parity.assign(self.parity ^ 1)


class TensorMultiplier:
    """What the role that multiplies may do: fill scores and sums, and wait for weights."""

    def __init__(self, w: Writer, tensors: AttentionTensors, base: Value) -> None:
        self._w, self._tensors = w, tensors
        self._scores, self._sums = tensors.scores.at(base), tensors.sums.at(base)

    def begin(self) -> None:
        """Prepare what the thread that issues keeps."""
        self._phase = _Phase(self._w, "weights_phase")

    def scores(self, tile: int) -> Value:
        """Address of a tile's scores, and of its weights."""
        return self._scores + tile * self._tensors.keys

    def sums(self, tile: int) -> Value:
        """Address of a tile's sums."""
        return self._sums + tile * self._tensors.columns

    def scored(self, tile: int) -> None:
        """Tell that scores are there, once what has been issued is complete."""
        self._commit(self._tensors.scores_full, tile)

    def summed(self, tile: int) -> None:
        """Tell that sums are there, once what has been issued is complete."""
        self._commit(self._tensors.sums_full, tile)

    def await_weights(self, tile: int) -> None:
        """Wait for a tile's weights, and for sums that fit them."""
        w = self._w
        w.ptx.mbarrier.wait_parity(bar=self._tensors.weights_full.at(w, tile), parity=self._phase.parity)
        w.ptx.tcgen05.fence_after()

    def advance(self) -> None:
        """Go on to the next block, when all tiles' weights have been waited for."""
        self._phase.advance()

    def _commit(self, array: SharedArray, tile: int) -> None:
        self._w.ptx.tcgen05.commit(bar=array.at(self._w, tile), group=1)


class TensorWeigher:
    """What a warpgroup of the softmax role may do: read its tile's scores, and write weights."""

    def __init__(self, w: Writer, tensors: AttentionTensors, base: Value, group: Warpgroup) -> None:
        self._w, self._tensors, self._index = w, tensors, group.index
        first = tensors.scores.at(base) + group.index * tensors.keys
        self._columns = first + (group.warp << 21)  # a warp touches the lanes that its index modulo 4 names
        self._first_lane = w.lane() == 0
        self._phase = _Phase(w, "scores_phase")

    def read(self, scores: RegisterTile) -> None:
        """Wait for a block's scores and load the thread's row."""
        w = self._w
        w.ptx.mbarrier.wait_parity(bar=self._tensors.scores_full.at(w, self._index), parity=self._phase.parity)
        self._phase.advance()
        w.ptx.tcgen05.fence_after()
        for first, width in powers(self._tensors.keys, AT_ONCE):
            w.ptx.tcgen05.load_32x32b(
                values=scores[first : first + width], address=(self._columns + first).retyped(TMEM), x=width
            )
        w.ptx.tcgen05.wait_load()

    def write(self, first: int, packed: Sequence[Value]) -> None:
        """Write weights of the keys from `first` on, two in each register."""
        w = self._w
        for start, width in powers(len(packed), AT_ONCE):
            w.ptx.tcgen05.store_32x32b_packed(
                address=(self._columns + (first // 2 + start)).retyped(TMEM),
                values=RegisterTile(list(packed[start : start + width])),
                x=width,
            )

    def written(self) -> None:
        """Tell that the block's weights are there."""
        w = self._w
        w.ptx.tcgen05.wait_store()
        _arrive(w, self._tensors.weights_full.at(w, self._index), self._first_lane)


class TensorCorrector:
    """What the correction role may do: multiply sums, say that they fit the weights, and read what they have become."""

    def __init__(self, w: Writer, tensors: AttentionTensors, base: Value, group: Warpgroup) -> None:
        self._w, self._tensors = w, tensors
        self._columns = tensors.sums.at(base) + (group.warp << 21)
        self._first_lane = w.lane() == 0
        self._phase = _Phase(w, "sums_phase")

    def rescale(self, tile: int, factor: Value) -> None:
        """Multiply the sums of the thread's row if any row of the warp asks for it; the block's scores have come."""
        w = self._w
        asked = w.ptx.softmax.any(value=factor != 1.0)
        asked.uniform = True
        w.broadcasts.add(asked.text)
        with w.when(asked):
            w.ptx.tcgen05.fence_after()
            for first, width in powers(self._tensors.columns, AT_ONCE):
                found = self.read(tile, first, width)
                for register in found:
                    register.assign(register * factor)
                w.ptx.tcgen05.store_32x32b(address=self._at(tile, first), values=found, x=width)
            w.ptx.tcgen05.wait_store()

    def fits(self, tile: int) -> None:
        """Tell that the sums fit the weights, or may be overwritten."""
        w = self._w
        _arrive(w, self._tensors.weights_full.at(w, tile), self._first_lane)

    def await_sums(self, tile: int) -> None:
        """Wait until the sums are complete."""
        w = self._w
        w.ptx.mbarrier.wait_parity(bar=self._tensors.sums_full.at(w, tile), parity=self._phase.parity)
        w.ptx.tcgen05.fence_after()

    def advance(self) -> None:
        """Go on to other queries, when all tiles' sums have been waited for."""
        self._phase.advance()

    def finish(self) -> None:
        """Order the last loads before the barrier behind which tensor memory is freed."""
        self._w.ptx.tcgen05.fence_before()

    def read(self, tile: int, first: int, width: int) -> RegisterTile:
        """Load so many columns, a power of two, of the thread's row."""
        w = self._w
        found = w.tile(F32, width, "sums")
        w.ptx.tcgen05.load_32x32b(values=found, address=self._at(tile, first), x=width)
        w.ptx.tcgen05.wait_load()
        return found

    def _at(self, tile: int, first: int) -> Value:
        return (self._columns + (tile * self._tensors.columns + first)).retyped(TMEM)


def pack(w: Writer, dtype: str, weights: Sequence[Value]) -> list[Value]:
    """Round weights to a type of 16 bits, two in each register."""
    packed = getattr(w.ptx.convert, f"pack_{dtype}")
    return [packed(low=weights[i], high=weights[i + 1]).retyped(B32) for i in range(0, len(weights), 2)]


def _arrive(w: Writer, bar: Value, first_lane: Value) -> None:
    """One arrival of the warp, behind all of its lanes' accesses of tensor memory."""
    w.ptx.tcgen05.fence_before()
    w.warp_sync()
    w.ptx.mbarrier.arrive(bar=bar, active=first_lane)
