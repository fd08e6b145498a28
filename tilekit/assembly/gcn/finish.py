"""From a kernel whose registers have no place to its lines of text: places, waits, wait states."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.errors import TraceError
from tilekit.assembly.gcn.allocation import Allocation, allocate
from tilekit.assembly.gcn.code import Branch, Code, Instruction, Label
from tilekit.assembly.gcn.copies import without_idle_copies
from tilekit.assembly.gcn.hazards import nops, wait_states
from tilekit.assembly.gcn.waits import WaitCount, waits

__all__ = ["Counts", "Finished", "finish"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a kernel's descriptor says of its registers, and what was put in.

    Attributes
    ----------
    next_free_vgpr, accum_offset, next_free_sgpr
        As the directives ``.amdhsa_…`` want them.
    vgprs, agprs, sgprs
        Registers that are used.
    waves_per_simd
        Waves that a SIMD holds, as far as vector registers go.
    waits, wait_states
        Lines ``s_waitcnt``, and wait states of the ``s_nop``.
    """

    next_free_vgpr: int
    accum_offset: int
    next_free_sgpr: int
    vgprs: int
    agprs: int
    sgprs: int
    waves_per_simd: int
    waits: int
    wait_states: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A kernel's text.

    Attributes
    ----------
    lines
        Text without indentation, and the instruction that it is; None for a label. What was put in has the origin, role
        and depth of what it is there for.
    allocation, counts
        Where registers are, and how many there are of what.
    """

    lines: list[tuple[str, Instruction | None]]
    allocation: Allocation
    counts: Counts


def finish(code: Code, *, chip: str, waves_per_simd: int | None = None) -> Finished:
    """Give registers their places, and put in waits and wait states.

    Parameters
    ----------
    code
        The kernel, with ``s_endpgm`` at its end.
    chip
        ``gfx942`` or ``gfx950``: whose wait states.
    waves_per_simd
        Waves that a SIMD must be able to hold; None for one.

    Raises
    ------
    RegisterError
        Where more registers are needed at once than there may be (``TK-REG-001``).
    """
    allocation = allocate(code, waves_per_simd=waves_per_simd)
    code = without_idle_copies(code, allocation.places)
    spelled = [_spelled(item, allocation) for item in waits(code, allocation)]
    missing = wait_states([text for text, _ in spelled], allocation.accum_offset, chip)
    lines: list[tuple[str, Instruction | None]] = []
    for index, (text, item) in enumerate(spelled):
        if index in missing:
            assert item is not None
            lines += [(nop, _beside(item, nop)) for nop in nops(missing[index])]
        lines.append((text, item))
    counts = Counts(
        allocation.next_free_vgpr,
        allocation.accum_offset,
        allocation.next_free_sgpr,
        allocation.vgprs,
        allocation.agprs,
        allocation.sgprs,
        allocation.waves_per_simd,
        sum(text.startswith("s_waitcnt") for text, _ in spelled),
        sum(missing.values()),
    )
    return Finished(lines, allocation, counts)


def _spelled(item: Instruction | Label | Branch | WaitCount, allocation: Allocation) -> tuple[str, Instruction | None]:
    if isinstance(item, Label):
        return f"{item.name}:", None
    if isinstance(item, Branch):
        name = "s_branch" if item.condition is None else f"s_cbranch_{item.condition}"
        text = f"{name} {item.target}"
        return text, Instruction(text, origin=item.origin)
    if isinstance(item, WaitCount):
        return item.text, Instruction(item.text, depth=item.depth, role=item.role, origin=item.origin)
    try:
        return item.text.format(*map(allocation.spell, item.operands)) if item.operands else item.text, item
    except KeyError as error:
        name = getattr(error.args[0], "name", error.args[0])
        raise TraceError(f"'{item.text}' spells {name}, which it neither reads nor writes") from error


def _beside(item: Instruction, text: str) -> Instruction:
    return Instruction(text, depth=item.depth, role=item.role, origin=item.origin)
