"""Where waves are when nothing goes on: by role and wave, at which instruction, of which component."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilekit.emulator.core.errors import describe
from tilekit.emulator.gcn.execution.state import BatchState

if TYPE_CHECKING:
    from tilekit.emulator.gcn.compiler.program import Program
    from tilekit.emulator.gcn.execution.workgroup import Gang

__all__ = ["whereabouts"]

_NEARBY = 16
"""Blocks ahead in which the component of a loop is looked for."""


def whereabouts(gangs: Iterable[Gang], program: Program) -> str:
    """Return a line for the waves of one number that are at one place, and the workgroups that they are of."""
    places: dict[tuple[str, str], list[int]] = {}
    for gang in gangs:
        for batch in gang.batches:
            doing = _doing(batch, program)
            for wave in batch.waves:
                actor = wave.order.actor
                places.setdefault((str(actor), doing), []).append(actor.cluster)
        for workgroup in gang.workgroups:
            for wave in workgroup.waves:
                if wave.ended:
                    places.setdefault((str(wave.order.actor), "has ended"), []).append(workgroup.number)
    return "\n".join(f"{_workgroups(groups)}, {who}: {doing}" for (who, doing), groups in sorted(places.items()))


def _doing(batch: BatchState, program: Program) -> str:
    """What waves do, in words: with the component of the loop where the instruction itself names none."""
    if batch.waiting is not None:
        return f"waits at {describe(batch.waiting)}"
    first = program.first_of(batch.block)
    block, text = batch.block, f"runs at {describe(first)}"
    for _ in range(_NEARBY):
        for i in program.blocks[block].instructions:
            if i.provenance:
                return text if i is first else f"{text}, before {describe(i)}"
        block = program.blocks[block].taken if program.blocks[block].taken >= 0 else program.blocks[block].following
        if block < 0:
            break
    return text


def _workgroups(groups: list[int]) -> str:
    numbers = sorted(set(groups))
    if len(numbers) == 1:
        return f"workgroup {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"workgroups {numbers[0]}-{numbers[-1]}"
    shown = ", ".join(map(str, numbers[:8]))
    return f"workgroups {shown}" + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
