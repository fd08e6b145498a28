"""The warps' sums become the result: once a tile, through shared memory, in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.types import B32, GMEM, U32
from tilekit.assembly.types import F32 as F32_REGISTER
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.drivers.streaming import Place
from tilekit.dtypes import BF16, F32
from tilekit.epilogue.elements import store_element
from tilekit.epilogue.functions import ColumnPair, Elementwise, RowPair
from tilekit.kernels.gemv.spec import GemvSpec, counted
from tilekit.kernels.gemv.weights import Weights
from tilekit.tiles.call import Matrix


@dataclass(frozen=True)
class Fetched:
    """What two neighbouring outputs need beside their sums: their row's and columns' functions, and the residual."""

    rows: RowPair
    columns: ColumnPair
    residual: tuple[Value | None, ...]


class WarpSums:
    """Every warp writes its sums to the shared memory of the cluster's first CTA, whose threads add them and store.

    There are two buffers, so that one barrier a tile is enough: who writes a buffer again has passed the barrier of
    the tile between, and that one is reached only after reading.

    Parameters
    ----------
    w
        The writer; address and pitch of the output become kernel parameters.
    spec
        Types and tokens.
    weights
        Whose accumulators are added.
    functions
        Elementwise functions.
    warps, cluster
        Warps of a CTA and CTAs of the cluster.
    m, n
        Tokens and columns there are.
    """

    def __init__(
        self,
        w: Writer,
        spec: GemvSpec,
        weights: Weights,
        functions: Elementwise,
        *,
        warps: int,
        cluster: int,
        m: Value,
        n: Value,
    ) -> None:
        self._spec = spec
        self._weights = weights
        self._functions = functions
        self._threads = w.lanes * warps
        self._units = warps * cluster
        self._cluster = cluster
        self._m = m
        self._n = n
        self._d = w.parameter("d", GMEM, lambda call: call.address("d"))
        self._pitch = w.parameter("d_pitch", U32, lambda call: _row_pitch(call.matrix("d")))
        if functions.source is not None:
            self._residual = w.parameter("residual", GMEM, lambda call: call.address("c"))
            self._residual_pitch = w.parameter("residual_pitch", U32, lambda call: _row_pitch(call.matrix("c")))
        self._pairs = weights.columns // 2 * spec.tokens
        self._unit_bytes = weights.columns * spec.tokens * 4
        (sums,) = self.declared(units=self._units, columns=weights.columns, tokens=spec.tokens)
        self._array = w.shared.place(sums)

    @staticmethod
    def declared(*, units: int, columns: int, tokens: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the sums of so many warps: every one's, twice."""
        return (SharedDeclaration("sums", units * columns * tokens * 4, 2),)

    def bind(self, w: Writer, place: Place) -> None:
        """Fetch the scale; once a kernel, after the kernels before this one are complete."""
        self._functions.bind(w)
        self._place = place
        self._buffer = w.variable(U32, 0, "buffer")

    def begin(self, w: Writer, tile: Value) -> list[Fetched]:
        """Fetch scales, bias and residual of this thread's outputs, to arrive while the tile is computed.

        Where a thread has more than two outputs it waits with that until the sums have left their registers.
        """
        return self._fetch(w, tile) if len(self._turns) == 1 else []

    def store(self, w: Writer, sums: list[RegisterTile], tile: Value, fetched: list[Fetched]) -> None:
        """Hand this warp's sums over, meet, add in the order of the warps, and store."""
        with w.when(self._place.quad * 2 < self._spec.tokens):
            self._hand_over(w, sums)
        fetched = fetched or self._fetch(w, tile)
        if self._cluster > 1:
            w.cluster_arrive()
            w.cluster_wait()
        else:
            w.barrier(id=0, threads=self._threads)
        with w.when(self._place.rank == 0):
            for first, known in zip(self._turns, fetched, strict=True):
                with w.when(self._place.thread < self._pairs - first):
                    self._store(w, *self._output(first, tile), known)
        self._buffer.assign(self._buffer ^ self._array.stride)

    @property
    def _turns(self) -> range:
        """A thread stores two neighbouring columns of a token, and again so many threads on, until all are stored."""
        return range(0, self._pairs, self._threads)

    def _output(self, first: int, tile: Value) -> tuple[Value, Value, Value]:
        """Token, column and place in a warp's sums (bytes) of what this thread stores in the turn from `first` on."""
        tokens = self._spec.tokens
        index = self._place.thread + first
        token, pair = index & (tokens - 1), index >> (tokens.bit_length() - 1)
        return token, tile * self._weights.columns + pair * 2, (pair * (2 * tokens) + token) * 4

    def _fetch(self, w: Writer, tile: Value) -> list[Fetched]:
        fetched = []
        for first in self._turns:
            token, column, _ = self._output(first, tile)
            residual: list[Value] | list[None] = [None, None]
            if self._functions.source is not None:
                owned = (self._place.thread < self._pairs - first) & (token < self._m)
                residual = [self._load_residual(w, token, column + which, owned) for which in range(2)]
            rows = self._functions.rows(w, token, apart=0) if self._functions.uses_rows else RowPair()
            fetched.append(Fetched(rows, self._functions.columns(w, column), tuple(residual)))
        return fetched

    def _hand_over(self, w: Writer, sums: list[RegisterTile]) -> None:
        local = self._cluster == 1
        # [unit][column][token]: a lane's two sums of an instruction are two tokens, next to each other.
        lane = (self._weights.lane_column() * self._spec.tokens + self._place.quad * 2) * 4
        unit = self._place.unit * self._unit_bytes
        address = w.shared_base + self._array.offset + self._buffer + unit + lane
        if not local:
            address = w.cluster_address(address, 0)
        for registers, columns in zip(sums, self._weights.sum_columns(), strict=True):
            for column, (low, high) in zip(columns, (registers[:2], registers[2:]), strict=True):
                where = {"address": address, "offset": column * self._spec.tokens * 4}
                if self._spec.tokens == 1:
                    store_one = w.isa.memory.store_shared_f32_at if local else w.ptx.memory.store_dsmem_f32_at
                    store_one(**where, value=low)
                else:
                    store_two = w.isa.memory.store_shared_f32x2_at if local else w.ptx.memory.store_dsmem_f32x2_at
                    store_two(**where, low=low, high=high)

    def _store(self, w: Writer, token: Value, column: Value, place: Value, known: Fetched) -> None:
        source = w.shared_base + self._array.offset + self._buffer + place
        start = self._d + w.widen_multiply(token, self._pitch) * self._spec.out_dtype.bytes
        for which in range(2):
            offset = which * self._spec.tokens * 4
            parts = [
                w.isa.memory.load_shared_f32_at(address=source, offset=unit * self._unit_bytes + offset)
                for unit in range(self._units)
            ]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            value = self._functions.apply(w, total, known.columns, which, known.rows, 0, known.residual[which])
            here = column + which
            address = (start + w.widen_multiply(here, self._spec.out_dtype.bytes)).retyped(GMEM)
            valid = (here < self._n) & (token < self._m)
            store_element(w, self._spec.out_dtype, address=address, value=value, valid=valid)

    def _load_residual(self, w: Writer, token: Value, column: Value, owned: Value) -> Value:
        """Load an element of the residual, which has the output's type; 0 outside."""
        dtype = self._spec.out_dtype
        start = self._residual + w.widen_multiply(token, self._residual_pitch) * dtype.bytes
        address = (start + w.widen_multiply(column, dtype.bytes)).retyped(GMEM)
        valid = owned & (column < self._n)
        # Not the read-only loads of the bias: the residual may be the output itself.
        if dtype == F32:
            loaded = w.new(B32, "residual", uniform=False)
            w.ptx.stream.load_b32(v0=loaded, address=address, offset=0, valid=valid)
            return loaded.retyped(F32_REGISTER)
        narrow, _ = w.isa.convert.unpack(packed=w.ptx.stream.load_b16(address=address, offset=0, valid=valid))
        widen = w.isa.convert.widen_bf16 if dtype == BF16 else w.isa.convert.widen_f16
        return widen(narrow=narrow)  # type: ignore[no-any-return]


def _row_pitch(matrix: Matrix) -> int:
    return counted(f"{matrix.name}'s row pitch", matrix.pitch // matrix.dtype.bytes)
