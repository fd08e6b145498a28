"""From a detected race to an explained finding: what memory, who, where, and which edge is missing."""

from __future__ import annotations

from tilekit.emulator.core.checks.agents import Agent, Operation, Sync, lane_identity
from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.checks.shadow import Access, Race
from tilekit.emulator.core.errors import Where, describe
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.ptx.checks.prerequisite import UNIT

__all__ = ["explain"]


def explain(race: Race, symbols: SymbolMap, dynamic_base: int = 0, kernel: str = "") -> Finding:
    """Return the finding for `race`: the memory by name, both accesses, the missing edge, and what would add it."""
    first, second = race.lanes if race.lanes is not None else (-1, -1)
    if race.missing is not None:
        edge, hint = race.missing
    elif race.lanes is not None:
        edge, hint = _lanes_apart(race, first, second)
    else:
        edge, hint = _missing_fence(race) if race.unfenced else _missing_edge(race, symbols)
    hint = _beyond_row(race) or hint
    return Finding(
        "race",
        _memory(race, symbols, dynamic_base),
        (_did(race.earlier, first), _did(race.later, second), f"missing edge: {edge}"),
        hint,
        Where(kernel, race.later.party.actor, race.later.instruction),
        race,
    )


def _memory(race: Race, symbols: SymbolMap, dynamic_base: int) -> str:
    memory = race.memory
    low, high = race.lo - memory.base, race.hi - memory.base
    if memory.cta is None:
        return memory.describe(low, high)
    place = f"{memory.name} of CTA {memory.cta}, bytes {low:#x}..{high:#x}"
    name = symbols.name(low - dynamic_base)
    return f"{name} ({place})" if name else place


def _did(access: Access, lane: int) -> str:
    if access.party.unit == UNIT:
        return "use by the grid ahead, which is not over before griddepcontrol.wait"
    verb = ("atomic " if access.atomic else "") + ("write" if access.write else "read")
    cluster = access.party.actor.cluster
    who = f"lane {lane} of " if lane >= 0 else ""
    return f"{verb} by {who}{access.party} of CTA {access.party.actor.cta}, cluster {cluster}, at " + describe(
        access.instruction
    )


def _beyond_row(race: Race) -> str:
    """Return what to know of bytes that a store of one side wrote behind the end of a row."""
    parties = (access.party for access in (race.earlier, race.later))
    said = (p.beyond(race.lo) for p in parties if isinstance(p, Operation) and p.beyond is not None)
    return next(filter(None, said), "")


def _lanes_apart(race: Race, first: int, second: int) -> tuple[str, str]:
    warp = race.later.party.actor
    one, other = (f"lane {lane}" if lane >= 0 else "the other lanes" for lane in (first, second))
    since = "the two"
    if isinstance(race.earlier.party, Operation):
        groups = race.earlier.party.groups
        since = f"the {groups.waits_with} of {one} and this" if groups is not None else since
    return (
        f"no bar.warp.sync by {warp} between {since}: nothing orders {other} after {one}",
        "put bar.warp.sync 0xffffffff (__syncwarp) there: neither running in step nor a shuffle or a vote orders the "
        "memory accesses of a warp's lanes",
    )


def _speaking_alone(race: Race) -> tuple[str, str] | None:
    """Some lanes released, or issued, what other lanes of their warp did, without having met them.

    With no lanes it is an arrival of more lanes than its phase had room for: who of them counts in it is not known.
    """
    earlier, later = race.earlier, race.later
    warp, verb = earlier.party, "write" if earlier.write else "read"
    if isinstance(warp, Operation):
        return None
    if isinstance(later.party, Operation) and later.party.agent is warp:
        lanes, does = later.party.lanes, f"issued the {_unit(later)}"
        if earlier.epoch > later.party.issued:
            return None
    else:
        alone = [(lanes, sync) for epoch, lanes, sync in warp.alone if epoch >= earlier.epoch]
        if not alone:
            return None
        lanes, does = alone[0][0], f"arrived on {alone[0][1].name}"
        if not lanes:
            return (
                f"more lanes of {warp.actor} {does} at once than that phase waits for: any of them may have come too "
                f"late for it, with its {verb}",
                "give mbarrier.init the number of arrivals that come in a phase; for one arrival of the warp put "
                f"bar.warp.sync 0xffffffff (__syncwarp) behind the {verb} and elect a lane",
            )
    who = f"lane {lanes.bit_length() - 1}" if lanes & (lanes - 1) == 0 else "some lanes"
    return (
        f"{who} of {warp.actor} {does} without having met the lanes whose {verb} this is: no bar.warp.sync in between",
        f"put bar.warp.sync 0xffffffff (__syncwarp) between the {verb} of the whole warp and what {who} does for it",
    )


