"""The statements of one basic block: what instructions add to, and how they write their results."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from tilekit.emulator.gcn.chips import Chip
from tilekit.emulator.gcn.compiler.operands import bits_of, scalar, scalar64, source, unsupported
from tilekit.emulator.gcn.language.syntax import EXEC, M0, VCC, Constant, Instruction, Operand, Register

__all__ = ["Emitter"]


class Emitter:
    """Collects the source of one block.

    Parameters
    ----------
    accumulators
        Number of the first vector register that ``a`` registers are.
    masked
        Whether some lanes are inactive.
    flush
        Whether float32 denormals are flushed.
    maskable
        Scalar registers that may hold masks of lanes.
    chip
        Which chip runs it.
    index_of, counter_of
        The index of an instruction in the text, and that which the program counter had when it was last read before.
    labels
        Of the text.

    Attributes
    ----------
    lines
        Statements so far.
    names
        Objects that they refer to.
    instruction, sources, dpp
        Of the instruction under way: its sources, and how lanes of its first are moved.
    """

    def __init__(
        self,
        accumulators: int,
        *,
        masked: bool,
        flush: bool,
        maskable: frozenset[int],
        chip: Chip,
        index_of: Callable[[Instruction], int],
        counter_of: Callable[[Instruction], int | None],
        labels: Container[str],
    ) -> None:
        self.index_of = index_of
        self.counter_of = counter_of
        self.labels = labels
        self.accumulators = accumulators
        self.masked = masked
        self.flush = flush
        self.maskable = maskable
        self.chip = chip
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.instruction: Instruction = None  # type: ignore[assignment]
        self.sources: tuple[Operand, ...] = ()
        self.dpp: str | None = None
        self.lanes = "E" if masked else "None"
        self._constants: dict[tuple[str, int], str] = {}

    def add(self, line: str) -> None:
        """Add a statement."""
        self.lines.append(line)

    def name(self, value: Any, stem: str) -> str:
        """Return a name for an object in the generated code."""
        name = f"_{stem}{len(self.names)}"
        self.names[name] = value
        return name

    def constant(self, value: np.generic) -> str:
        """Return the name of a NumPy number."""
        key = (value.dtype.str, int(value))
        if key not in self._constants:
            self._constants[key] = self.name(value, "K")
        return self._constants[key]

    def begin(self, instruction: Instruction, sources: tuple[Operand, ...]) -> None:
        """Start an instruction with these sources."""
        self.instruction = instruction
        self.sources = sources
        self.dpp = None
        self.lanes = "E" if self.masked else "None"

    def only_on(self, chip: str) -> None:
        """Refuse an instruction that this chip lacks."""
        if self.chip.name != chip:
            raise unsupported(self.instruction, f"is an instruction of {chip}, and the device is a {self.chip.name}")

    def check_lds_size(self, size: int) -> None:
        """Refuse loads to LDS of more than a word a lane where the chip lacks them."""
        if size > 4:
            self.only_on("gfx950")

    # -- registers ---------------------------------------------------------------------------------------------------

    def vector(self, operand: Operand, count: int = 0) -> int:
        """Number of a vector register's row; `count` is how many the instruction takes."""
        if not isinstance(operand, Register) or operand.file == "s":
            raise unsupported(self.instruction, "needs a vector register there")
        if count and operand.count != count:
            raise unsupported(self.instruction, f"needs {count} vector register{'s' * (count > 1)} there")
        return operand.first + (self.accumulators if operand.file == "a" else 0)

    def scalar(self, operand: Operand) -> str:
        """A 32-bit scalar source."""
        return scalar(self, operand)

    def scalar64(self, operand: Operand) -> str:
        """A 64-bit scalar source."""
        return scalar64(self, operand)

    def source(self, index: int, kind: str) -> str:
        """A vector source."""
        return source(self, index, kind)

    def plain(self, index: int) -> Operand:
        """Take the signs off a source, and return it: the instruction applies them itself."""
        operand = self.sources[index]
        if isinstance(operand, Register):
            operand = Register(operand.file, operand.first, operand.count)
            self.sources = (*self.sources[:index], operand, *self.sources[index + 1 :])
        return operand

    def half_constant(self, constant: Constant) -> str:
        """A constant as the bits of a float16."""
        return self.constant(np.uint32(bits_of(constant, "f16")))

    def put_scalar(self, operand: Operand, expression: str) -> None:
        """Write a 32-bit scalar register."""
        number = self._scalar_number(operand, 1)
        if number in (EXEC, EXEC + 1):
            self.add(f"B.set_exec_half({number - EXEC}, {expression})")
        elif number in self.maskable:
            self.add(f"put32(S, {number}, {expression})")
        else:
            self.add(f"S[{number}] = {expression}")

    def put_scalar64(self, operand: Operand, expression: str) -> None:
        """Write a pair of scalar registers."""
        number = self._scalar_number(operand, 2)
        if number == EXEC:
            self.add(f"B.set_exec({expression})")
        else:
            self.add(f"put64(S, {number}, {expression})")

    def _scalar_number(self, operand: Operand, count: int) -> int:
        if not isinstance(operand, Register) or operand.file != "s" or operand.count != count:
            raise unsupported(self.instruction, f"needs {'a scalar register' if count == 1 else 'a pair of them'}")
        if operand.first > EXEC + 1 or (count == 2 and operand.first == M0):
            raise unsupported(self.instruction, f"cannot write {operand}")
        return operand.first

    def mask(self, operand: Operand) -> str:
        """A 64-bit scalar source as a mask of lanes."""
        return f"mask_of({self.scalar64(operand)}, W)"

    # -- results -----------------------------------------------------------------------------------------------------

    def put_mask(self, operand: Operand, expression: str) -> None:
        """Write one bit a lane to a pair of scalar registers; inactive lanes give 0."""
        value = f"({expression}) & E" if self.masked else f"spread({expression}, W)"
        self.put_scalar64(operand, value)

    def put(self, operand: Operand, expression: str, kind: str) -> None:
        """Write a vector register with a value of a kind, in the active lanes, after the output modifiers."""
        number = self.vector(operand)
        expression = self._finished(expression, kind)
        if kind[1:] == "64":
            self.add(f"t = ({expression}).view(u8)")
            self.row(number, "t.astype(u4)")
            self.row(number + 1, "(t >> 32).astype(u4)")
            return
        if kind[1:] == "16":
            self._put_half(number, expression, kind)
            return
        modifiers = self.instruction.modifiers
        if modifiers.get("dst_sel", "DWORD") != "DWORD":
            view = expression if kind[0] in "ub" else f"({expression}).view(u4)"
            self.row(number, f"insert({view}, U[{number}], {modifiers['dst_sel']!r}, "
                             f"{modifiers.get('dst_unused', 'UNUSED_PRESERVE')!r})")  # fmt: skip
            return
        self.row(number, expression, {"f": "F", "i": "I"}.get(kind[0], "U"))

    def _put_half(self, number: int, expression: str, kind: str) -> None:
        """Write 16 bits: the upper ones are cleared unless modifiers say otherwise."""
        bits = f"({expression}).view(u2).astype(u4)"
        modifiers = self.instruction.modifiers
        chosen = modifiers.get("op_sel")
        if modifiers.get("dst_sel", "WORD_0") != "WORD_0" or "dst_unused" in modifiers:
            selection = modifiers.get("dst_sel", "DWORD")
            if selection != "DWORD":
                self.row(number, f"insert({bits}, U[{number}], {selection!r}, "
                                 f"{modifiers.get('dst_unused', 'UNUSED_PRESERVE')!r})")  # fmt: skip
                return
        if chosen and len(chosen) > len(self.sources) and chosen[-1]:
            self.row(number, f"(U[{number}] & 0xFFFF) | ({bits} << 16)")
        elif self.instruction.name in _KEEP_UPPER:
            self.row(number, f"(U[{number}] & 0xFFFF0000) | {bits}")
        else:
            self.row(number, bits)

    def row(self, number: int, expression: str, file: str = "U") -> None:
        """Write a row in the active lanes."""
        if self.lanes == "None":
            self.add(f"{file}[{number}][...] = {expression}")
        else:
            self.add(f"copyto({file}[{number}], {expression}, where={self.lanes})")

    def _finished(self, expression: str, kind: str) -> str:
        """Apply flushing, ``omod`` and ``clamp``."""
        modifiers = self.instruction.modifiers
        if kind == "f32" and self.flush:
            expression = f"flushed({expression})"
        if kind[0] == "f":
            if "mul" in modifiers:
                expression = f"({expression}) * {modifiers['mul']}"
            if "div" in modifiers:
                expression = f"({expression}) * 0.5"
            if modifiers.get("clamp"):
                expression = f"clamped({expression})"
        elif modifiers.get("clamp") and self.instruction.name not in SATURATING:
            raise unsupported(self.instruction, "with clamp is not executed")
        return expression

    def vcc(self) -> Register:
        """The register VCC."""
        return Register("s", VCC, 2)


_KEEP_UPPER = {"v_fma_f16", "v_mad_f16", "v_mad_u16", "v_mad_i16", "v_div_fixup_f16", "v_fma_mixlo_f16"}
"""Instructions of 16 bits that leave the upper ones as they are; all others clear them on these chips."""
SATURATING = {
    f"v_{name}_{kind}" for name in ("add", "sub", "subrev") for kind in ("u32", "i32", "u16", "i16")
}  # fmt: skip
"""Integer instructions that ``clamp`` holds within the range of their type."""
