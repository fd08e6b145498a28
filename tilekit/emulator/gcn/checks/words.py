"""From a race to its finding, in the words of these machines: which wait, or which barrier, is missing."""

from __future__ import annotations

from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.checks.shadow import Access, Race
from tilekit.emulator.core.errors import Where, describe
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.gcn.checks.order import Queue

__all__ = ["explain"]


def explain(race: Race, symbols: SymbolMap, dynamic_base: int, kernel: str) -> Finding:
    """Return the finding for a race."""
    earlier, later = _queue(race.earlier), _queue(race.later)
    where = Where(kernel=kernel, actor=later.wave.actor, instruction=race.later.instruction)
    name = race.memory.name
    if race.memory.cta is not None:
        found = symbols.name(race.lo)
        name = f"LDS {found}" if found else f"LDS of workgroup {race.memory.cta}"
        place = f"{name}, bytes {race.lo:#x}..{race.hi:#x}"
    else:
        place = f"{name}, bytes {race.lo - race.memory.base:#x}..{race.hi - race.memory.base:#x}"
    lines = (_side(race.earlier, earlier), _side(race.later, later))
    return Finding("race", place, lines, _hint(race, earlier, later), where, race)


def _queue(access: Access) -> Queue:
    party = access.party
    assert isinstance(party, Queue)
    return party


def _side(access: Access, queue: Queue) -> str:
    kind = ("atomic " if access.atomic else "") + ("write" if access.write else "read")
    actor = queue.wave.actor
    return f"{kind} by {actor} of workgroup {actor.cluster} at {describe(access.instruction)}"


def _hint(race: Race, earlier: Queue, later: Queue) -> str:
    if earlier.wave is later.wave:
        return (
            f"the wave itself has not waited for it: s_waitcnt {earlier.counter}(n) must come between, with n the number "
            "of operations issued after it that may still be outstanding"
        )
    complete = earlier.wave.known.get(earlier.identity, 0) >= race.earlier.epoch
    if not complete:
        return (
            f"{earlier.wave.actor} has not waited for it: s_waitcnt {earlier.counter}(...) must come before its next "
            "s_barrier, since a barrier does not wait for memory"
        )
    if earlier.wave.actor.cluster != later.wave.actor.cluster:
        return "workgroups are ordered by atomics, or coherent accesses, after s_waitcnt vmcnt(0) only"
    return "an s_barrier must come between the two"
