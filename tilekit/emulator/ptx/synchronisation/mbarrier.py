"""The mbarrier object: an arrival count, a transaction count and a phase (PTX ISA, mbarrier, "Phase of the mbarrier").

A phase completes when its pending arrivals and its tx-count are both zero; the barrier then starts the next phase with
the expected number of arrivals pending again. Waits name a phase by its parity or by the state that an arrive returned,
so a waiter can tell the current phase from the one before it and nothing else: falling two phases behind is a fault
here, where hardware hangs or lets the waiter through.

A barrier remembers who arrived in the current and the last phase, for the messages that say who did not.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tilekit.emulator.core.checks.agents import Sync
from tilekit.emulator.core.checks.barriers import Arrival
from tilekit.emulator.core.errors import Actor, BarrierFault, InstructionLike, Where, describe

__all__ = ["MAXIMUM_COUNT", "MAXIMUM_TX", "BarrierState", "Commit", "Mbarrier", "decode", "encode"]

MAXIMUM_COUNT = (1 << 20) - 1
"""Largest expected or pending count."""
MAXIMUM_TX = (1 << 20) - 1
"""Largest magnitude of the tx-count, in bytes."""
BYTES = 8
_ARRIVALS_REMEMBERED = 64
_TX_BITS = 22
_TX_MASK = (1 << _TX_BITS) - 1


class BarrierState(NamedTuple):
    """The numbers inside an mbarrier."""

    expected: int
    pending: int
    tx: int
    parity: int


@dataclass(slots=True)
class Commit:
    """A ``tcgen05.commit`` to a barrier: the instruction, and the phase in which it arrived, None until it has.

    It refers to nothing of the machine, so that a barrier and what is in flight to it do not keep each other alive.
    """

    instruction: InstructionLike
    phase: int | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """A thread suspended in a wait for phase number `phase`."""

    phase: int
    actor: Actor | None
    instruction: InstructionLike | None


def encode(state: BarrierState) -> int:
    """Return the 64-bit image of a state: what an arrive returns and what the barrier's eight bytes hold.

    The layout is opaque to kernels. Here, from bit 63: the parity, 2^20 minus the pending count (20 bits), the tx-count
    (22 bits, two's complement), 2^20 minus the expected count (20 bits), and a zero.
    """
    return _image(*state)


def _image(expected: int, pending: int, tx: int, parity: int) -> int:
    return parity << 63 | (-pending & 0xFFFFF) << 43 | (tx & _TX_MASK) << 21 | (-expected & 0xFFFFF) << 1


def decode(image: int) -> BarrierState:
    """Return the state that :func:`encode` made `image` from."""
    count_mask = (1 << 20) - 1
    tx = (image >> 21) & _TX_MASK
    if tx >> (_TX_BITS - 1):
        tx -= 1 << _TX_BITS
    return BarrierState(-(image >> 1) & count_mask, -(image >> 43) & count_mask, tx, (image >> 63) & 1)


class Mbarrier:
    """One initialised mbarrier.

    Operations take who executes them and the instruction, for the history and for messages; both may be None. A caller
    that wakes waiters compares :attr:`phase` before and after.

    Parameters
    ----------
    address
        Of its eight bytes, in the shared window.
    count
        Expected arrivals a phase, 1 to 2^20 - 1.
    name
        What the kernel's author calls it, such as `inputs.full[1]`.

    Attributes
    ----------
    phase
        Number of phases completed; its lowest bit is the parity of the current phase.
    expected, pending
        Arrivals a phase, and arrivals the current phase still needs.
    tx
        Bytes expected and not yet arrived in the current phase; below zero while more arrived than expected so far.
    arriving, completed
        The sync objects of the current and of the last completed phase: release to `arriving` before an arrival or a
        complete_tx, acquire `completed` after a successful wait.
    arrivals, last_arrivals
        Operations on the current and on the last phase.
    waiters
        Who is suspended, by the key given to :meth:`suspend`.
    seen
        Phases that a thread has waited for, and knows to be complete.
    commits
        The latest ``tcgen05.commit`` of each warp that arrives here.
    stamp
        What :meth:`ProxyOrder.initialise` returned for the init, or None when order is not checked.
    """

    INITIALISES: ClassVar[str] = "mbarrier.init"
    ARRIVES: ClassVar[str] = "the mbarrier.arrive, or the commit or copy that arrives,"

    __slots__ = (
        "_observed",
        "address",
        "arrivals",
        "arriving",
        "bytes_arrived",
        "bytes_expected",
        "commits",
        "completed",
        "expected",
        "initialised_by",
        "last_arrivals",
        "name",
        "pending",
        "phase",
        "seen",
        "stamp",
        "tx",
        "waiters",
    )

    def __init__(
        self,
        address: int,
        count: int,
        name: str = "",
        *,
        by: Actor | None = None,
        instruction: InstructionLike | None = None,
        stamp: tuple[int, int] | None = None,
    ) -> None:
        self.address = address
        self.name = name or f"the mbarrier at {address:#x}"
        self.initialised_by = Arrival(by, instruction, 0, 0, 0)
        self.expected = self.pending = count
        self.tx = 0
        self.phase = 0
        self.bytes_expected = self.bytes_arrived = 0
        self.arrivals: list[Arrival] = []
        self.last_arrivals: list[Arrival] = []
        self.completed = Sync(f"{self.name} before its first phase")
        self.arriving = self._sync(None)
        self.stamp = stamp
        self.waiters: dict[Hashable, Waiter] = {}
        self._observed: dict[Hashable, int] = {}
        self.seen = 0
        self.commits: dict[Actor, Commit] = {}
        if address % BYTES:
            raise self.fault(
                f"initialised at {address:#x}, which is not a multiple of 8",
                by,
                instruction,
                hint=f"the nearest legal address is {address // BYTES * BYTES:#x}",
            )
        if not 1 <= count <= MAXIMUM_COUNT:
            raise self.fault(
                f"initialised with count {count}; legal: 1 to {MAXIMUM_COUNT}",
                by,
                instruction,
                hint=f"the nearest legal count is {min(max(count, 1), MAXIMUM_COUNT)}",
            )

    # State and waits

    @property
    def parity(self) -> int:
        """Parity of the current, incomplete phase."""
        return self.phase & 1

    @property
    def state(self) -> BarrierState:
        """The numbers as they are."""
        return BarrierState(self.expected, self.pending, self.tx, self.phase & 1)

    def image(self) -> int:
        """Return the 64-bit image: the token of the current phase."""
        return _image(self.expected, self.pending, self.tx, self.phase & 1)

    def test(self, parity: int) -> bool:
        """Return whether the phase of this parity has completed (test_wait.parity, try_wait.parity).

        A fresh barrier answers True for parity 1: the phase before its first counts as complete.
        """
        return self.phase & 1 != parity & 1

    def test_token(self, token: int) -> bool:
        """Return whether the phase that an arrive returned `token` for has completed (test_wait, try_wait)."""
        return self.phase & 1 != token >> 63 & 1

    def suspend(self, key: Hashable, by: Actor | None = None, instruction: InstructionLike | None = None) -> None:
        """Note that `key` is blocked until the current phase completes."""
        known = self.waiters.get(key)
        if known is None or known.phase != self.phase:
            self.waiters[key] = Waiter(self.phase, by, instruction)

    def resume(self, key: Hashable, *, observed: bool = True) -> None:
        """Note that `key` no longer waits; with `observed`, because its wait answered that the phase is complete."""
        self.waiters.pop(key, None)
        if observed:
            self._observed[key] = self.phase - 1
            self.seen = self.phase

    def overrun(self, key: Hashable) -> int | None:
        """Return the phase that `key` should have seen next if it completed, and another one after it, unseen."""
        last = self._observed.get(key)
        return last + 1 if last is not None and self.phase - (last + 1) >= 2 else None

    # Operations

    def arrive(
        self,
        count: int = 1,
        *,
        expect_tx: int = 0,
        by: Actor | None = None,
        instruction: InstructionLike | None = None,
        no_complete: bool = False,
    ) -> int:
        """Arrive `count` times, after raising the tx-count by `expect_tx` bytes; returns the token of the phase.

        Raises
        ------
        BarrierFault
            If the count is not 1 to 2^20 - 1, if more arrive than are pending, if the tx-count leaves its range, or if
            a noComplete arrive would complete the phase.
        """
        if expect_tx:
            self._raise_tx(expect_tx, by, instruction)
        token = self.image()
        if not 1 <= count <= self.pending:
            raise self._refused(count, by, instruction)
        self.pending -= count
        self._remember(Arrival(by, instruction, count, expect_tx, 0))
        if no_complete and self.pending == 0:
            raise self.fault(
                "a noComplete arrive brought the pending count to zero",
                by,
                instruction,
                hint="only an arrive that cannot be the phase's last may be .noComplete",
            )
        self._complete_if_done(by, instruction)
        return token

    def arrive_drop(
        self,
        count: int = 1,
        *,
        expect_tx: int = 0,
        by: Actor | None = None,
        instruction: InstructionLike | None = None,
        no_complete: bool = False,
    ) -> int:
        """Arrive `count` times and leave: every later phase expects that many fewer arrivals."""
        if count > self.expected:
            raise self.fault(
                f"arrive_drop of {count}, but a phase expects only {self.expected} arrivals", by, instruction
            )
        self.expected -= count
        return self.arrive(count, expect_tx=expect_tx, by=by, instruction=instruction, no_complete=no_complete)

    def expect_tx(self, size: int, *, by: Actor | None = None, instruction: InstructionLike | None = None) -> None:
        """Raise the tx-count by `size` bytes: the phase also waits for them to arrive."""
        self._raise_tx(size, by, instruction)
        self._remember(Arrival(by, instruction, 0, size, 0))
        self._complete_if_done(by, instruction)

    def complete_tx(self, size: int, *, by: Actor | None = None, instruction: InstructionLike | None = None) -> None:
        """Lower the tx-count by `size` bytes, which have arrived.

        `by` and `instruction` are those that issued the copy, not those that see it land.
        """
        if self.tx - size < -MAXIMUM_TX:
            raise self.fault(
                f"{size} bytes arrived at a tx-count of {self.tx}, which would leave its range of +-{MAXIMUM_TX}",
                by,
                instruction,
                hint="expect_tx must announce the bytes of the same phase; are copies issued for a later phase?",
            )
        self.tx -= size
        self.bytes_arrived += size
        self._remember(Arrival(by, instruction, 0, 0, size))
        self._complete_if_done(by, instruction)

    def _raise_tx(self, size: int, by: Actor | None, instruction: InstructionLike | None) -> None:
        if not 0 <= size <= MAXIMUM_TX:
            raise self.fault(f"expect_tx of {size} bytes; legal: 0 to {MAXIMUM_TX}", by, instruction)
        if self.tx + size > MAXIMUM_TX:
            raise self.fault(
                f"expect_tx of {size} bytes at a tx-count of {self.tx} passes its limit of {MAXIMUM_TX}",
                by,
                instruction,
                hint="spread the bytes of a phase over more barriers, or wait for a phase before expecting the next",
            )
        self.tx += size
        self.bytes_expected += size

    def _refused(self, count: int, by: Actor | None, instruction: InstructionLike | None) -> BarrierFault:
        """The fault of an arrive with a count that is illegal, or more than the phase needs."""
        if not 1 <= count <= MAXIMUM_COUNT:
            return self.fault(f"arrive with count {count}; legal: 1 to {MAXIMUM_COUNT}", by, instruction)
        number, expected = self.phase, self.expected
        if self.pending == 0:
            problem = f"an arrival too many: all {expected} of phase {number} are in, {self.tx} bytes are not"
            hint = "its copies are in flight: wait for this phase before the stage may be filled again"
        else:
            problem = f"{count} arrivals at once, where phase {number} needs {self.pending} more of {expected}"
            hint = (
                "more arrive than the barrier was initialised for, or a thread arrives again without waiting for "
                "the phase to complete"
            )
        return self.fault(problem, by, instruction, hint=hint)

    def _complete_if_done(self, by: Actor | None, instruction: InstructionLike | None) -> None:
        if self.pending:
            return
        if self.tx < 0:
            raise self.fault(
                f"all arrivals of phase {self.phase} are in, but {self.bytes_arrived} bytes arrived and only "
                f"{self.bytes_expected} were expected",
                by,
                instruction,
                hint=f"expect_tx is {-self.tx} bytes short of what the copies of a phase carry",
            )
        if self.tx:
            return
        late = next((w for w in self.waiters.values() if w.phase < self.phase), None)
        if late is not None:
            raise self.fault(
                f"phase {self.phase} completes while {late.actor or 'a warp'} still waits for phase {late.phase} "
                f"({describe(late.instruction)}): a parity cannot tell it from the phase after next",
                by,
                instruction,
                hint="a thread that waits on a barrier must be one of those that arrive before it completes again",
            )
        self.phase += 1
        self.pending = self.expected
        self.bytes_expected = self.bytes_arrived = 0
        self.last_arrivals, self.arrivals = self.arrivals, []
        self.completed = self.arriving
        self.arriving = self._sync(self.completed)

    def _sync(self, carried: Sync | None) -> Sync:
        name, phase = self.name, self.phase
        return Sync(lambda: f"{name} phase {phase}", carried)

    def _remember(self, arrival: Arrival) -> None:
        if len(self.arrivals) < _ARRIVALS_REMEMBERED:
            self.arrivals.append(arrival)

    def fault(
        self, message: str, by: Actor | None, instruction: InstructionLike | None, hint: str = ""
    ) -> BarrierFault:
        """Return the error for a misuse of this barrier, with its history."""
        return BarrierFault(
            f"{self.name}: {message}",
            where=Where(actor=by, instruction=instruction),
            hint=hint,
            table=self.history(),
            details={"barrier": self.name, "address": self.address},
        )

    def history(self) -> str:
        """Return who arrived in the current and in the last phase, a line each."""
        lines = []
        for title, phase, arrivals in (
            ("this phase", self.phase, self.arrivals),
            ("last phase", self.phase - 1, self.last_arrivals),
        ):
            for arrival in arrivals:
                lines.append(f"{title} ({phase}): {_said(arrival)}")
        return "\n".join(lines)


def _said(arrival: Arrival) -> str:
    done = []
    if arrival.arrivals:
        done.append(f"{arrival.arrivals} arrival{'s' if arrival.arrivals > 1 else ''}")
    if arrival.expected:
        done.append(f"expects {arrival.expected} bytes")
    if arrival.completed:
        done.append(f"{arrival.completed} bytes arrived")
    who = str(arrival.actor) if arrival.actor is not None else "a thread"
    return f"{who}, {' and '.join(done) or 'nothing'}, at {describe(arrival.instruction)}"
