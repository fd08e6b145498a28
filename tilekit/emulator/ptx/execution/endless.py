"""Loops in which nothing changes: found when they have come round, not when the step budget is spent.

What a warp does next follows from its own state, and from memory and barriers. So where a warp comes back to a state in
which it was before, while nothing that it may look at has changed, it will go on so for ever. That is certain

- of a loop that looks at nothing but registers;
- of all warps together, when every one that can run has come round, nothing is in flight, no cluster can start and no
  store, arrival or look at the clock has happened meanwhile. Waits on an mbarrier may give up at any time, so those who
  wait there must have come round as well;
- of the only warp that can run, when all of memory is as it was, too.

Of its registers a warp's state has those that lanes will read again: the others' hold whatever the lanes that run
compute beside their own. States are compared by their hash, at moments that grow apart: a long computation costs next
to nothing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.errors import Livelock
from tilekit.emulator.ptx.execution.forward_progress import any_held_back, polls_memory
from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.syntax import AddressOperand, SpecialRegister

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.execution.scheduler import Machine
    from tilekit.emulator.ptx.execution.warp import Warp

INTERVAL = 1024
"""Fewest blocks between two looks at the state of the warps; a sixteenth of the time so far when that is more."""

_TOGETHER = ("bar", "barrier", "call", "setmaxnreg")
"""Instructions without an address that others may hold up, or that change what is not among a warp's registers."""
MOST_MEMORY = 1 << 24
"""Bytes of memory that are looked through."""

_ACCESSES = ("ld", "ldu", "st", "atom", "red")
"""Instructions that change memory and nothing else that lasts."""
_OUTSIDE = ("tcgen05", "wgmma", "clusterlaunchcontrol")
"""Those that change, at once and without an event, what the hash of a warp leaves out."""


