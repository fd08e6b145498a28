"""The way that a wave took through finished text, gone once more: does anything use what is still outstanding?

Registers and counters of each line are those that the emulator's reader finds in the text, not those of the passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilekit.emulator.gcn.compiler.effects import effects, queue_of
from tilekit.emulator.gcn.language.parser import parse
from tilekit.emulator.gcn.ops.control import counts


def too_early(lines: Sequence[str], branches: Iterable[bool], accum_offset: int) -> str | None:
    """Return the first line that needs a wait on the way whose conditional branches go so; None where there is none."""
    parsed = parse("\n".join(lines))
    outcomes = iter(branches)
    queues: list[list[tuple[int, bool]]] = [[], []]
    index = 0
    while True:
        i = parsed.instructions[index]
        index += 1
        if i.name == "s_endpgm":
            return None
        if i.name.startswith(("s_cbranch", "s_branch")):
            if i.name == "s_branch" or next(outcomes):
                index = parsed.labels[str(i.operands[0].name)]  # type: ignore[union-attr]
            continue
        if i.name == "s_waitcnt":
            for queue, count in zip(queues, counts(i), strict=True):
                if count == 0 or not any(scalar for _, scalar in queue):
                    del queue[: max(len(queue) - count, 0)]
            continue
        found, own = effects(i, accum_offset), queue_of(i)
        scalar = i.name.startswith("s_")
        for number, queue in enumerate(queues):
            for registers, unordered in queue:
                follows = number == own and not scalar and not unordered
                touched = found.reads | found.writes | (0 if follows else found.load)
                if registers & touched:
                    return i.text
        if own is not None:
            queues[own].append((found.load, scalar))
