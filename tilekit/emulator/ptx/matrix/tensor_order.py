"""What one warp has under way in tensor memory, and what of it others are ordered after.

Accesses to tensor memory are ordered like others (see :mod:`..checks.happens_before`), with two rules on top. A tcgen05
instruction is ordered after what its warp learned up to its last ``tcgen05.fence::after_thread_sync``, and what
``tcgen05.wait`` completed is published by the next ``tcgen05.fence::before_thread_sync``. Both fences cost nothing on
the machine and only hold the compiler and the memory model back, so where nothing but a fence is missing, that is a
finding of the report and not a race. Text without any tcgen05 fence leaves this to the assembler's own tracking of
registers and barriers, as Triton's does: LLVM sinks its ``tcgen05.wait::ld`` below arithmetic, stores, shuffles and
even ``bar.sync``. There, neither missing fences nor registers used before the wait are reported; that every load has
been waited for when its columns are written again or given back, and when its warp exits, is checked in any text. See
PTX ISA, "tcgen05 memory consistency model".
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tilekit.emulator.core.checks.agents import Agent, Clock, Groups, Operation, Snapshot
from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.checks.shadow import Race
from tilekit.emulator.core.errors import InstructionLike, ProtocolError, Where, describe
from tilekit.emulator.ptx.matrix.tmem import TensorMemory

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.cta import Cta
    from tilekit.emulator.ptx.execution.warp import Warp

__all__ = [
    "TensorOperation",
    "TensorUnit",
    "Transfers",
    "fence_after",
    "fence_before",
    "tensor_memory",
    "tensor_unit",
    "touch_loading",
]


class TensorOperation(Operation):
    """An access to tensor memory.

    Attributes
    ----------
    full
        All that the issuer knew, fenced or not.
    completion
        Identity under which the issuer itself knows of the completion before it has published it.
    """

    __slots__ = ("completion", "full")

    def __init__(
        self, groups: Groups, unit: str, instruction: InstructionLike | None, completion: int, fenced: Clock
    ) -> None:
        # Tensor memory knows no proxies, so no access to it needs a proxy fence.
        super().__init__(
            groups.agent, unit, instruction, groups.identity, groups.epoch, asynchronous=False, groups=groups
        )
        self.full = self.clock
        self.completion = completion
        fenced[groups.agent.identity] = self.full[groups.agent.identity]
        self.clock = fenced


class Transfers:
    """The ``tcgen05.ld`` or ``tcgen05.st`` of one warp: known complete at the wait, to others after the fence."""

    def __init__(self, known: Groups, published: Groups) -> None:
        self.known = known
        self.published = published

    def wait(self) -> None:
        """``tcgen05.wait``."""
        self.known.commit()
        self.known.wait()
        self.published.commit()


class TensorUnit:
    """The tensor-memory side of one warp.

    Attributes
    ----------
    queue
        Operations of the tensor core that have been issued and have not landed, in order.
    stores
        ``tcgen05.st`` that have not been waited for.
    issued
        Whether anything that ``tcgen05.commit`` tracks was ever issued.
    """

    def __init__(self, warp: Warp) -> None:
        self.queue: deque[Any] = deque()
        self.stores: list[Any] = []
        self.issued = False
        self.observed: Clock = {}
        self.pipe: Groups | None = None
        self.ld: Transfers | None = None
        self.st: Transfers | None = None
        hb = warp.cta.launch.order
        if hb is not None:
            waits = "tcgen05.commit to an mbarrier, and a wait for it,"
            self.pipe = hb.groups(warp.agent, "tcgen05.mma", waits_with=waits)
            self.ld, self.st = (
                Transfers(
                    hb.groups(warp.agent, f"tcgen05.{name}", waits_with=f"tcgen05.wait::{name}"),
                    hb.groups(warp.agent, f"tcgen05.{name}", waits_with=f"tcgen05.wait::{name}"),
                )
                for name in ("ld", "st")
            )

    def _ordered(self) -> Clock:
        """What the warp's next tcgen05 instruction is ordered after, but for the warp's own accesses."""
        assert self.ld is not None
        assert self.st is not None
        clock = dict(self.observed)
        own = self.ld.known.agent.clock
        for transfers in (self.ld, self.st):
            clock[transfers.published.identity] = own.get(transfers.known.identity, 0)
        return clock

    def transfer(self, transfers: Transfers | None, unit: str, instruction: InstructionLike) -> TensorOperation | None:
        """The operation of a ``tcgen05.ld`` or ``tcgen05.st``; None when order is not checked."""
        if transfers is None:
            return None
        return TensorOperation(transfers.published, unit, instruction, transfers.known.identity, self._ordered())

    def pipelined(self, unit: str, instruction: InstructionLike | None) -> tuple[Operation, TensorOperation] | None:
        """The shared-memory and the tensor-memory side of an operation of the tensor core, which executes in order."""
        if self.pipe is None:
            return None
        pipe = self.pipe
        clock = self._ordered()
        clock[pipe.identity] = pipe.epoch
        tensor = TensorOperation(pipe, unit, instruction, pipe.identity, clock)
        shared = pipe.issue(instruction)
        shared.unit = unit
        return shared, tensor

    def committed(self) -> Snapshot | None:
        """What a ``tcgen05.commit`` that is issued now will publish."""
        if self.pipe is None:
            return None
        pipe = self.pipe
        issued = pipe.agent.snapshot()
        epoch = pipe.epoch
        pipe.epoch += 1
        return Snapshot(
            pipe.identity, epoch, issued.clock, issued.fenced, origin=issued.identity, origin_epoch=issued.epoch
        )


def tensor_unit(warp: Warp) -> TensorUnit:
    """The warp's tensor-memory side, made on first use."""
    if warp.tensor is None:
        warp.tensor = TensorUnit(warp)
    unit: TensorUnit = warp.tensor
    return unit


