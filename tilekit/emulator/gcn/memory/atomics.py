"""Atomic operations: lanes, and waves, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.kinds import Atomic

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.state import BatchState

__all__ = ["TYPES", "apply_atomic", "operate"]

Array = npt.NDArray[Any]
TYPES: dict[str, Any] = {
    "u4": np.uint32, "i4": np.int32, "f4": np.float32, "u8": np.uint64, "i8": np.int64, "f8": np.float64,
    "pair_f16": np.float16, "pair_bf16": ml_dtypes.bfloat16,
}  # fmt: skip
"""NumPy types by the names that forms have for them."""


def operate(operation: str, old: Any, value: Any, compared: Any) -> Any:
    """What an atomic operation leaves of an old value."""
    match operation:
        case "add":
            return old + value
        case "sub":
            return old - value
        case "swap":
            return value
        case "cmpswap":
            return value if old == compared else old
        case "min":
            return min(old, value)
        case "max":
            return max(old, value)
        case "and":
            return old & value
        case "or":
            return old | value
        case "xor":
            return old ^ value
        case "inc":
            return type(old)(0) if old >= value else old + type(old)(1)
    return value if old == 0 or old > value else old - type(old)(1)


def apply_atomic(
    batch: BatchState, i: Instruction, form: Atomic, data: Array, offsets: Array, values: Array, lanes: Array | None,
    before: Array,
) -> None:  # fmt: skip
    """Change `data` at the lanes' offsets, and leave in `before` what was there.

    Parameters
    ----------
    values
        uint32[registers, waves, 64]: the operand, and behind it what to compare with.
    """
    size, registers = form.size, form.registers
    chosen = np.ones(offsets.shape, np.bool_) if lanes is None else lanes
    where = np.nonzero(chosen)
    if not len(where[0]):
        return
    if (offsets[chosen] % size).any():
        raise MemoryFault("an atomic at an address that is no multiple of its size", where=batch.where(i, 0))
    kind = TYPES[form.kind]
    target = data.view(kind)
    index = offsets[where] // np.dtype(kind).itemsize
    words = np.ascontiguousarray(values[:registers, where[0], where[1]].T)
    operands = words.view(kind).reshape(len(index), -1)
    if form.kind.startswith("pair"):
        _pairs(target, index, operands, before, where)
        batch.machine.events += 1
        return
    compared = None
    if form.compares:
        compared = np.ascontiguousarray(values[registers : 2 * registers, where[0], where[1]].T).view(kind)[:, 0]
    olds = np.empty(len(index), kind)
    changed = False
    for place, (at, value) in enumerate(zip(index.tolist(), operands[:, 0], strict=True)):
        old = target[at]
        olds[place] = old
        new = operate(form.operation, old, value, None if compared is None else compared[place])
        if new != old:
            changed = True
            target[at] = new
    before[:, where[0], where[1]] = olds.view(np.uint32).reshape(len(index), registers).T
    if changed:
        batch.machine.events += 1


def _pairs(target: Array, index: Array, operands: Array, before: Array, where: Any) -> None:
    """Add two halves at once."""
    for place, at in enumerate(index.tolist()):
        before[0, where[0][place], where[1][place]] = target[at : at + 2].view(np.uint32)[0]
        for half in range(2):
            target[at + half] = target[at + half] + operands[place, half]
