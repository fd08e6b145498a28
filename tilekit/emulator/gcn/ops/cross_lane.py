"""Instructions that move values between lanes, and between lanes and scalar registers."""

from __future__ import annotations

from typing import Any

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.ops.table import op


@op("v_readfirstlane_b32")
def read_first_lane(e: Emitter, i: Instruction) -> None:
    """The value of the first active lane, or of lane 0 where none is."""
    e.begin(i, i.operands[1:])
    e.put_scalar(i.operands[0], f"first_lane(U[{e.vector(i.operands[1], 1)}], {e.lanes})")


@op("v_readlane_b32")
def read_lane(e: Emitter, i: Instruction) -> None:
    """The value of one lane, active or not."""
    e.begin(i, i.operands[1:])
    e.put_scalar(i.operands[0], f"lane_of(U[{e.vector(i.operands[1], 1)}], {e.scalar(i.operands[2])})")


@op("v_writelane_b32")
def write_lane(e: Emitter, i: Instruction) -> None:
    """Set the value of one lane, active or not."""
    e.begin(i, i.operands[1:])
    number = e.vector(i.operands[0], 1)
    e.add(f"set_lane(U[{number}], {e.scalar(i.operands[2])}, {e.scalar(i.operands[1])})")


@op("v_permlane16_swap_b32", "v_permlane32_swap_b32")
def swap_lanes(e: Emitter, i: Instruction) -> None:
    """Exchange lanes of two registers: odd rows of the first with even rows of the second."""
    a, b = e.vector(i.operands[0], 1), e.vector(i.operands[1], 1)
    e.begin(i, i.operands[1:])
    rows = 16 if "16" in i.name else 32
    for name in ("bound_ctrl", "fi"):
        if i.modifiers.get(name):
            raise unsupported(i, f"with {name} is not executed")
    e.add(f"x, y = swapped(U[{a}], U[{b}], {rows})")
    e.row(a, "x")
    e.row(b, "y")


@op("ds_bpermute_b32", "ds_permute_b32")
def permute(e: Emitter, i: Instruction) -> None:
    """Read another lane's value, or give one's own to another lane; counts as an LDS operation."""
    target, address, data = (e.vector(operand, 1) for operand in i.operands[:3])
    offset = i.modifiers.get("offset", 0)
    e.begin(i, i.operands[1:])
    back = "pull" if "bpermute" in i.name else "push"
    e.add(f"t = {back}(U[{address}] + {offset}, U[{data}], {e.lanes})")
    e.add(f"B.queue_register(1, {e.name(i, 'i')}, {target}, t, {e.lanes})")


@op("ds_swizzle_b32")
def swizzle(e: Emitter, i: Instruction) -> None:
    """Read lanes by a pattern that the instruction holds."""
    target, data = e.vector(i.operands[0], 1), e.vector(i.operands[1], 1)
    offset = i.modifiers.get("offset", 0)
    if not isinstance(offset, int):
        offset = _pattern(i, offset)
    e.begin(i, i.operands[1:])
    e.add(f"t = swizzled(U[{data}], {offset}, {e.lanes})")
    e.add(f"B.queue_register(1, {e.name(i, 'i')}, {target}, t, {e.lanes})")


def _pattern(i: Instruction, call: Any) -> Any:
    """The number that a ``swizzle(...)`` stands for."""
    mode, *values = call.arguments
    if mode == "QUAD_PERM":
        return 0x8000 | sum(value << (2 * place) for place, value in enumerate(values))
    if mode == "BITMASK_PERM":
        and_, or_, xor = 0, 0, 0
        for place, letter in enumerate(reversed(values[0])):
            and_ |= (letter in "pi") << place
            or_ |= (letter == "1") << place
            xor |= (letter == "i") << place
        return and_ | or_ << 5 | xor << 10
    if mode == "SWAP":
        return 0x1F | values[0] << 10
    if mode == "REVERSE":
        return 0x1F | (values[0] - 1) << 10
    if mode == "BROADCAST":
        return (0x1F & ~(values[0] - 1)) | values[1] << 5
    raise unsupported(i, f"has the unknown pattern {mode}")