def tensor_memory(cta: Cta) -> TensorMemory:
    """The CTA's tensor memory, made on first use."""
    if cta.tensor_memory is None:
        on_race = None
        if cta.launch.order is not None:
            launch = cta.launch

            def on_race(race: Race) -> None:
                _report(launch, race)

        cta.tensor_memory = TensorMemory(cta.rank, on_race)
    memory: TensorMemory = cta.tensor_memory
    return memory


def _report(launch: Any, race: Race) -> None:
    """A race, unless nothing but a tcgen05 fence is missing."""
    earlier, later = race.earlier, race.later
    known = later.party.full if isinstance(later.party, TensorOperation) else later.party.clock
    completion = earlier.party.completion if isinstance(earlier.party, TensorOperation) else earlier.party.identity
    if known.get(completion, 0) < earlier.epoch:
        launch.findings.race(race)
        return
    if launch.program.fences_tensor_memory:
        launch.findings.add(_missing_fence(launch.program.name, race, known))


def _missing_fence(kernel: str, race: Race, known: Clock) -> Finding:
    """The finding for accesses that are ordered by all but a tcgen05 fence."""
    earlier, later = race.earlier, race.later
    if known.get(earlier.party.identity, 0) < earlier.epoch:
        fence, party = "before", earlier.party
        place = f"between its {party.unit} (with tcgen05.wait) and the barrier on which it arrives then"
    else:
        fence, party = "after", later.party
        place = f"between the barrier that it waited for and its {party.unit or 'access'}"
    memory: Any = race.memory
    # Said once for all warps of a role.
    who = f"role {party.actor.role}" if party.actor.role else str(party.actor)
    return Finding(
        "fence",
        f"no tcgen05.fence::{fence}_thread_sync by {who} {place}",
        (
            memory.describe(race.lo, race.hi),
            f"{earlier.party} at {describe(earlier.instruction)}",
            f"{later.party} at {describe(later.instruction)}",
        ),
        f"put tcgen05.fence::{fence}_thread_sync there",
        Where(kernel, later.party.actor, later.instruction),
    )


def fence_before(warp: Warp) -> None:
    """``tcgen05.fence::before_thread_sync``: what was waited for is published by the next release."""
    unit = tensor_unit(warp)
    for transfers in (unit.ld, unit.st):
        if transfers is not None:
            transfers.published.wait()


def fence_after(warp: Warp) -> None:
    """``tcgen05.fence::after_thread_sync``: later tcgen05 instructions are ordered after what was acquired."""
    agent: Agent | None = warp.agent
    if agent is not None:
        tensor_unit(warp).observed = agent.clock.copy()


def touch_loading(warp: Warp, position: int) -> None:
    """Raise: an instruction uses a register that a ``tcgen05.ld`` has not been waited for."""
    warp.at = position
    raise ProtocolError(
        "a register of a tcgen05.ld in flight is used: it holds nothing before tcgen05.wait::ld",
        hint="put tcgen05.wait::ld.sync.aligned between the load and the first use of its registers",
    )
