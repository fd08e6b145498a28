"""The warps' sums become the result: once a tile, through shared memory, in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.drivers.streaming import Place
from tilekit.dtypes import BF16, F32
from tilekit.epilogue.functions import ColumnPair, Elementwise
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.gemv.weights import Weights


@dataclass(frozen=True)
class Output:
    """Two neighbouring columns of one token, of which a thread stores the result.

    Attributes
    ----------
    owned
        Whether there are such columns in the tile.
    token, column
        Where in the output.
    source
        Offset in the sums of a warp, bytes.
    functions
        The columns' bias.
    """

    owned: Value
    token: Value
    column: Value
    source: Value
    functions: ColumnPair


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
        self._threads = 32 * warps
        self._units = warps * cluster
        self._cluster = cluster
        self._m = m
        self._n = n
        self._d = w.parameter("d", GMEM)
        self._pitch = w.parameter("d_pitch", U32)
        self._unit_bytes = weights.columns * spec.tokens * 4
        self._array = w.shared.allocate("sums", size=self._units * self._unit_bytes, count=2)

    def bind(self, w: Writer, place: Place) -> None:
        """Prepare a thread's addresses, and fetch the scale."""
        self._functions.bind(w)
        self._place = place
        self._read = w.variable(U32, 0, "buffer")
        # [unit][column][token]: a lane's two sums of an instruction are two tokens, next to each other.
        lane = (self._weights.lane_column() * self._spec.tokens + place.quad * 2) * 4
        address = w.shared_base + self._array.offset + place.unit * self._unit_bytes + lane
        self._write = w.ptx.cluster.map_address(address=address, rank=0) if self._cluster > 1 else address

    def begin(self, w: Writer, tile: Value) -> list[Output]:
        """Fetch the bias of this thread's outputs; it arrives while the tile is computed."""
        outputs = []
        pairs = self._weights.columns // 2 * self._spec.tokens
        for first in range(0, pairs, self._threads):
            index = self._place.thread + first
            token, pair = index & (self._spec.tokens - 1), index >> (self._spec.tokens.bit_length() - 1)
            column = tile * self._weights.columns + pair * 2
            outputs.append(
                Output(
                    owned=index < pairs,
                    token=token,
                    column=column,
                    source=(pair * (2 * self._spec.tokens) + token) * 4,
                    functions=self._functions.columns(w, column),
                )
            )
        return outputs

    def store(self, w: Writer, sums: list[RegisterTile], outputs: list[Output]) -> None:
        """Hand this warp's sums over, meet, add in the order of the warps, and store."""
        with w.when(self._place.quad * 2 < self._spec.tokens):
            self._hand_over(w, sums)
        if self._cluster > 1:
            w.ptx.cluster.arrive()
            w.ptx.cluster.wait()
        else:
            w.ptx.barrier.sync(id=0, threads=self._threads)
        with w.when(self._place.rank == 0):
            for output in outputs:
                with w.when(output.owned):
                    self._store(w, output)
        self._read.assign(self._read ^ self._array.stride)

    def _hand_over(self, w: Writer, sums: list[RegisterTile]) -> None:
        address = self._write + self._read
        local = self._cluster == 1
        for registers, columns in zip(sums, self._weights.sum_columns(), strict=True):
            for column, (low, high) in zip(columns, (registers[:2], registers[2:]), strict=True):
                where = {"address": address, "offset": column * self._spec.tokens * 4}
                if self._spec.tokens == 1:
                    store_one = w.ptx.gemv.store_partial if local else w.ptx.gemv.store_remote
                    store_one(**where, value=low)
                else:
                    store_two = w.ptx.gemv.store_partials if local else w.ptx.gemv.store_remotes
                    store_two(**where, low=low, high=high)

    def _store(self, w: Writer, output: Output) -> None:
        source = w.shared_base + self._array.offset + self._read + output.source
        start = self._d + w.widen_multiply(output.token, self._pitch) * self._spec.out_dtype.bytes
        for which in range(2):
            offset = which * self._spec.tokens * 4
            parts = [
                w.ptx.gemv.load_partial(address=source, offset=unit * self._unit_bytes + offset)
                for unit in range(self._units)
            ]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            value = self._functions.apply(w, total, output.functions, which)
            column = output.column + which
            address = (start + w.widen_multiply(column, self._spec.out_dtype.bytes)).retyped(GMEM)
            self._store_value(w, address, value, (column < self._n) & (output.token < self._m))

    def _store_value(self, w: Writer, address: Value, value: Value, valid: Value) -> None:
        if self._spec.out_dtype == F32:
            w.ptx.memory.store_global_f32(address=address, value=value, valid=valid)
            return
        pack = w.ptx.convert.pack_bf16 if self._spec.out_dtype == BF16 else w.ptx.convert.pack_f16
        narrow, _ = w.ptx.convert.unpack(packed=pack(low=value, high=0.0))
        w.ptx.memory.store_global_b16(address=address, value=narrow, valid=valid)