class EndlessLoops:
    """Watches the warps of a launch, whenever they have run for long without an event."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._signature: tuple[int, ...] = ()
        self._seen: dict[Warp, set[bytes]] = {}
        self._repeated: set[Warp] = set()
        self._alone: dict[Warp, set[bytes]] = {}
        self._since = self._next = self._next_alone = 0
        self._counts: list[list[int]] = []
        self._whole: set[bytes] = set()
        self._whole_signature: tuple[int, ...] = ()
        self._whole_counts: list[list[int]] = []

    def look(self, *, idle: bool) -> None:
        """Look at the warps that can run.

        Parameters
        ----------
        idle
            Whether nothing is in flight and no cluster can start.

        Raises
        ------
        Livelock
            When a warp, or all of them, cannot get any further.
        """
        machine = self._machine
        if machine.steps >= self._next_alone:
            self._next_alone = machine.steps + max(INTERVAL, machine.steps >> 4)
            for warp in machine.ready:
                if len(warp.fragments) == 1 and _looks_at_registers(warp) and _again(self._alone, warp):
                    raise self._fault(warp, "a loop that changes nothing it looks at")
        if not idle:
            return
        if len(machine.ready) == 1:
            self._look_at_memory(machine.ready[0])
        signature = machine.signature()
        if signature != self._signature:
            self._signature = signature
            self._seen.clear()
            self._repeated.clear()
            self._since = self._next = machine.steps
            self._counts = self._executed()
        if machine.steps < self._next:
            return
        self._next = machine.steps + max(INTERVAL, (machine.steps - self._since) >> 4)
        if not self._come_round(list(machine.ready)):
            return
        waiting = [warp for cluster in machine.resident for warp in cluster.warps if not warp.queued and _polls(warp)]
        if not self._come_round(waiting):
            machine.time_out(again=True)
            return
        if not self._ran(self._counts, _OUTSIDE):
            raise self._fault(machine.ready[0], "the warps that can run repeat themselves, and nothing can change that")

    def _look_at_memory(self, warp: Warp) -> None:
        """Look whether the only warp that can run comes round together with all of memory."""
        machine = self._machine
        signature = machine.signature()[1:]
        if signature != self._whole_signature:
            self._whole_signature = signature
            self._whole.clear()
            self._whole_counts = self._executed()
        parts = [allocation for allocation in machine.launch.memory.allocations() if allocation.writable]
        parts += [cta.shared for cluster in machine.resident for cta in cluster.ctas]
        others = (each for cluster in machine.resident for each in cluster.warps if each is not warp)
        if sum(part.size for part in parts) > MOST_MEMORY or any(map(_polls, others)) or _may_be_let_ahead(warp):
            return
        state = _state(warp)
        if not state:
            return
        found = hashlib.blake2b(state, digest_size=16)
        for part in parts:
            found.update(_bytes(part.data))
        if found.digest() not in self._whole:
            self._whole.add(found.digest())
        elif not self._ran(self._whole_counts):
            raise self._fault(warp, "the only warp that can run repeats itself, and memory does not change")

    def _come_round(self, warps: list[Warp]) -> bool:
        """Whether each of these has been in the state in which it is now; it is remembered."""
        for warp in warps:
            if warp not in self._repeated and not _may_be_let_ahead(warp) and _again(self._seen, warp):
                self._repeated.add(warp)
        return self._repeated.issuperset(warps)

    def _executed(self) -> list[list[int]]:
        return [list(position.counts) for position in self._machine.launch.positions]

    def _ran(self, since: list[list[int]], opcodes: tuple[str, ...] = ()) -> bool:
        """Whether one of these opcodes was executed; without any, something that changes more than memory."""
        program = self._machine.program
        for before, after in zip(since, self._executed(), strict=True):
            for block, old, new in zip(program.flow.blocks, before, after, strict=False):
                code = program.code[block.start : block.end] if new != old else ()
                if any(decoded.form.opcode in opcodes if opcodes else _changes_more(decoded) for decoded in code):
                    return True
        return False

    def _fault(self, warp: Warp, what: str) -> Livelock:
        machine = self._machine
        return Livelock(
            f"{what}: the launch never ends",
            hint="the table shows where each warp is; what ends a loop must change in it, or by another warp that runs",
            table=machine.launch.position_table(machine.resident),
            details={"steps": machine.steps},
        ).at(machine.place_of_block(warp))


def _again(seen: dict[Warp, set[bytes]], warp: Warp) -> bool:
    """Whether a warp is in a state in which it was seen; remembers it."""
    state = _state(warp)
    known = seen.setdefault(warp, set())
    if state in known:
        return True
    if state:
        known.add(state)
    return False


def _state(warp: Warp) -> bytes:
    """A hash of all that decides what a warp does; empty in the midst of a call."""
    found = hashlib.blake2b(digest_size=16)
    add = found.update
    for fragment in warp.fragments:
        if fragment.calls:
            return b""
        parent = fragment.parent
        place = warp.fragments.index(parent) if parent in warp.fragments else -1
        facts = fragment.block, fragment.join, place, fragment.children, fragment.blocked is None, fragment.expired
        add(repr((facts, fragment.parked, fragment.ticket is None, fragment.cluster_ticket is None)).encode())
        add(_bytes(fragment.mask) + _registers(warp, fragment.block, fragment.mask))
        while parent is not None:
            add(repr((parent.block, parent.join, parent.children)).encode())
            add(_bytes(parent.collected) + _registers(warp, parent.block, parent.collected))
            parent = parent.parent
    add(repr((warp.uniforms, warp.parted, warp.register_count)).encode())
    for array in (warp.live, warp.carry, warp.local, warp.stack_top):
        add(_bytes(array))
    if warp.tile_rows is not None:
        add(_bytes(warp.tile))
    return found.digest()


def _registers(warp: Warp, block: int, lanes: Any) -> bytes:
    """What these lanes, None for all, have in the registers that they may still read when they go on at a block."""
    read = warp.program.read_from(block)
    return b"".join(_bytes(warp.arrays[n] if lanes is None else warp.arrays[n][..., lanes]) for n in read)


def _bytes(array: Any) -> bytes:
    return b"-" if array is None else np.asarray(array).tobytes()


def _polls(warp: Warp) -> bool:
    return any(fragment.blocked is not None and fragment.blocked.polls for fragment in warp.fragments)


def _may_be_let_ahead(warp: Warp) -> bool:
    """Whether lanes that wait for others, which poll memory, may go on before them: see `forward_progress`."""
    for fragment in warp.fragments:
        if not polls_memory(warp.program, fragment.block, fragment.join):
            continue
        if not warp.parted and any_held_back(warp):
            return True
        behind = fragment.parent
        while behind is not None:
            if behind.collected.any() and behind.block != behind.join and 0 <= behind.block < warp.exit_block:
                return True
            behind = behind.parent
    return False


# -- what a loop looks at ----------------------------------------------------------------------------------------------


def _looks_at_registers(warp: Warp) -> bool:
    """Whether the loop in which a warp may be looks at nothing else."""
    program, block = warp.program, warp.fragments[0].block
    known = program.register_loops.get(block)
    if known is None:
        known = program.register_loops[block] = _pure_loop(program, block)
    return known


def _pure_loop(program: Program, block: int) -> bool:
    blocks = program.flow.blocks
    if block >= len(blocks):
        return False
    ahead = _reachable({number: list(each.successors) for number, each in enumerate(blocks)}, block)
    before: dict[int, list[int]] = {}
    for number, each in enumerate(blocks):
        for successor in each.successors:
            before.setdefault(successor, []).append(number)
    loop = ahead & _reachable(before, block)
    return block in loop and not any(
        _looks_outside(decoded)
        for number in loop
        for decoded in program.code[blocks[number].start : blocks[number].end]
    )


def _reachable(edges: dict[int, list[int]], start: int) -> set[int]:
    """What lies behind ``start``; itself only where it is in a loop."""
    found: set[int] = set()
    ahead = [start]
    while ahead:
        for number in edges.get(ahead.pop(), ()):
            if number not in found:
                found.add(number)
                ahead.append(number)
    return found


def _changes_more(decoded: Decoded) -> bool:
    """Whether an instruction may have an effect that neither registers nor memory show."""
    return decoded.form.opcode not in _ACCESSES and _looks_outside(decoded)


def _looks_outside(decoded: Decoded) -> bool:
    return decoded.form.opcode in (*_TOGETHER, *_OUTSIDE) or any(
        isinstance(operand, AddressOperand)
        or (isinstance(operand, SpecialRegister) and operand.name.startswith(("%clock", "%globaltimer")))
        for operand in decoded.operands
    )
