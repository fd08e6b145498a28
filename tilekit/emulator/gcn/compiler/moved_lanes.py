"""DPP: the first source of an instruction comes from other lanes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Register

if TYPE_CHECKING:
    from tilekit.emulator.gcn.compiler.emitter import Emitter

__all__ = ["begin_dpp", "lane_sources"]

_CONTROLS = (
    "quad_perm", "row_shl", "row_shr", "row_ror", "wave_shl", "wave_shr", "wave_rol", "wave_ror", "row_mirror",
    "row_half_mirror", "row_bcast", "row_newbcast",
)  # fmt: skip


@lru_cache(256)
def lane_sources(control: str, value: Any) -> Any:
    """The lane that each lane reads, -1 where there is none: 64 numbers."""
    lane = np.arange(64)
    row, within = lane & ~15, lane & 15
    if control == "quad_perm":
        return (lane & ~3) + np.array(value)[lane & 3]
    if control == "row_shl":
        return np.where(within + value < 16, lane + value, -1)
    if control == "row_shr":
        return np.where(within >= value, lane - value, -1)
    if control == "row_ror":
        return row + (within - value) % 16
    if control == "wave_shl":
        return np.where(lane < 63, lane + 1, -1)
    if control == "wave_shr":
        return lane - 1
    if control == "wave_rol":
        return (lane + 1) % 64
    if control == "wave_ror":
        return (lane - 1) % 64
    if control == "row_mirror":
        return row + 15 - within
    if control == "row_half_mirror":
        return (lane & ~7) + 7 - (lane & 7)
    if control == "row_newbcast":
        return row + value
    return np.where(lane >= 16, row - 1, -1) if value == 15 else np.where(lane >= 32, (lane & ~31) - 1, -1)


def begin_dpp(e: Emitter) -> None:
    """Move the lanes of the first source, and narrow the lanes that are written."""
    modifiers = e.instruction.modifiers
    controls = [name for name in _CONTROLS if name in modifiers]
    first = e.sources[0]
    if len(controls) != 1 or not isinstance(first, Register) or first.file == "s":
        raise unsupported(e.instruction, "needs one way of moving lanes, and a vector register to move")
    control, value = controls[0], modifiers[controls[0]]
    _check(e, control, value)
    lanes = lane_sources(control, tuple(value) if isinstance(value, list) else value)
    writes = np.ones(64, np.bool_)
    lane = np.arange(64)
    writes &= modifiers.get("row_mask", 15) >> (lane // 16) & 1 == 1
    writes &= modifiers.get("bank_mask", 15) >> (lane % 16 // 4) & 1 == 1
    known = lanes >= 0
    zeroes = modifiers.get("bound_ctrl") in (0, 1, True) and "bound_ctrl" in modifiers
    index = e.name(np.maximum(lanes, 0), "L")
    row = f"U[{e.vector(first)}]"
    e.dpp = control
    if not e.masked:
        e.add(f"moved = {row}[:, {index}]")
        if not known.all():
            if zeroes:
                e.add(f"moved[:, {e.name(~known, 'L')}] = 0")
            else:
                writes &= known
        if not writes.all():
            e.lanes = e.name(writes, "L")
        return
    outside = e.name(known, "L")
    e.add(f"reached = E[:, {index}] & {outside}")
    e.add(f"moved = where(reached, {row}[:, {index}], 0)")
    e.add(f"written = E & {e.name(writes, 'L')}" + ("" if zeroes else " & reached"))
    e.lanes = "written"


def _check(e: Emitter, control: str, value: Any) -> None:
    legal = True
    if control == "quad_perm":
        legal = isinstance(value, list) and len(value) == 4 and all(0 <= v <= 3 for v in value)
    elif control in ("row_shl", "row_shr", "row_ror"):
        legal = isinstance(value, int) and 1 <= value <= 15
    elif control.startswith("wave"):
        legal = value == 1
    elif control == "row_bcast":
        legal = value in (15, 31)
    elif control == "row_newbcast":
        legal = isinstance(value, int) and 0 <= value <= 15
    if not legal:
        raise unsupported(e.instruction, f"cannot move lanes by {control}:{value}")
