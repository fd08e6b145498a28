"""Looking at a launch that stands still: registers, memory, barriers, what is in flight, where every warp is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import LaunchError, nearest
from tilekit.emulator.core.memory.memory import RESERVED_SHARED
from tilekit.emulator.core.observation.states import AsyncOperation, BarrierState, View, WarpState, grouped
from tilekit.emulator.ptx.compiler.instrument import wait_name
from tilekit.emulator.ptx.copies.bulk import InFlight, Load, Store
from tilekit.emulator.ptx.language.syntax import TYPE_BYTES, Instruction, Register

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.execution.warp import Warp
    from tilekit.emulator.ptx.launch import Launch

__all__ = ["Inspection"]

Array = npt.NDArray[Any]
_NUMERIC = ("f16", "f32", "f64", "s8", "s16", "s32", "s64")


class Inspection(View):
    """The state of a launch between two instructions.

    Attributes
    ----------
    launch
        The launch.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._warp: Warp | None = None
        self._position = 0
        self._waits_for = ""

    def place(self, warp: Warp, position: int, waits_for: str) -> None:
        """Note where the launch stands: a warp before an instruction, or at one that waits."""
        self._warp, self._position, self._waits_for = warp, position, waits_for

    def leave(self) -> None:
        """Note that the launch stands nowhere."""
        self._warp = None

    # -- where -------------------------------------------------------------------------------------------------------

    @property
    def warp(self) -> Warp:
        """The warp that is about to run, or has just begun to wait."""
        if self._warp is None:
            raise LaunchError("the launch has ended: there is nothing to look at")
        return self._warp

    @property
    def instruction(self) -> Instruction:
        """The instruction that ``warp`` executes next, or waits at."""
        return self.launch.program.instruction(self._position)

    @property
    def where(self) -> WarpState:
        """The place at which the launch stands."""
        warp = self.warp
        return WarpState(
            warp.cta.cluster.number, warp.cta.rank, warp.index, warp.role, self.instruction, self._waits_for
        )

    def warps(self) -> list[WarpState]:
        """Every warp of the clusters that are resident; of a warp whose lanes have parted, each part."""
        found = []
        for cluster in self.launch.machine.resident:
            for warp in cluster.warps:
                place = cluster.number, warp.cta.rank, warp.index, warp.role
                if warp is self._warp:
                    found.append(self.where)
                elif warp.done:
                    found.append(WarpState(*place, None, ""))
                else:
                    for fragment in warp.fragments:
                        at = warp.program.flow.blocks[fragment.block].start
                        wait = "" if fragment.blocked is None else wait_name(fragment.blocked)
                        found.append(WarpState(*place, warp.program.instruction(at), wait))
        return found

    def warp_at(self, warp: int, cta: int = 0) -> Warp:
        """A warp of the cluster that stands still, by its index in its CTA and the CTA's rank.

        Raises
        ------
        LaunchError
            If there is none.
        """
        ctas = self.warp.cta.cluster.ctas
        if not 0 <= cta < len(ctas):
            raise LaunchError.argument("cta", cta, f"0 to {len(ctas) - 1}", min(max(cta, 0), len(ctas) - 1))
        warps = ctas[cta].warps
        if not 0 <= warp < len(warps):
            raise LaunchError.argument("warp", warp, f"0 to {len(warps) - 1}", min(max(warp, 0), len(warps) - 1))
        return warps[warp]

    # -- registers ---------------------------------------------------------------------------------------------------

    def registers(self, *, warp: int | None = None, cta: int = 0) -> dict[str, Array]:
        """Values by PTX name, an element a lane, in the register's declared type (untyped ones as unsigned integers).

        Those that are still needed from here on, and those written earlier in the same block: what else a register
        held is gone.

        Parameters
        ----------
        warp, cta
            Another warp than the one that stands here.
        """
        other = self.warp if warp is None else self.warp_at(warp, cta)
        if other.done:
            return {}
        position = self._position
        if other is not self.warp:
            fragment = other.runnable() or other.fragments[0]
            position = other.program.flow.blocks[fragment.block].start
        return {name: _value(other, register) for name, register in _known_at(other.program, position).items()}

    def register(self, name: str, *, warp: int | None = None, cta: int = 0) -> Array:
        """One register; see `registers`.

        Raises
        ------
        LaunchError
            If it holds nothing here; names the nearest that does.
        """
        found = self.registers(warp=warp, cta=cta)
        if name not in found:
            close = nearest(name, found) or None
            raise LaunchError.argument("name", name, "a register that holds a value at this place", close)
        return found[name]

    # -- memory ------------------------------------------------------------------------------------------------------

    def shared(
        self, name: str | int, size: int | None = None, *, dtype: npt.DTypeLike = np.uint8, cta: int | None = None
    ) -> Array:
        """Bytes of shared memory.

        Parameters
        ----------
        name
            Of the ``//@shared`` map (``stage`` or ``stage[1]``), of a static variable, or an offset in dynamic shared
            memory.
        size
            Bytes; None for all that the name covers, and needed with an offset.
        dtype
            Type of the elements.
        cta
            Rank in the cluster; None for the CTA of the warp that stands here.

        Raises
        ------
        LaunchError
            If there is no such memory; names the nearest.
        """
        owner = self.warp.cta if cta is None else self.warp_at(0, cta).cta
        start, length = self._range(name)
        length = length if size is None else size
        if length < 0 or start + length > owner.shared.size or start < RESERVED_SHARED:
            legal = f"within the {owner.shared.size - RESERVED_SHARED} bytes of shared memory"
            raise LaunchError.argument("size", size, legal)
        return owner.shared.data[start : start + length].copy().view(dtype)

    def _range(self, name: str | int) -> tuple[int, int]:
        """Offset in a CTA's shared memory, and bytes."""
        layout, symbols = self.launch.program.layout, self.launch.symbols
        if isinstance(name, int):
            return layout.dynamic_base + name, -1
        found = symbols.extent(name)
        if found is not None:
            return layout.dynamic_base + found[0], found[1]
        variable = layout.static_variable(name)
        if variable is not None:
            return layout.offset(variable), variable.size
        raise symbols.unknown(name)

    # -- barriers and asynchronous operations ------------------------------------------------------------------------

    def barriers(self) -> list[BarrierState]:
        """The mbarriers of the cluster that stands still."""
        return [
            BarrierState(
                barrier.name,
                barrier.address >> 24,
                barrier.phase,
                barrier.pending,
                barrier.expected,
                barrier.tx,
                tuple(str(waiter.actor) for waiter in barrier.waiters.values()),
            )
            for barrier in self.warp.cta.cluster.mbarriers
        ]

    def in_flight(self) -> list[AsyncOperation]:
        """What was issued and has not landed, wgmma included."""
        found = [self._operation(p) for p in self.launch.machine.pending if isinstance(p, InFlight) and not p.done]
        for cluster in self.launch.machine.resident:
            for cta in cluster.ctas:
                for group in cta.warpgroups:
                    issuer = str(group.warps[0].actor)
                    found += [AsyncOperation("wgmma", issuer, c.instruction, "", 0) for c in group.issued]
        return found

    def _operation(self, operation: InFlight) -> AsyncOperation:
        where = operation.where
        unit, name, size = type(operation).__name__.lower(), "", 0
        if isinstance(operation, Load | Store):
            name = self.launch.shared_name(operation.offset) or f"shared memory {operation.offset:#x}"
            unit = "load to" if isinstance(operation, Load) else "store from"
            size = operation.size
        instruction = where.instruction
        assert instruction is None or isinstance(instruction, Instruction)
        return AsyncOperation(unit, str(where.actor), instruction, name, size)

    def __str__(self) -> str:
        if self._warp is None:
            return f"{self.launch.program.name}: has ended"
        where = self.where
        lines = [f"{self.launch.program.name}: cluster {where.cluster}, CTA {where.cta}, {where}"]
        barriers = self.barriers()
        busy = [state for state in barriers if not state.idle]
        shown = [f"CTA {state.cta} {state}" for state in busy]
        if len(busy) < len(barriers):
            idle = len(barriers) - len(busy)
            shown.append(f"{idle} other{'s' if idle > 1 else ''} that no thread has used yet")
        for title, items in (
            ("warps", grouped(self.warps())),
            ("barriers", shown),
            ("in flight", [str(operation) for operation in self.in_flight()]),
        ):
            if items:
                lines += [f"  {title}", *(f"    {item}" for item in items)]
        return "\n".join(lines)


