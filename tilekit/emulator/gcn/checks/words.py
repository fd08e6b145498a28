"""From a race to its finding, in the words of these machines: which wait, or which barrier, is missing."""

from __future__ import annotations

from collections.abc import Mapping

from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.checks.shadow import Access, Race
from tilekit.emulator.core.errors import Where, describe
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.gcn.checks.order import Queue, WaveOrder

__all__ = ["explain", "tolerated"]


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


def tolerated(race: Race, loads: Mapping[tuple[int, int], list[tuple[int, int, WaveOrder]]]) -> str:
    """Return why a race is none that compilers would avoid; empty where it is one.

    - LLVM's barrier does not wait for stores to global memory, and Triton relies on their being complete when another
      wave of the workgroup, behind an `s_barrier`, tells another workgroup of them.
    - Where a tile is smaller than a workgroup, waves repeat each other's work: the same load gives a value that one of
      them stores and the others drop; and the same instruction stores what differs in the last bit at most.
    """
    earlier, later = _queue(race.earlier), _queue(race.later)
    same = race.earlier.instruction is race.later.instruction
    if race.earlier.write and race.later.write and same and earlier.wave is not later.wave:
        return "waves store different values to one place by the same instruction: which stays is not determined"
    if race.memory.cta is not None:
        return ""
    if race.earlier.write and later.wave.assumed.get(earlier.identity, 0) >= race.earlier.epoch:
        return "a store that s_barrier came after and nothing had waited for: its wave needs s_waitcnt vmcnt(0) before"
    read, write = (race.earlier, race.later) if race.later.write else (race.later, race.earlier)
    reader, writer = _queue(read).wave, _queue(write).wave
    if read.write or write.atomic or reader.actor.cluster != writer.actor.cluster:
        return ""
    entries = loads.get((id(read.instruction), reader.actor.cluster), [])
    covering = {wave for low, high, wave in entries if low <= race.lo and race.hi <= high}
    if reader in covering and writer in covering:
        return "waves repeat each other's load of what one of them stores: what the others load is not determined"
    return ""


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
            f"the wave itself has not waited for it: s_waitcnt {earlier.counter}(n) must come between, with n the "
            "number of operations issued after it that may still be outstanding"
        )
    if later.wave.assumed.get(earlier.identity, 0) >= race.earlier.epoch:
        return (
            f"{earlier.wave.actor} has not waited for it: s_waitcnt {earlier.counter}(...) must come before its next "
            "s_barrier, since a barrier does not wait for memory"
        )
    if earlier.wave.actor.cluster != later.wave.actor.cluster:
        return "workgroups are ordered by atomics, or coherent accesses, after s_waitcnt vmcnt(0) only"
    return "an s_barrier must come between the two"
