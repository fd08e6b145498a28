"""The rules of `lint` that follow values and paths: small dataflow problems over a kernel's blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilekit.emulator.ptx.compiler.control_flow import ControlFlow
from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.syntax import AddressOperand, Immediate, RegisterOperand, SpecialRegister

__all__ = ["divergent_aligned", "missing_proxy_fences"]


def missing_proxy_fences(code: Sequence[Decoded], flow: ControlFlow) -> Iterator[tuple[Decoded, Decoded]]:
    """(reader, store): reads of shared memory by the async proxy to which every path comes from an unfenced store.

    Where copies fill shared memory, a wgmma does not count, nor a store to a fixed address: addresses are not compared.
    """
    filled = any(decoded.form.opcode == "cp" and decoded.get("dst").startswith("shared") for decoded in code)
    blocks = flow.blocks
    # The latest unfenced store on the way into each block: None is unknown yet, -1 is that some path has none.
    before: list[int | None] = [None] * len(blocks)
    before[0] = -1
    work = [0]
    while work:
        block = blocks[work.pop()]
        state = before[block.index]
        assert state is not None
        for position in range(block.start, block.end):
            state = _after(code[position], position, state, filled)
        for successor in block.successors:
            if successor < len(blocks):
                known = before[successor]
                merged = state if known is None else -1 if -1 in (known, state) else min(known, state)
                if merged != known:
                    before[successor] = merged
                    work.append(successor)
    for block in blocks:
        state = before[block.index]
        if state is None:
            continue
        for position in range(block.start, block.end):
            decoded = code[position]
            if state >= 0 and _reads_as_proxy(decoded, filled):
                yield decoded, code[state]
                state = -1  # one remark a store
            state = _after(decoded, position, state, filled)


def _after(decoded: Decoded, position: int, state: int, filled: bool) -> int:
    """The latest unfenced store behind an instruction."""
    form = decoded.form
    if form.opcode == "fence" and decoded.get("what").startswith("async"):
        return -1
    if form.opcode == "stmatrix" or (form.opcode == "st" and decoded.get("space") in ("shared", "shared::cta")):
        address = decoded.instruction.operands[0]
        fixed = isinstance(address, AddressOperand) and not isinstance(address.base, RegisterOperand)
        return state if fixed and filled else position
    return state


def _reads_as_proxy(decoded: Decoded, filled: bool) -> bool:
    if decoded.form.opcode == "wgmma":
        return decoded["op"] == "mma_async" and not filled
    return decoded.form.opcode == "cp" and decoded.get("complete") == "bulk_group"


_COPIES = ("mov", "cvt")


def divergent_aligned(code: Sequence[Decoded]) -> Iterator[tuple[Decoded, str]]:
    """``.aligned`` instructions guarded by a predicate that certainly differs between lanes, with what makes it so."""
    sources = _lane_sources(code)
    reasons: dict[int, str] = {}
    others: set[int] = set()
    for decoded in code:
        reason = _splits_a_warp(decoded, sources)
        for register in decoded.defs:
            if register.type == "pred":
                if reason:
                    reasons[register.number] = reason
                else:
                    others.add(register.number)
    for decoded in code:
        guard = decoded.guard
        if guard is None or guard.register.number in others or guard.register.number not in reasons:
            continue
        if decoded.aligned:
            yield decoded, f"{guard.register.name} is {reasons[guard.register.number]}"


def _lane_sources(code: Sequence[Decoded]) -> dict[int, str]:
    """Registers that only ever hold the lane's number, or ``%tid.x``, and which of the two."""
    found: dict[int, str] = {}
    wrong: set[int] = set()
    changed = True
    while changed:
        changed = False
        for decoded in code:
            kind = _lane_value(decoded, found)
            for register in decoded.defs:
                number = register.number
                if number in wrong:
                    continue
                if kind and found.get(number, kind) == kind and decoded.guard is None:
                    changed |= number not in found
                    found[number] = kind
                elif number in found or not _may_become_lane(decoded):
                    wrong.add(number)
                    changed |= found.pop(number, None) is not None
    return found


def _may_become_lane(decoded: Decoded) -> bool:
    return decoded.form.opcode in (*_COPIES, "and")


def _lane_value(decoded: Decoded, known: dict[int, str]) -> str:
    """``the lane`` or ``the thread`` when that is what an instruction's result is, else empty."""
    operands = decoded.operands
    if decoded.form.opcode in _COPIES and len(operands) == 2:
        source = operands[1]
        if isinstance(source, SpecialRegister):
            return {"%laneid": "the lane", "%tid.x": "the thread"}.get(source.name, "")
        return known.get(source.register.number, "") if isinstance(source, RegisterOperand) else ""
    if decoded.form.opcode == "and" and len(operands) == 3 and operands[2] == Immediate(31):
        source = operands[1]
        if isinstance(source, RegisterOperand) and source.register.number in known:
            return "the lane"
    return ""


def _splits_a_warp(decoded: Decoded, sources: dict[int, str]) -> str:
    """Why a predicate that an instruction sets differs between lanes of some warp; empty when that is not certain."""
    if decoded.form.opcode == "elect":
        return "elect.sync's"
    if decoded.form.opcode != "setp" or len(decoded.operands) != 3 or decoded.guard is not None:
        return ""
    _, left, right = decoded.operands
    if not isinstance(left, RegisterOperand) or not isinstance(right, Immediate):
        return ""
    source = sources.get(left.register.number, "")
    value, compare = right.value, decoded.get("compare")
    if not source or not 0 <= value < (32 if source == "the lane" else 1024):
        return ""
    if compare in ("eq", "ne"):
        return f"a comparison of {source} with {value}"
    edge = value % 32 if compare in ("lt", "ge", "lo", "hs") else (value + 1) % 32
    return f"a comparison of {source} with {value}" if edge else ""
