"""The tokens in registers, permuted along K as the weights are; L1 holds them for all warps."""

from __future__ import annotations

from tilekit.assembly.types import B32, GMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.drivers.streaming import Place, Slots
from tilekit.kernels.gemv.chunk import CHUNK_REGISTERS, load_chunk
from tilekit.kernels.gemv.spec import GemvSpec, counted
from tilekit.kernels.gemv.weights import Shape, remaining


class Tokens:
    """The rows of A: lane (g, t) holds, of token g, the elements of K that it holds of the weights.

    With fewer than eight tokens the lanes of the others load a token again, whose sums go nowhere.

    Parameters
    ----------
    w
        The writer; address and pitch become kernel parameters.
    spec
        Types, tokens, width of the loads.
    shape, slots
        The weights' k-block, and the ring of slots.
    m
        Tokens there are.
    """

    def __init__(self, w: Writer, spec: GemvSpec, *, shape: Shape, slots: Slots, m: Value) -> None:
        self.spec = spec
        self.slots = slots
        self._shape = shape
        self._m = m
        self._base = w.parameter("a", GMEM, lambda call: call.address("a"))
        self._pitch = w.parameter("a_pitch", U32, lambda call: counted("a's row pitch", call.matrix("a").pitch))

    def bind(self, w: Writer, place: Place) -> None:
        """Prepare a thread's registers; once a kernel."""
        token = w.minimum(place.group & (self.spec.tokens - 1), self._m - 1)
        along = w.widen_multiply(place.k, self.spec.a_dtype.bytes)
        self._first = self._base + w.widen_multiply(token, self._pitch) + along
        self._pointer = w.new(GMEM, "tokens", uniform=False)
        self._slots = [
            [w.tile(B32, CHUNK_REGISTERS, "x_") for _ in range(self._shape.chunks)] for _ in range(self.slots.count)
        ]

    def begin(self, w: Writer) -> None:
        """Point at what this lane reads first."""
        self._pointer.assign(self._first)

    def advance(self, w: Writer) -> None:
        """Go on by one step along K."""
        self._pointer.assign(self._pointer + self.slots.step * self.spec.a_dtype.bytes)

    def load(self, w: Writer, slot: int, left: Value) -> None:
        """Start the loads of a slot; `left` elements of K remain for this lane, what lies beyond becomes zero."""
        size = self.spec.a_dtype.bytes
        for chunk, registers in enumerate(self._slots[slot]):
            first = slot * self.slots.stride + chunk * self._shape.k_block // self._shape.chunks
            load_chunk(
                w,
                registers,
                self._pointer,
                offset=first * size,
                access=self.spec.a_access,
                valid=remaining(left, first, size),
                l2_bytes=None,
            )

    def slot(self, slot: int) -> list[RegisterTile]:
        """The chunks of a slot."""
        return self._slots[slot]