def _known_at(program: Program, position: int) -> dict[str, Register]:
    """Registers whose value is kept before an instruction, by name: a name may stand for others elsewhere."""
    block = next(b for b in program.flow.blocks if b.start <= position < b.end)
    live = block.live_out
    for at in reversed(range(position, block.end)):
        decoded = program.code[at]
        for register in decoded.defs:
            live = live | 1 << register.number if decoded.guard is not None else live & ~(1 << register.number)
        for register in decoded.uses:
            live |= 1 << register.number
    known = {register.name: register for at in range(block.start, position) for register in program.code[at].defs}
    return known | {register.name: register for register in program.registers if live >> register.number & 1}


def _value(warp: Warp, register: Register) -> Array:
    """A register's 32 values in its declared type."""
    program = warp.program
    row = program.tile_rows.get(register.number)
    value: Array
    if row is not None:
        value = warp.tile[row].copy()
    elif program.is_uniform(register):
        # A parameter's address moved into a 32-bit register is kept whole.
        pattern = warp.uniforms[register.number] & ((1 << register.bits) - 1)
        value = np.full(32, pattern, np.bool_ if register.type == "pred" else f"u{register.bits // 8}")
    else:
        value = warp.arrays[register.number].copy()
    if register.type in _NUMERIC:
        return value.view(f"{'i' if register.type[0] == 's' else 'f'}{TYPE_BYTES[register.type]}")
    return value if register.type in ("pred", "b128") else value.view(f"u{register.bits // 8}")
