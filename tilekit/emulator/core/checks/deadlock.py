"""Why nothing moves: the table of who waits for whom, the cycle in it, and the likely mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilekit.emulator.core.checks.barriers import Arrival, PhasedBarrier
from tilekit.emulator.core.errors import Actor, Deadlock, InstructionLike, describe
from tilekit.emulator.core.symbols import SymbolMap

__all__ = ["Blocked", "GroupWait", "Meeting", "PhaseWait", "deadlock", "waiting_table"]


_NEVER = "no thread has ever arrived on"


@dataclass(frozen=True, slots=True)
class PhaseWait:
    """A wait for the phase of a barrier that has this parity.

    Attributes
    ----------
    cta
        Rank of the CTA whose shared memory the barrier is in.
    key
        What the waiter is called in the barrier's history of waits, so that a missed phase can be told.
    """

    barrier: PhasedBarrier
    parity: int
    cta: int
    key: Hashable = None


@dataclass(frozen=True, slots=True)
class Meeting:
    """A wait at a named barrier or at the barrier of the cluster, for `expected` threads of which `arrived` came.

    Attributes
    ----------
    name
        Such as `bar 1` or `the cluster barrier`.
    identity
        Equal for waits at the same barrier, such as (cta, number).
    present
        Who has arrived.
    last
        Who arrived the time before, and at which instruction.
    """

    name: str
    identity: Hashable
    expected: int
    arrived: int
    present: tuple[Actor, ...] = ()
    last: tuple[tuple[Actor, InstructionLike], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupWait:
    """Any other wait, said in words: registers for setmaxnreg, the other warps of a warpgroup."""

    text: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """One warp (or part of a divergent one) that cannot go on."""

    actor: Actor
    instruction: InstructionLike | None
    wait: PhaseWait | Meeting | GroupWait


@dataclass(slots=True)
class _Row:
    """Warps of one role and CTA that wait at the same instruction for the same thing."""

    cluster: int
    cta: int
    role: str
    warps: list[int]
    blocked: Blocked
    keys: list[Hashable] = field(default_factory=list)

    @property
    def title(self) -> str:
        warps = f"warp{'s' if len(self.warps) > 1 else ''} {_ranges(self.warps)}"
        return f"role {self.role} ({warps})" if self.role else warps

    @property
    def node(self) -> str:
        return self.role or f"warp {self.warps[0]}"


def deadlock(
    blocked: Iterable[Blocked],
    *,
    exited: Iterable[Actor] = (),
    symbols: SymbolMap | None = None,
) -> Deadlock:
    """Return the error for a launch in which no warp can run and nothing is in flight.

    Parameters
    ----------
    blocked
        Every warp that waits.
    exited
        Every warp of the same clusters that has ended.
    symbols
        Names and declared arrivals of the kernel.
    """
    rows, hints, cycle = _analyse(list(blocked), list(exited), symbols if symbols is not None else SymbolMap())
    ctas = len({(row.cluster, row.cta) for row in rows})
    waiting = sum(len(row.warps) for row in rows)
    return Deadlock(
        f"{waiting} warp{'s' if waiting != 1 else ''} in {ctas} CTA{'s' if ctas != 1 else ''} wait, none can run and "
        "nothing is in flight",
        table=_table(rows, cycle, symbols if symbols is not None else SymbolMap()),
        hint="; ".join(hints),
        details={"blocked": [row.blocked for row in rows], "cycle": cycle, "hints": hints},
    )


def waiting_table(blocked: Iterable[Blocked], symbols: SymbolMap | None = None) -> str:
    """Return the table alone: who waits for what, for a launch stopped for another reason."""
    return _table(_rows(list(blocked)), [], symbols if symbols is not None else SymbolMap())


def _rows(blocked: Sequence[Blocked]) -> list[_Row]:
    rows: dict[Hashable, _Row] = {}
    for one in blocked:
        wait = one.wait
        what: Hashable
        if isinstance(wait, PhaseWait):
            what = (id(wait.barrier), wait.parity)
        elif isinstance(wait, Meeting):
            what = wait.identity
        else:
            what = wait.text
        actor = one.actor
        line = one.instruction.line if one.instruction is not None else 0
        key = (actor.cluster, actor.cta, actor.role or actor.warp, line, what)
        row = rows.setdefault(key, _Row(actor.cluster, actor.cta, actor.role, [], one))
        if actor.warp not in row.warps:
            row.warps.append(actor.warp)
        if isinstance(wait, PhaseWait):
            row.keys.append(wait.key)
    return sorted(rows.values(), key=lambda row: (row.cluster, row.cta, min(row.warps)))


def _analyse(
    blocked: Sequence[Blocked], exited: Sequence[Actor], symbols: SymbolMap
) -> tuple[list[_Row], list[str], list[str]]:
    rows = _rows(blocked)
    cycle = _cycle(rows, symbols)
    hints: list[str] = []
    for row in rows:
        for hint in _row_hints(row, rows, exited, symbols):
            if hint not in hints:
                hints.append(hint)
    never = [hint.removeprefix(f"{_NEVER} ") for hint in hints if hint.startswith(_NEVER)]
    if never:
        shown = never if len(never) <= 3 else [*never[:2], f"{len(never) - 2} more"]
        hints = [hint for hint in hints if not hint.startswith(_NEVER)]
        waits = (row.blocked.wait for row in rows)
        arrives = next(wait.barrier.ARRIVES for wait in waits if isinstance(wait, PhaseWait))
        hints.append(f"{_NEVER} {', '.join(shown)}: {arrives} is missing, was not executed, or goes to another address")
    if cycle and not hints:
        hints = [_cycle_hint(rows, cycle)]
    return rows, hints, cycle


def _table(rows: Sequence[_Row], cycle: Sequence[str], symbols: SymbolMap) -> str:
    # What the CTAs wait for, each as text; CTAs that wait for the same share it.
    waits: dict[tuple[int, int], dict[str, list[_Row]]] = {}
    for row in rows:
        lines = [f"waits for {_wanted(row)}", f"    at {describe(row.blocked.instruction)}"]
        text = "\n".join([*lines, *(f"    {line}" for line in _state(row, symbols))])
        waits.setdefault((row.cluster, row.cta), {}).setdefault(f"{row.role}\n{text}", []).append(row)
    places: dict[str, list[str]] = {}
    for (cluster, cta), texts in waits.items():
        lines = []
        for text, alike in texts.items():
            joined = replace(alike[0], warps=[warp for row in alike for warp in row.warps])
            first, *others = text.partition("\n")[2].splitlines()
            if joined.title.startswith("warps"):
                first = first.replace("waits", "wait", 1)
            lines += [f"  {joined.title} {first}", *(f"  {line}" for line in others)]
        places.setdefault("\n".join(lines), []).append(f"cluster {cluster}, CTA {cta}")
    found = [f"{'; the same in '.join(_few(alike))}\n{text}" for text, alike in places.items()]
    if cycle:
        found.append("cycle: " + " -> ".join(cycle))
    return "\n".join(found)


def _few(places: list[str]) -> list[str]:
    """A list of places, shortened."""
    return places if len(places) <= 3 else [places[0], f"{len(places) - 1} more CTAs"]


def _wanted(row: _Row) -> str:
    wait = row.blocked.wait
    if isinstance(wait, PhaseWait):
        barrier = wait.barrier
        remote = f" of CTA {wait.cta}" if wait.cta != row.cta else ""
        return f"{barrier.name}{remote} phase {barrier.phase} (parity {wait.parity})"
    if isinstance(wait, Meeting):
        return f"{wait.name}: {wait.arrived} of {wait.expected} threads arrived"
    return wait.text


def _state(row: _Row, symbols: SymbolMap) -> list[str]:
    wait = row.blocked.wait
    if isinstance(wait, Meeting):
        present = sorted({(actor.role, actor.warp, str(actor)) for actor in wait.present})
        return [f"arrived: {', '.join(name for *_, name in present)}"] if present else []
    if not isinstance(wait, PhaseWait):
        return []
    barrier = wait.barrier
    needs = []
    if barrier.pending:
        needs.append(f"{barrier.pending} of {barrier.expected} arrivals")
    if barrier.tx > 0:
        needs.append(f"{barrier.tx} of {barrier.bytes_expected} bytes")
    elif barrier.tx < 0:
        needs.append(f"an expect_tx for {-barrier.tx} bytes that arrived unannounced")
    lines = [f"needs {' and '.join(needs)}"]
    if barrier.arrivals:
        lines.append(f"arrived in this phase: {_arrived(barrier.arrivals)}")
    elif barrier.last_arrivals:
        lines.append(f"arrived last (phase {barrier.phase - 1}): {_arrived(barrier.last_arrivals)}")
    else:
        lines.append("no thread has ever arrived")
    symbol = symbols.barrier(barrier.name)
    if symbol is not None and symbol.arrive:
        lines.append(f"declared to arrive: {', '.join(symbol.arrive)}")
    return lines


def _arrived(arrivals: Sequence[Arrival]) -> str:
    expected: Counter[str] = Counter()
    brought: Counter[str] = Counter()
    for arrival in arrivals:
        name = str(arrival.actor) if arrival.actor is not None else "a thread"
        expected[name] += arrival.expected
        brought[name] += arrival.completed
    said = []
    for name in sorted(expected, key=lambda name: [int(part) if part.isdigit() else part for part in name.split()]):
        parts = [f"{verb} {n} B" for verb, n in (("expects", expected[name]), ("brought", brought[name])) if n]
        said.append(f"{name} ({', '.join(parts)})" if parts else name)
    return ", ".join(said)


def _arrivers(barrier: PhasedBarrier, symbols: SymbolMap) -> set[str]:
    """Return the nodes that must arrive: the declared roles, else those that arrived or expected bytes before."""
    symbol = symbols.barrier(barrier.name)
    if symbol is not None and symbol.arrive:
        return set(symbol.arrive)
    return {
        arrival.actor.role or f"warp {arrival.actor.warp}"
        for arrival in (*barrier.arrivals, *barrier.last_arrivals)
        if arrival.actor is not None
    }


def _cycle(rows: Sequence[_Row], symbols: SymbolMap) -> list[str]:
    """Return a cycle of waits as alternating nodes and barriers, first node repeated at the end; empty if none."""
    edges: dict[int, list[tuple[str, int]]] = {}
    for i, row in enumerate(rows):
        wait = row.blocked.wait
        others: list[tuple[str, int]] = []
        for j, other in enumerate(rows):
            if other.cluster != row.cluster or i == j:
                continue
            if isinstance(wait, PhaseWait) and other.node in _arrivers(wait.barrier, symbols):
                here = {a.actor for a in wait.barrier.arrivals if a.arrivals}
                if not (wait.barrier.pending and other.blocked.actor in here):
                    others.append((wait.barrier.name, j))
            elif isinstance(wait, Meeting) and not _attends(other, wait) and other.cta == row.cta:
                others.append((wait.name, j))
        edges[i] = sorted(others, key=lambda edge: rows[edge[1]].cta != row.cta)
    for start in edges:
        trail = _way_back(edges, start, start, set())
        if trail:
            across = len({rows[node].cta for node, _ in trail}) > 1
            words: list[str] = []
            for node, name in trail:
                words += [_label(rows[node], across), name]
            return [*words, words[0]]
    return []


def _way_back(edges: dict[int, list[tuple[str, int]]], node: int, home: int, seen: set[int]) -> list[tuple[int, str]]:
    """Return the steps (node, barrier) that lead from `node` to `home` along `edges`, or nothing."""
    seen.add(node)
    for name, then in edges[node]:
        if then == home:
            return [(node, name)]
        rest = _way_back(edges, then, home, seen) if then not in seen else []
        if rest:
            return [(node, name), *rest]
    return []


def _attends(row: _Row, meeting: Meeting) -> bool:
    wait = row.blocked.wait
    return isinstance(wait, Meeting) and wait.identity == meeting.identity


def _label(row: _Row, across: bool) -> str:
    return f"{row.node} of CTA {row.cta}" if across else row.node


def _cycle_hint(rows: Sequence[_Row], cycle: Sequence[str]) -> str:
    for row in rows:
        wait = row.blocked.wait
        if isinstance(wait, Meeting) and wait.name in cycle and wait.arrived < wait.expected:
            return _absent(rows, row, wait)
    barriers = [
        row.blocked.wait.barrier
        for row in rows
        if isinstance(row.blocked.wait, PhaseWait) and row.blocked.wait.barrier.name in cycle
    ]
    if barriers and all(b.phase == 0 and not b.arrivals for b in barriers):
        return (
            "no phase of these barriers has ever completed: on its first lap a producer waits for parity 1, which "
            "passes at once, and a consumer for parity 0"
        )
    silent = [b for b in barriers if b.phase == 0 and not b.arrivals]
    turned = max(barriers, key=lambda b: b.phase, default=None)
    if silent and turned is not None and turned.phase:
        return (
            f"no thread has ever arrived on {silent[0].name}, although {turned.name} is in phase {turned.phase}: is "
            "the arrival missing, or the number of stages wrong?"
        )
    return "each waits for the next: one of them must arrive before it waits"


def _absent(rows: Sequence[_Row], row: _Row, meeting: Meeting) -> str:
    """Who came to a named barrier the last time and not now."""
    absent: dict[str, list[int]] = {}
    for actor, instruction in meeting.last:
        if actor not in meeting.present:
            absent.setdefault(f"line {instruction.line}", []).append(actor.warp)
    missing = f"{meeting.expected - meeting.arrived} of its {meeting.expected} threads"
    if not absent:
        return (
            f"{meeting.name} waits for {missing}, and no thread but those that wait at it has ever come: is an arrive "
            "on it missing, or its number another one there?"
        )
    came = "; ".join(
        f"warp{'s' if len(warps) > 1 else ''} {_ranges(warps)} in {line}" for line, warps in absent.items()
    )
    return (
        f"{meeting.name} waits for {missing}; the last time these came, which wait elsewhere now: {came}. One of the "
        "two must arrive before it waits: is an arrive missing, or a number wrong?"
    )


def _ranges(warps: Iterable[int]) -> str:
    """Numbers, such as ``0-3, 7``."""
    runs: list[list[int]] = []
    for warp in sorted(set(warps)):
        if runs and runs[-1][1] == warp - 1:
            runs[-1][1] = warp
        else:
            runs.append([warp, warp])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _row_hints(row: _Row, rows: Sequence[_Row], exited: Sequence[Actor], symbols: SymbolMap) -> list[str]:
    wait = row.blocked.wait
    if isinstance(wait, Meeting):
        return _meeting_hints(row, wait, exited)
    if not isinstance(wait, PhaseWait):
        return []
    barrier = wait.barrier
    missed = next((phase for key in row.keys if (phase := barrier.overrun(key)) is not None), None)
    if missed is not None:
        return [
            f"{row.title} missed phase {missed} of {barrier.name}, which completed together with the one after it: it "
            "must be among those whose arrival the barrier's next phase depends on"
        ]
    if barrier.pending == 0 and barrier.tx > 0:
        return [
            f"{barrier.name}: expect_tx promised {barrier.bytes_expected} bytes but {barrier.bytes_arrived} arrived, "
            "and no copy is in flight"
        ]
    if barrier.pending and barrier.bytes_expected and not barrier.tx:
        return [
            f"{barrier.name}: all {barrier.bytes_expected} bytes arrived, but {barrier.pending} of {barrier.expected} "
            "arrivals did not: an expect_tx alone is no arrival"
        ]
    if barrier.pending and barrier.tx < 0:
        return [
            f"{barrier.name}: {barrier.bytes_arrived} bytes arrived but no thread executed arrive.expect_tx in this "
            "phase"
        ]
    expected = _arrivers(barrier, symbols)
    if not expected:
        return [] if barrier.tx else [f"{_NEVER} {barrier.name}{_initialised(barrier)}"]
    present = {arrival.actor for arrival in barrier.arrivals if arrival.arrivals and arrival.actor is not None}
    here = {actor.role or f"warp {actor.warp}" for actor in present}
    late = expected - here
    blocked = {other.node for other in rows if other.cluster == row.cluster}
    gone = {a.role or f"warp {a.warp}" for a in exited if a.cluster == row.cluster} - blocked
    if not late:
        who = ", ".join(sorted(here))
        arrived = barrier.expected - barrier.pending
        return [
            f"{barrier.name} expects {barrier.expected} arrivals a phase{_initialised(barrier)}, but every thread that "
            f"arrives on it has ({who}: {arrived}): initialise it with {arrived}, or let the other "
            f"{barrier.expected - arrived} arrive too"
        ]
    if late <= gone:
        return [f"{', '.join(sorted(late))} exited and can no longer arrive on {barrier.name}"]
    if barrier.pending and late == {row.node}:
        return [f"{row.title} waits on {barrier.name} for its own arrival"]
    return []


def _initialised(barrier: PhasedBarrier) -> str:
    """Where a barrier's count comes from."""
    instruction = barrier.initialised_by.instruction
    return f" ({barrier.INITIALISES} in line {instruction.line})" if instruction is not None else ""


def _meeting_hints(row: _Row, meeting: Meeting, exited: Sequence[Actor]) -> list[str]:
    gone = sorted({str(a) for a in exited if a.cluster == row.cluster and a.cta == row.cta})
    if gone and meeting.arrived < meeting.expected:
        return [
            f"{meeting.name} expects {meeting.expected} threads and {meeting.arrived} arrived: either the count is "
            f"wrong, or {', '.join(gone)} should not have exited without arriving there"
        ]
    return []
