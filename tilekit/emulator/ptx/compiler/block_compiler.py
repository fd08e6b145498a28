"""Basic blocks to Python source.

A block becomes one function, in two variants: for a full warp, and for some of its lanes (with a mask).
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from tilekit.emulator.ptx.compiler.block_registers import TILE_TEXT, BlockRegisters
from tilekit.emulator.ptx.compiler.control_flow import Block
from tilekit.emulator.ptx.compiler.late_stores import PASSES
from tilekit.emulator.ptx.compiler.unwritten import check_written, wrote
from tilekit.emulator.ptx.execution.convergence import came_together

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program

_OWN_ORDER = ("bar", "barrier", "ldmatrix", "stmatrix")
"""``.aligned`` instructions that order memory themselves, or access it."""


class BlockCompiler(BlockRegisters):
    """Emits the function of one block; the emitters of ``ops`` call :meth:`array`, :meth:`scalar`, :meth:`write`."""

    def __init__(self, program: Program, block: Block, *, masked: bool) -> None:
        super().__init__(program, block, masked=masked)
        self.lines: list[str] = []
        self.returned = False
        self._tile_touched = 0

    # -- whole block -------------------------------------------------------------------------------------------------

    def compile(self) -> tuple[str, CodeType]:
        """Source text and code object of the block's function ``block(w, m)``."""
        for position in range(self.block.start, self.block.end):
            self.decoded = self.program.code[position]
            self._instruction()
        if not self.returned:
            self.before = []
            self.make_stores()
            self.lines += self.before
            self.store_changed()
            self.line(f"return {self.block.index + 1}")
        header = ["def block(w, m):", "    V = w.arrays; U = w.uniforms"]
        if any(TILE_TEXT.search(line) for line in self.lines):
            header.append("    TU, TF, AU, AF = w.tile_rows or w.open_tile()")
        source = "\n".join(header + ["    " + line for line in self.lines])
        name = f"<{self.program.name} block {self.block.index}{' masked' if self.masked else ''}>"
        return source, compile(source, name, "exec")

    def _instruction(self) -> None:
        guard = self.decoded.guard
        self.before, self.body = [], []
        self.condition, self.guarded = None, False
        opcode = self.decoded.form.opcode
        if opcode not in PASSES and opcode not in ("st", "stmatrix"):
            self.make_stores()
        if opcode in ("wgmma", "tcgen05"):
            self.leave_tile()
        self.check_tile_registers()
        test = ""
        if guard is not None and self.decoded.form.flow not in ("branch", "exit"):
            if self.is_uniform(guard):
                test = self.scalar(guard, "pred")
                self.guarded = True
            else:
                value = self.array(guard, "pred")
                self.condition = self.temporary()
                self.before.append(f"{self.condition} = {value}" + (" & m" if self.masked else ""))
        if self.decoded.aligned and (self.masked or self.condition is not None):
            place = f"{self.decoded.index}, {self.condition or 'm'}"
            self.before.append(f"{self.helper_name('require_together')}(w, {place})")
        self._check_written()
        self.decoded.form.emit(self, self.decoded)
        self._note_written()
        if self.decoded.aligned and self.decoded.form.opcode not in _OWN_ORDER and self.program.each_access:
            self.emit(f"if w.agent is not None: {self.helper(came_together)}(w)")
        self.lines += self.before
        if test and self.body:
            self.lines.append(f"if {test}:")
            self.lines += ["    " + line for line in self.body]
        else:
            self.lines += self.body

    def _check_written(self) -> None:
        """Have the reads watched that may come before anything has written the register."""
        watched = self.program.watched
        for read in watched.reads.get(self.decoded.index, ()):
            slot = None if read.certain else watched.slots[read.register.number]
            guard = self.decoded.guard
            guards = guard is not None and guard.register.number == read.register.number
            mask = ("m" if self.masked else "None") if guards else self.mask()
            call = f"{self.helper(check_written)}(w, {self.constant(read)}, {slot}, {mask})"
            (self.before if guards else self.body).append(
                call if slot is None else f"if w.written[{slot}] is not True: {call}"
            )

    def _note_written(self) -> None:
        for register in self.decoded.defs:
            slot = self.program.watched.slots.get(register.number)
            if slot is not None:
                self.emit(f"{self.helper(wrote)}(w, {slot}, {self.mask()})")

    def check_tile_registers(self) -> None:
        """Fault on ordinary use of registers that a wgmma or tcgen05.ld owns; note writes that need wgmma.fence."""
        program = self.program
        if self.decoded.form.opcode == "wgmma" or not program.tile_rows or not program.uses_wait:
            return
        if self.decoded.form.opcode == "tcgen05" and self.decoded["op"] == "ld":
            for register in self.decoded.defs:
                self._tile_touched &= ~(1 << program.tile_rows[register.number])
            return
        touched = written = 0
        for register in (*self.decoded.uses, *self.decoded.defs):
            row = program.tile_rows.get(register.number)
            if row is not None:
                touched |= 1 << row
        for register in self.decoded.defs:
            row = program.tile_rows.get(register.number)
            if row is not None:
                written |= 1 << row
        fresh = touched & ~self._tile_touched
        if fresh:
            self._tile_touched |= fresh
            mask = self.constant(fresh)
            self.before.append(
                f"if w.in_flight & {mask}: {self.helper_name('touch_in_flight')}(w, {self.decoded.index})"
            )
        if written:
            self.before.append(f"w.unfenced |= {self.constant(written)}")

    def store_changed(self) -> None:
        """Write live registers back, at the end of the block."""
        live = self.block.live_out
        for number, register in self.changed.items():
            if not live >> number & 1:
                continue
            if self.program.is_uniform(register):
                self.line(f"U[{number}] = k{number}")
            else:
                home = self.program.home_tag(register)
                self.before = []
                self.copy_moved(number)
                name = self.hold(register, home)
                self.lines += self.before
                self.line(f"V[{number}] = {name}")
        self.changed = {}

    # -- text --------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Append a line after everything emitted so far, outside the instruction's guard."""
        self.lines.append(text)

    # -- effects -----------------------------------------------------------------------------------------------------

    def mask(self) -> str:
        """Expression for the active lanes of an instruction with effects: ``None`` for all."""
        if self.condition is not None:
            return self.condition
        return "m" if self.masked else "None"

    def effect(self, call: str) -> None:
        """A call that does something for each active lane; skipped when there is none."""
        self.make_stores()
        if self.condition is not None:
            self.emit(f"if 1 in {self.condition}.tobytes(): {call}")
        else:
            self.emit(call)

    def place(self) -> None:
        """Record which instruction is running, for messages."""
        self.emit(f"w.at = {self.decoded.index}")

    def leave(self, text: str) -> None:
        """End the block: store what is live, then the given return statement."""
        self.lines += self.before + self.body
        self.before, self.body = [], []
        self.store_changed()
        self.line(text)
        self.returned = True
