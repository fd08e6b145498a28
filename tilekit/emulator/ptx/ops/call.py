"""Calls that are not expanded: procedures, pointers, CUDA's device runtime, the stack (PTX ISA 9.7.12, 9.7.17).

The lanes that call together return together. A call keeps what the fragment was doing (where it goes on, where it
meets its parent, the registers that the callee may overwrite when it is entered again) and gives the callee a frame of
its own in local memory, behind the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.compiler.control_flow import members
from tilekit.emulator.ptx.execution.device_runtime import RUNTIME_CALLS
from tilekit.emulator.ptx.execution.warp import SPLIT, Fragment, Mask
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import (
    AddressOperand,
    CallList,
    FunctionName,
    Immediate,
    Procedure,
    SymbolOperand,
)
from tilekit.emulator.ptx.ops.memory import scalar_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

_IN_CALL = -4
"""Join of a fragment in a call: it meets its parent only after it has returned."""
_FRAME_BYTES = _STACK_BYTES = 1 << 17
"""Local memory that a thread's calls may use, and its ``alloca``; CUDA's limit, `cudaLimitStackSize`, is smaller."""

Places = tuple[tuple[int, int], ...]
"""Address and size of variables in local memory."""


@dataclass(slots=True, eq=False)
class _Call:
    """What a fragment goes back to."""

    procedure: Procedure
    following: int
    join: int
    frame: int
    registers: tuple[tuple[int, Array], ...]
    results: Places
    stack_top: Any


def reserve(warp: Warp, size: int) -> None:
    """Make each lane's local memory hold at least this many bytes."""
    held = 0 if warp.local is None else warp.local.shape[1]
    if size > held:
        grown = np.full((32, -(-max(size, 2 * held, 16) // 16) * 16), 0xFF, np.uint8)
        if held:
            grown[:, :held] = warp.local
        warp.local = grown


def _copy(warp: Warp, fragment: Fragment, moves: list[tuple[int, int, int]]) -> None:
    """Copy bytes within the local memory of a fragment's lanes: (to, from, size)."""
    lanes = slice(None) if fragment.mask is None else fragment.mask
    for to, source, size in moves:
        warp.local[lanes, to : to + size] = warp.local[lanes, source : source + size]


def _enter(
    warp: Warp, fragment: Fragment, following: int, procedure: Procedure, behind: int, arguments: Places,
    results: Places, registers: tuple[tuple[int, Array], ...],
) -> None:  # fmt: skip
    """Make a fragment begin a procedure, with its frame ``behind`` bytes after the caller's."""
    given = tuple(size for _, size in arguments), tuple(size for _, size in results)
    wanted = tuple(v.size for v in procedure.parameters), tuple(v.size for v in procedure.results)
    if given != wanted:
        raise MemoryFault(
            f"a call passes {given[0]} bytes and expects {given[1]}; {procedure.name} takes {wanted[0]} and returns "
            f"{wanted[1]}",
            hint="the function pointer has another type than the call",
        )
    frame = -(-(fragment.frame + behind) // 16) * 16
    if frame + procedure.frame_bytes > warp.program.local_bytes + _FRAME_BYTES:
        raise MemoryFault(
            f"{len(fragment.calls)} calls deep in {procedure.name}, the frames of a thread take {_FRAME_BYTES} bytes",
            hint="does the recursion end?",
            details={"calls": len(fragment.calls), "bytes": frame + procedure.frame_bytes},
        )
    reserve(warp, frame + procedure.frame_bytes)
    _copy(
        warp,
        fragment,
        [(frame + v.offset, address, size) for v, (address, size) in zip(procedure.parameters, arguments, strict=True)],
    )
    kept = _Call(procedure, following, fragment.join, fragment.frame, registers, results, warp.stack_top)
    fragment.calls.append(kept)
    fragment.join, fragment.frame = _IN_CALL, frame
    fragment.block = warp.program.flow.block_at[procedure.start]


def call_procedure(
    warp: Warp, following: int, procedure: Procedure, behind: int, arguments: Places, results: Places,
    registers: tuple[tuple[int, Array], ...],
) -> int:  # fmt: skip
    """A direct call by the running fragment."""
    _enter(warp, warp.fragment, following, procedure, behind, arguments, results, registers)
    return SPLIT


def call_pointer(
    warp: Warp, following: int, pointers: Array, behind: int, arguments: Places, results: Places,
    registers: tuple[tuple[int, Array], ...],
) -> int:  # fmt: skip
    """An indirect call: lanes with different pointers part, and meet again after the call."""
    fragment = warp.fragment
    known = warp.program.procedure_of_address
    active = pointers if fragment.mask is None else pointers[fragment.mask]
    targets = sorted({int(pointer) for pointer in active})
    for target in targets:
        if target not in known:
            raise MemoryFault(f"call of {target:#x}, which is no function of this module", details={"address": target})
    if len(targets) == 1:
        return call_procedure(warp, following, known[targets[0]], behind, arguments, results, registers)
    same = [pointers == target if fragment.mask is None else fragment.mask & (pointers == target) for target in targets]
    blocks = [warp.program.flow.block_at[known[target].start] for target in targets]
    warp.part(list(zip(blocks, same, strict=True)), following)
    for target, side in zip(targets, warp.fragments[-len(targets) :], strict=True):
        _enter(warp, side, following, known[target], behind, arguments, results, registers)
    return SPLIT


def leave_procedure(warp: Warp, mask: Mask | None) -> int:
    """``ret`` of a procedure: go on behind the call."""
    fragment = warp.fragment
    call = fragment.calls.pop()
    sources = [fragment.frame + variable.offset for variable in call.procedure.results]
    _copy(warp, fragment, [(to, source, size) for (to, size), source in zip(call.results, sources, strict=True)])
    for number, old in call.registers:
        warp.arrays[number] = old if mask is None else np.where(mask, old, warp.arrays[number])
    if call.stack_top is not None:
        warp.stack_top = call.stack_top if mask is None else np.where(mask, call.stack_top, warp.stack_top)
    fragment.join, fragment.frame, fragment.block = call.join, call.frame, call.following
    if fragment.block == fragment.join:
        warp.reach_join()
    elif fragment.block == warp.exit_block:
        warp.exit_fragment()
    return SPLIT


@form("call", "uni?", "(a) F (a)", flow="call")
def call(g: BlockCompiler, i: Decoded) -> None:
    """``call`` of a procedure, of a function of the device runtime, or through a pointer."""
    results, target, arguments = i.operands
    assert isinstance(results, CallList)
    assert isinstance(arguments, CallList)
    if isinstance(target, FunctionName) and target.name in RUNTIME_CALLS:
        places = ", ".join(_place(g, item) for item in (*results.items, *arguments.items))
        g.place()
        g.effect(f"{g.helper(RUNTIME_CALLS[target.name])}(w, {g.mask()}, {places})")
        return
    g.place()
    saved = []
    if g.program.procedure_at(i.index) is not None:
        rows = g.program.tile_rows
        saved = [number for number in members(g.block.live_out) if number not in rows]
    behind = g.program.frame_bytes(i.index)
    registers = "".join(f"({number}, V[{number}]), " for number in saved)
    lists = ", ".join(
        "(" + "".join(f"({_place(g, item)}, {_size(item)}), " for item in operand.items) + ")"
        for operand in (arguments, results)
    )
    following = g.block.index + 1
    if isinstance(target, FunctionName):
        procedure = g.constant(g.program.procedures[target.name])
        what = f"{g.helper(call_procedure)}(w, {following}, {procedure}"
    else:
        what = f"{g.helper(call_pointer)}(w, {following}, {g.array(target, 'u64')}"
    g.leave(f"return {what}, {behind}, {lists}, ({registers}))")


def _place(g: BlockCompiler, operand: object) -> str:
    """Expression of a call variable's address in local memory."""
    assert isinstance(operand, SymbolOperand)
    return scalar_address(g, AddressOperand(operand))


def _size(operand: object) -> int:
    assert isinstance(operand, SymbolOperand)
    return operand.variable.size


# -- the stack -------------------------------------------------------------------------------------------------------


def _stack_base(warp: Warp) -> int:
    return -(-(warp.program.local_bytes + (_FRAME_BYTES if warp.program.procedures else 0)) // 16) * 16


def stack_top(warp: Warp) -> Array:
    """The first free byte of each lane's stack: behind all frames."""
    if warp.stack_top is None:
        warp.stack_top = np.full(32, _stack_base(warp), np.uint64)
    return np.asarray(warp.stack_top)


def allocate(warp: Warp, sizes: Array, align: int, mask: Mask | None) -> Array:
    """``alloca``: local memory of each lane, until the function returns."""
    top = stack_top(warp)
    start = (top + np.uint64(align - 1)) // np.uint64(align) * np.uint64(align)
    end = start + sizes.astype(np.uint64)
    last = int((end if mask is None else end[mask]).max())
    if last > _stack_base(warp) + _STACK_BYTES:
        raise MemoryFault(f"alloca of more than the {_STACK_BYTES} bytes that a thread's stack has")
    reserve(warp, last)
    warp.stack_top = end if mask is None else np.where(mask, end, top)
    return start


def restore(warp: Warp, values: Array, mask: Mask | None) -> None:
    """``stackrestore``."""
    wide = values.astype(np.uint64)
    warp.stack_top = wide if mask is None else np.where(mask, wide, stack_top(warp))


@form("alloca", "type=u32|u64", "d a #?", uniform=never)
def alloca(g: BlockCompiler, i: Decoded) -> None:
    """``alloca``: the address is one of local memory."""
    d, size = i.operands[:2]
    align = i.operands[2] if len(i.operands) > 2 else Immediate(8)
    assert isinstance(align, Immediate)
    if align.value < 1 or align.value & (align.value - 1):
        raise g.fail(f"an alignment of {align.value} bytes, which is no power of two")
    g.place()
    kind = i["type"]
    call = f"{g.helper(allocate)}(w, {g.array(size, kind)}, {max(align.value, 8)}, {g.mask()})"
    g.write(d, kind, f"{call}.astype(uint{kind[1:]})")


@form("stacksave", "type=u32|u64", "d", uniform=never)
def stack_save(g: BlockCompiler, i: Decoded) -> None:
    """``stacksave``."""
    kind = i["type"]
    g.write(i.operands[0], kind, f"{g.helper(stack_top)}(w).astype(uint{kind[1:]})")


@form("stackrestore", "type=u32|u64", "a")
def stack_restore(g: BlockCompiler, i: Decoded) -> None:
    """``stackrestore``."""
    g.place()
    g.effect(f"{g.helper(restore)}(w, {g.array(i.operands[0], i['type'])}, {g.mask()})")