def _missing_fence(race: Race) -> tuple[str, str]:
    writer = race.earlier.party
    write, use = (
        f" (line {i.line})" if i is not None else "" for i in (race.earlier.instruction, race.later.instruction)
    )
    return (
        f"no fence.proxy.async by {writer.actor} between its generic write and the release that orders it before the "
        f"{_unit(race.later)}",
        f"every warp that writes with st or stmatrix must execute fence.proxy.async.shared::cta after its writes{write}"
        f" and before the barrier that leads to the {_unit(race.later)}{use}, or before its issue",
    )


def _missing_edge(race: Race, symbols: SymbolMap) -> tuple[str, str]:
    earlier, later = race.earlier, race.later
    first, second = earlier.party.issuer, later.party.issuer
    if earlier.party.unit == UNIT:
        return (
            f"no griddepcontrol.wait by {second.actor}, nor a barrier behind one",
            "execute griddepcontrol.wait before anything that the grid ahead may still read or write is touched, and "
            "a barrier behind it where one thread waits for others",
        )
    if isinstance(later.party, Operation) and not earlier.write and _read_too_soon(later.party, first, symbols):
        return _unwaited_barrier(later.party, earlier, symbols)
    if isinstance(earlier.party, Operation):
        operation = earlier.party
        if isinstance(later.party, Operation) and _reused_under_way(later.party, operation):
            return _unwaited_group(later.party, earlier.party, later.write)
        if operation.completes is not None:
            return _unwaited_barrier(operation, later, symbols)
        if operation.groups is not None and (
            first.clock.get(operation.identity, 0) < operation.epoch or _told_early(operation, later.party) is not None
        ):
            return _unwaited_group(operation, later.party, earlier.write)
    alone = _speaking_alone(race)
    if alone is not None:
        return alone
    if first is second and isinstance(later.party, Operation):
        return _overtaken(later.party, first)
    return _unacquired(race, first, second, symbols)


def _read_too_soon(fill: Operation, reader: Agent, symbols: SymbolMap) -> bool:
    """Whether the memory that `reader` read was being filled for the first time, by an operation it should wait for."""
    if fill.completes is None:
        return False
    name, _, phase = fill.completes.name.partition(" phase ")
    symbol = symbols.barrier(name)
    return phase == "0" and symbol is not None and reader.actor.role in symbol.wait


def _reused_under_way(late: Operation, early: Operation) -> bool:
    """Whether `late` was issued first and not waited for, and `early`'s issuer was told all the same to go on."""
    agent, other = late.agent, early.agent
    return (
        late.groups is not None
        and agent.clock.get(late.identity, 0) < late.epoch
        and bool(_releases_since(late, late.issued))
        and other.clock.get(agent.identity, 0) >= late.issued
    )


def _told_early(operation: Operation, later: Agent | Operation) -> Sync | None:
    """What told `later` that it may go on, released when `operation` had been issued and not yet been waited for."""
    agent = operation.agent
    after = [sync for _, sync in _releases_since(operation, operation.issued)]
    for number, sync in reversed(later.issuer.acquired):
        told = sync.releases.get(agent.identity) or sync.releases.get(lane_identity(agent.identity, 32))
        if number >= later.learnt or told is None or told.clock.get(operation.identity, 0) >= operation.epoch:
            continue
        if told.moment > operation.issued or (told.moment == operation.issued and sync in after):
            return sync
    return None


def _unwaited_barrier(operation: Operation, later: Access, symbols: SymbolMap) -> tuple[str, str]:
    assert operation.completes is not None
    who = later.party.issuer.actor
    name = operation.completes.name
    if later.write and isinstance(later.party, Operation):
        # A refill: its issuer need not watch the barrier, but must hear from those who do that they are done.
        full = symbols.barrier(name.partition(" phase ")[0])
        freeing = [s.name for role in (full.wait if full else ()) for s in symbols.barriers_between(role, who.role)]
        through = " or ".join(dict.fromkeys(freeing)) or "a barrier on which those who waited for it arrive"
        return (
            f"no wait by {who} for {through} before the {_unit(later)}: nothing says that the {operation.unit} it "
            f"overwrites, which completes on {name}, is complete",
            f"wait for {through} before refilling the memory; a wait with the wrong parity passes at once",
        )
    before = f" before it issued the {_unit(later)}" if isinstance(later.party, Operation) else ""
    return (
        f"no wait for {name} by {who}{before}; the {operation.unit} completes on it",
        f"wait on {name} before touching what it announces, with the parity of that phase",
    )


