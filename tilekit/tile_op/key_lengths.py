"""How many of a batch entry's keys are in use, where every entry has its own number."""

from __future__ import annotations

from tilekit.assembly.fit import component
from tilekit.assembly.types import GMEM, S32, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer


@component
class KeyLengths:
    """A length a batch entry, s32 in device memory.

    Parameters
    ----------
    w
        The writer; the lengths' address is a kernel parameter.
    """

    def __init__(self, w: Writer) -> None:
        self.address = w.parameter("key_lengths", GMEM, lambda call: call.address("key_lengths"))

    def of(self, w: Writer, batch: Value, most: Value) -> Value:
        """The length of batch entry `batch`, not below 0 and not above `most`; u32, the same in all lanes."""
        address = (self.address + w.widen_multiply(batch, 4)).retyped(GMEM)
        found = w.isa.memory.load_global_u32(address=address, valid=batch >= 0)
        length = found if w.divergent else w.broadcast(found, lane=0)
        length = w.minimum(length.retyped(S32), most.retyped(S32))
        return w.select(length > 0, length, 0, S32).retyped(U32)
