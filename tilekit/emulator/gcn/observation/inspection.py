"""Looking at a launch that stands still: registers, EXEC, LDS, barriers, what is outstanding, where every wave is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import LaunchError, nearest
from tilekit.emulator.core.observation.states import AsyncOperation, BarrierState, View, WarpState, grouped
from tilekit.emulator.gcn.execution.scalars import word
from tilekit.emulator.gcn.language.syntax import NAMED_REGISTERS, Instruction
from tilekit.emulator.gcn.memory.outstanding import SCALARS, ScalarData, ToLds, VectorData
from tilekit.emulator.gcn.observation.instrument import InstrumentedProgram

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.batch import Batch
    from tilekit.emulator.gcn.execution.workgroup import WaveState
    from tilekit.emulator.gcn.launch import Launch

__all__ = ["Inspection", "WavePlace"]

Array = npt.NDArray[Any]
_RANGE = re.compile(r"([vas])\[(\d+):(\d+)\]$")
_COUNTERS = ("vmcnt", "lgkmcnt")


class WavePlace(WarpState):
    """Where a wave is: `cluster` is the number of its workgroup."""

    unit: ClassVar[str] = "wave"

    def place(self, *, several: bool) -> str:
        """The workgroup, in words."""
        return f"workgroup {self.cluster}"


class Inspection(View):
    """The state of a launch between two instructions.

    Attributes
    ----------
    launch
        The launch.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._wave: WaveState | None = None
        self._position = 0
        self._waits_for = ""

    def place(self, wave: WaveState, position: int, waits_for: str) -> None:
        """Note where the launch stands: a wave before an instruction, or at one that waits."""
        self._wave, self._position, self._waits_for = wave, position, waits_for

    def leave(self) -> None:
        """Note that the launch stands nowhere."""
        self._wave = None

    # -- where -------------------------------------------------------------------------------------------------------

    @property
    def code(self) -> list[Instruction]:
        """All instructions of the kernel, by position."""
        program = self.launch.program
        assert isinstance(program, InstrumentedProgram)
        return program.code

    @property
    def warp(self) -> WaveState:
        """The wave that is about to run, or has just begun to wait."""
        if self._wave is None:
            raise LaunchError("the launch has ended: there is nothing to look at")
        return self._wave

    @property
    def instruction(self) -> Instruction:
        """The instruction that ``warp`` executes next, or waits at."""
        return self.code[self._position]

    @property
    def where(self) -> WarpState:
        """The place at which the launch stands."""
        return self._state(self.warp, self.instruction, self._waits_for)

    @staticmethod
    def _state(wave: WaveState, instruction: Instruction | None, waits_for: str) -> WarpState:
        actor = wave.order.actor
        return WavePlace(actor.cluster, 0, actor.warp, actor.role, instruction, waits_for)

    def warps(self) -> list[WarpState]:
        """Every wave of the workgroups that are resident."""
        standing = self._batch(self.warp)
        found = []
        for gang in self.launch.machine.resident:
            at: dict[WaveState, WarpState] = {}
            for batch in gang.batches:
                waits = "s_barrier" if batch.waiting is not None else ""
                i = batch.waiting or self.launch.program.first_of(batch.block)
                for wave in batch.waves:
                    here = batch is standing
                    at[wave] = self._state(wave, *((self.instruction, self._waits_for) if here else (i, waits)))
            for workgroup in gang.workgroups:
                found += [at.get(wave) or self._state(wave, None, "") for wave in workgroup.waves]
        return found

    def warp_at(self, warp: int, cta: int = 0) -> WaveState:
        """A wave of the workgroup that stands still, by its number there.

        Raises
        ------
        LaunchError
            If there is none.
        """
        if cta != 0:
            raise LaunchError.argument("cta", cta, "0: a workgroup is a cluster of one CTA", 0)
        waves = self.warp.workgroup.waves
        if not 0 <= warp < len(waves):
            raise LaunchError.argument("warp", warp, f"0 to {len(waves) - 1}", min(max(warp, 0), len(waves) - 1))
        return waves[warp]

    def _batch(self, wave: WaveState) -> Batch | None:
        for gang in self.launch.machine.resident:
            for batch in gang.batches:
                if wave in batch.waves:
                    return batch
        return None

    # -- registers ---------------------------------------------------------------------------------------------------

    def registers(self, *, warp: int | None = None, cta: int = 0) -> dict[str, Array]:
        """Values by name: of vector registers uint32, an element a lane; of scalar ones one uint32.

        Those that something has written, ``exec`` and ``vcc`` (a truth a lane), ``scc``, ``m0`` and ``mode``.

        Parameters
        ----------
        warp, cta
            Another wave than the one that stands here.
        """
        wave = self.warp if warp is None else self.warp_at(warp, cta)
        batch = self._batch(wave)
        if batch is None:
            return {}
        at = batch.waves.index(wave)
        found: dict[str, Array] = {}
        accumulators = self.launch.program.accumulators
        for number in range(len(batch.V)):
            if batch.written >> number & 1:
                name = f"v{number}" if number < accumulators else f"a{number - accumulators}"
                found[name] = batch.V[number, at].copy()
        for number in range(102):
            if batch.written >> (SCALARS + number) & 1:
                found[f"s{number}"] = self._scalar(batch, at, number)
        found["exec"] = batch.exec_mask()[at].copy()
        vcc = [int(self._scalar(batch, at, number)) for number in (106, 107)]
        found["vcc"] = np.unpackbits(np.array(vcc, np.uint32).view(np.uint8), bitorder="little").view(np.bool_)
        found["m0"] = self._scalar(batch, at, 124)
        found["scc"] = np.array(bool(np.broadcast_to(batch.scc, (batch.W, 1))[at, 0]))
        found["mode"] = np.array(batch.mode, np.uint32)
        return found

    @staticmethod
    def _scalar(batch: Batch, at: int, number: int) -> Array:
        value = word(batch.S, number)
        return np.array(
            np.broadcast_to(value, (batch.W, 1))[at, 0] if isinstance(value, np.ndarray) else value, np.uint32
        )

    def register(self, name: str, *, warp: int | None = None, cta: int = 0) -> Array:
        """One register, or a range such as ``v[2:5]``; see `registers`.

        Raises
        ------
        LaunchError
            If it holds nothing here; names the nearest that does.
        """
        found = self.registers(warp=warp, cta=cta)
        match = _RANGE.match(name)
        names = [name] if match is None else [f"{match[1]}{n}" for n in range(int(match[2]), int(match[3]) + 1)]
        for one in names:
            if one not in found:
                close = nearest(one, found) or None
                raise LaunchError.argument("name", name, "a register that holds a value at this place", close)
        return found[name] if match is None else np.stack([found[one] for one in names])

    # -- memory ------------------------------------------------------------------------------------------------------

    def shared(
        self, name: str | int, size: int | None = None, *, dtype: npt.DTypeLike = np.uint8, cta: int | None = None
    ) -> Array:
        """Bytes of LDS, of the workgroup that stands here.

        Parameters
        ----------
        name
            Of the ``//@shared`` map (``stage`` or ``stage[1]``), or an offset in LDS.
        size
            Bytes; None for all that the name covers, and needed with an offset.
        dtype
            Type of the elements.
        cta
            0 or None.

        Raises
        ------
        LaunchError
            If there is no such memory; names the nearest.
        """
        wave = self.warp_at(0, cta or 0)
        symbols = self.launch.symbols
        extent = (name, -1) if isinstance(name, int) else symbols.extent(name)
        if extent is None:
            raise symbols.unknown(str(name))
        start, length = extent[0], extent[1] if size is None else size
        if length < 0 or start < 0 or start + length > self.launch.lds_bytes:
            raise LaunchError.argument("size", size, f"within the {self.launch.lds_bytes} bytes of LDS")
        gang = next(gang for gang in self.launch.machine.resident if wave.workgroup in gang.workgroups)
        first = wave.workgroup.lds_base + start
        return gang.lds[first : first + length].copy().view(dtype)

    # -- barriers and memory operations ------------------------------------------------------------------------------

    def barriers(self) -> list[BarrierState]:
        """The barrier of the workgroup that stands still: its phase is how often it has been complete."""
        workgroup = self.warp.workgroup
        live = [wave for wave in workgroup.waves if not wave.ended]
        there = [wave for wave in live if wave.index in workgroup.arrived]
        waiting = tuple(str(wave.order.actor) for wave in there)
        state = BarrierState("s_barrier", 0, workgroup.meetings, len(live) - len(there), len(live), 0, waiting)
        return [state]

    def in_flight(self) -> list[AsyncOperation]:
        """What the waves of the workgroup that stands still have issued and not waited for."""
        found = []
        workgroup = self.warp.workgroup
        for gang in self.launch.machine.resident:
            for batch in gang.batches:
                for index, wave in enumerate(batch.waves):
                    if wave.workgroup is workgroup:
                        for which, queue in enumerate(batch.queues):
                            found += [self._operation(batch, index, which, operation) for operation in queue]
        return found

    def _operation(self, batch: Batch, at: int, which: int, operation: Any) -> AsyncOperation:
        issuer, name, size = str(batch.waves[at].order.actor), "", 0
        if isinstance(operation, ToLds):
            lanes = 64 if operation.lanes is None else int(np.count_nonzero(operation.lanes[at]))
            size = lanes * operation.data.shape[-1]
            low = int(operation.places[at].min()) - int(batch.lds_base[at, 0])
            name = f"LDS {self.launch.symbols.name(low) or hex(low)}"
        elif isinstance(operation, VectorData | ScalarData):
            names = NAMED_REGISTERS if operation.scalar else {}
            count = (operation.registers >> (SCALARS if operation.scalar else 0)).bit_count()
            size = 4 * count * (1 if operation.scalar else 64)
            known = next((n for n, place in names.items() if place == (operation.target, count)), "")
            name = known or self._range(operation.scalar, operation.target, count)
        return AsyncOperation(
            f"{_COUNTERS[which]} {operation.instruction.name}", issuer, operation.instruction, name, size
        )

    def _range(self, scalar: bool, first: int, count: int) -> str:
        accumulators = self.launch.program.accumulators
        file = "s" if scalar else "v" if first < accumulators else "a"
        first -= accumulators if file == "a" else 0
        return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"

    def __str__(self) -> str:
        if self._wave is None:
            return f"{self.launch.kernel.name}: has ended"
        where = self.where
        active = int(np.count_nonzero(self.registers()["exec"])) if self._batch(self.warp) else 0
        lines = [f"{self.launch.kernel.name}: workgroup {where.cluster}, {where}", f"  {active} active lanes (EXEC)"]
        for title, items in (
            ("waves", grouped(self.warps())),
            ("barriers", [str(state) for state in self.barriers() if not state.idle]),
            ("outstanding", [str(operation) for operation in self.in_flight()]),
        ):
            if items:
                lines += [f"  {title}", *(f"    {item}" for item in items)]
        return "\n".join(lines)