def _unwaited_group(operation: Operation, other: Agent | Operation, writes: bool) -> tuple[str, str]:
    assert operation.groups is not None
    second = other.issuer
    who, unit, wait = operation.actor, operation.unit, operation.groups.waits_with
    committed = "" if operation.groups.epoch > operation.epoch else ", whose group is not even committed"
    if second is operation.agent:
        return (
            f"no {wait} by {who} between the {unit}{committed} and the access that follows it",
            f"execute {wait} before using the memory of the {unit} again",
        )
    told = _told_early(operation, other)
    released = told.name if told is not None else next((s.name for _, s in _releases_since(operation, 0)), "")
    if not released:
        return (
            f"no {wait} by {who} after the {unit}{committed}, and nothing tells {second.actor} that it is complete",
            f"{who} must execute {wait} and then arrive on a barrier that {second.actor} waits for",
        )
    does = "writes" if writes else "reads"
    return (
        f"the {unit} of {who}{committed} still {does} these bytes: no {wait} that covers it before {who} arrived on "
        f"{released}",
        f"{who} must execute {wait} for the group of this {unit} before it arrives on {released}, which lets "
        f"{second.actor} use the memory again",
    )


def _overtaken(operation: Operation, agent: Agent) -> tuple[str, str]:
    if operation.groups is not None:
        wait = operation.groups.waits_with
        return (
            f"no {wait} by {agent.actor} between the issue of the {operation.unit} and its access that follows",
            f"execute {wait} first: the {operation.unit} may still be under way",
        )
    name = operation.completes.name if operation.completes is not None else "its completion"
    return (
        f"no wait for {name} by {agent.actor} between the issue of the {operation.unit} and its access that follows",
        f"wait on {name} first: the {operation.unit} may still be under way",
    )


def _unacquired(race: Race, first: Agent, second: Agent, symbols: SymbolMap) -> tuple[str, str]:
    party = race.earlier.party
    since = party.issued if isinstance(party, Operation) else race.earlier.epoch
    roles = first.actor.role, second.actor.role
    together = first.actor.cluster == second.actor.cluster
    declared = symbols.barriers_between(*roles) if together else []
    heard = [release for release in _releases_since(party, since) if _may_wait(second, first, release[1], symbols)]
    released = _preferred(heard, tuple(s.name for s in declared))
    verb = "write" if race.earlier.write else "read"
    if released:
        parity = "; a wait with the wrong parity passes at once" if " phase " in released else ""
        return (
            f"no wait for {released} by {second.actor}, on which {first.actor} arrived after its {verb}",
            f"{second.actor} must wait for {released} before it touches this memory{parity}",
        )
    relaxed = next((sync.name for epoch, sync in first.relaxed if epoch >= since), "")
    if relaxed:
        return (
            f"{first.actor} arrived on {relaxed} after its {verb}, but with .relaxed, which publishes nothing",
            "arrive with .release (the default), or execute fence.acq_rel before the arrive",
        )
    if declared:
        names = ", ".join(s.name for s in declared)
        return (
            f"{first.actor} has not arrived on {names} since its {verb}, and {second.actor} did not wait for it",
            f"{second.actor} must wait on {names}, on which {first.actor} must arrive after its {verb}",
        )
    if not together:
        return (
            f"nothing orders {second.actor} of cluster {second.actor.cluster} after the {verb}: {first.actor} of "
            f"cluster {first.actor.cluster} has released nothing since that another cluster could acquire",
            f"after its {verb} (and, for other warps of its CTA, behind a bar.sync) {first.actor} must st.release.gpu "
            f"or red.release.gpu what {second.actor} reads with ld.acquire.gpu before it touches this memory",
        )
    return (
        f"nothing orders {second.actor} after the {verb}: {first.actor} has arrived on no barrier since",
        "put a barrier between them: bar.sync, or an mbarrier that the one arrives on and the other waits for",
    )


def _releases_since(party: Agent | Operation, epoch: int) -> list[tuple[int, Sync]]:
    """Return the epoch and the object of each release after an operation was issued, or by a warp from `epoch` on."""
    if isinstance(party, Operation):
        return [(then, sync) for number, then, sync in party.agent.releases if number >= party.preceding]
    return [(then, sync) for _, then, sync in party.releases if then >= epoch]


def _may_wait(waits: Agent, releases: Agent, sync: Sync, symbols: SymbolMap) -> bool:
    """Whether one could wait for what the other released to: it is in reach, and nothing declares that it does not."""
    name = sync.name.partition(" phase ")[0]
    symbol, (there, here) = symbols.barrier(name), (releases.actor, waits.actor)
    if there.cluster != here.cluster:
        return symbol is None and not name.startswith(("bar ", "the cluster barrier", "the mbarrier", "tcgen05.alloc"))
    if there.cta != here.cta and name.startswith("bar "):
        return False
    return symbol is None or not symbol.wait or here.role in symbol.wait


def _preferred(releases: list[tuple[int, Sync]], prefer: tuple[str, ...]) -> str:
    """Return the name of the first object released to, one of `prefer` if there is; empty if there is none."""
    names = [sync.name for _, sync in releases]
    named = [name for name in names if name.startswith(prefer)] if prefer else []
    return next(iter(named or names), "")


def _unit(access: Access) -> str:
    return access.party.unit or "access"
