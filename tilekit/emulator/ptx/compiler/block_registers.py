"""The registers of a block in its Python source: how they are read and written, and what is put off.

Inside a block registers are locals. A warp-uniform register is a Python integer (or bool); any other is an array of
lanes that is never changed in place, so copies are free; registers of matrix instructions are rows of the warp's tile
file, written in place. An array may be held in several representations (unsigned, signed, floating) of which views are
cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.errors import UnsupportedInstruction
from tilekit.emulator.ptx.compiler.batches import TILE_ROW, Batches, Member
from tilekit.emulator.ptx.compiler.control_flow import Block
from tilekit.emulator.ptx.compiler.late_stores import LateStore, LateStores
from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.syntax import (
    TYPE_BYTES,
    AddressOperand,
    Immediate,
    Operand,
    Register,
    RegisterOperand,
    Sink,
    SpecialRegister,
    SymbolOperand,
)

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program


DTYPES: dict[tuple[str, int], type[np.generic]] = {
    ("u", 8): np.uint8,
    ("u", 16): np.uint16,
    ("s", 16): np.int16,
    ("f", 16): np.float16,
    ("u", 32): np.uint32,
    ("s", 32): np.int32,
    ("f", 32): np.float32,
    ("u", 64): np.uint64,
    ("s", 64): np.int64,
    ("f", 64): np.float64,
    ("b", 1): np.bool_,
}
"""NumPy type of each representation: (``u`` unsigned, ``s`` signed, ``f`` floating, ``b`` predicate; bits)."""

TILE_TEXT = re.compile(r"\b[TA][UF]\[")
"""In a line of code that uses the tile file."""


def representation(kind: str) -> tuple[str, int]:
    """Tag and width of a PTX type; bit types, packed types and bf16 are handled as unsigned patterns."""
    if kind == "pred":
        return "b", 1
    bits = TYPE_BYTES[kind] * 8
    if kind[0] == "s":
        return "s", bits
    if kind in ("f16", "f32", "f64"):
        return "f", bits
    return "u", bits


class BlockRegisters:
    """The registers of the block that is being compiled, and the lines that use them.

    Attributes
    ----------
    decoded
        The current instruction.
    before, body
        Its lines: those that come first, and those under its uniform guard.
    condition
        Local of the lanes for which it is executed, where a predicate says so; else None.
    guarded
        Whether it has a uniform guard.
    held
        Locals that hold a register's value, by its number and the representation.
    broadcast
        Locals of uniform registers as arrays.
    changed
        Registers that are written back at the end of the block.
    batches, late
        Results and stores that were put off.
    moved
        By its number, the register of the tile file whose value a register has: copied when either changes.
    """

    def __init__(self, program: Program, block: Block, *, masked: bool) -> None:
        self.program = program
        self.block = block
        self.masked = masked
        self.namespace = program.namespace
        self.before: list[str] = []
        self.body: list[str] = []
        self.held: dict[int, dict[str, str]] = {}
        self.broadcast: dict[tuple[int, str], str] = {}
        self.changed: dict[int, Register] = {}
        self.batches = Batches()
        self.late = LateStores()
        self.moved: dict[int, int] = {}
        self.condition: str | None = None
        self.guarded = False
        self.decoded: Decoded = program.code[block.start] if program.code else None  # type: ignore[assignment]
        self._serial = 0

    # -- text --------------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        """Append a line to the current instruction, inside its uniform guard."""
        self.body.append(text)

    def temporary(self) -> str:
        """A fresh local name."""
        self._serial += 1
        return f"t{self._serial}"

    def constant(self, value: Any) -> str:
        """Name of a global of the generated code that holds a value."""
        if isinstance(value, int) and -(1 << 40) < value < 1 << 40:
            return str(value)
        key = f"C{len(self.namespace)}"
        self.namespace[key] = value
        return key

    def helper(self, function: Callable[..., Any]) -> str:
        """Name under which the generated code can call a function."""
        name = function.__name__
        self.namespace.setdefault(name, function)
        return name

    def helper_name(self, name: str) -> str:
        """A helper that the runtime namespace already has."""
        assert name in self.namespace, name
        return name

    def fail(self, message: str) -> UnsupportedInstruction:
        """The load-time error for the current instruction."""
        instruction = self.decoded.instruction
        return UnsupportedInstruction(
            f"{message}, in: {instruction.text}",
            line=instruction.line,
            column=instruction.column,
            form=instruction.name,
            hint=f"the form is '{self.decoded.form}'",
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def is_uniform(self, operand: Operand) -> bool:
        """Whether the operand is one value for the warp."""
        match operand:
            case RegisterOperand(register=register):
                return self.program.is_uniform(register)
            case SpecialRegister(name=name):
                return self.program.special_registers[name].uniform
            case AddressOperand(base=base):
                return self.is_uniform(base)
            case SymbolOperand(variable=variable):
                return variable.space not in ("local", "frame")
        return True

    def results_uniform(self) -> bool:
        """Whether every result register of the instruction is uniform: then it is computed on Python integers."""
        return all(self.program.is_uniform(register) for register in self.decoded.defs)

    def sources_uniform(self, *operands: Operand) -> bool:
        """Whether all the operands are uniform."""
        return all(self.is_uniform(operand) for operand in operands)

    def check_width(self, register: Register, kind: str, *, wider: bool = False) -> None:
        """Refuse a register whose width is not that of the instruction's type."""
        wanted = representation(kind)[1]
        if register.bits != wanted and not (wider and register.bits > wanted > 1):
            raise self.fail(f"register {register.name} is .{register.type}, the instruction's type is .{kind}")

    def scalar(self, operand: Operand, kind: str, *, wider: bool = False) -> str:
        """Expression for a uniform operand: a Python int in the type's range (signed for ``s``), or a bool."""
        tag, bits = representation(kind)
        match operand:
            case RegisterOperand(register=register, negated=negated):
                self.check_width(register, kind, wider=wider)
                if self.program.is_uniform(register):
                    name = f"k{register.number}"
                    if register.number not in self.held:
                        self.before.append(f"{name} = U[{register.number}]")
                        self.held[register.number] = {"k": name}
                    if wider and register.bits > bits:
                        name = f"({name} & {hex((1 << bits) - 1)})"
                else:
                    source = self.hold(register, "b" if kind == "pred" else "u")
                    name = f"{source}.item(0)"
                if negated:
                    return f"(not {name})"
                return f"signed{bits}({name})" if tag == "s" else name
            case Immediate():
                return str(self._immediate(operand, kind))
            case SpecialRegister(name=special):
                info = self.program.special_registers[special]
                if not info.uniform:
                    return f"{info.expression}.item(0)"
                return f"({info.expression})"
            case SymbolOperand(variable=variable, addend=addend):
                return self.program.symbol_expression(variable, addend)
        raise self.fail("this operand cannot be read as a number")

    def array(self, operand: Operand, kind: str, *, wider: bool = False) -> str:
        """Expression for an operand as an array of lanes of the type."""
        tag, bits = representation(kind)
        match operand:
            case RegisterOperand(register=register, negated=negated):
                self.check_width(register, kind, wider=wider)
                if self.program.is_uniform(register):
                    if negated or (wider and register.bits > bits):
                        value = self.scalar(operand, kind, wider=wider)
                        return self._view(f"full_{'b' if bits == 1 else 'u'}{bits}({value})", tag, bits)
                    return self._broadcast(register, tag, bits)
                if wider and register.bits > bits:
                    narrow = DTYPES["u", bits].__name__
                    return self._view(f"{self.hold(register, 'u')}.astype({narrow})", tag, bits)
                name = self.hold(register, tag)
                return f"(~{name})" if negated else name
            case Immediate():
                return self._constant_array(self._immediate(operand, kind, canonical=True), tag, bits)
            case SpecialRegister(name=special) if not self.program.special_registers[special].uniform:
                return self._view(self.program.special_registers[special].expression, tag, bits)
        return self._view(
            f"full_{'b' if bits == 1 else 'u'}{bits}({self.scalar(operand, kind.replace('s', 'u'))})", tag, bits
        )

    def any(self, operand: Operand, kind: str) -> str:
        """An array, or a Python int where the operand is a uniform register: NumPy integer operations take both."""
        if isinstance(operand, Immediate) or not self.is_uniform(operand):
            return self.array(operand, kind)
        return self.scalar(operand, kind)

    def _immediate(self, operand: Immediate, kind: str, *, canonical: bool = False) -> int | bool:
        """The constant as the type sees it; ``canonical`` gives the unsigned pattern."""
        tag, bits = representation(kind)
        value = operand.value
        if tag == "b":
            return bool(value)
        if operand.kind == "f64" and bits == 32:
            value = int(np.uint64(value).view(np.float64).astype(np.float32).view(np.uint32))
        elif operand.kind == "int" and kind == "f32":
            value = int(np.float32(value).view(np.uint32))
        elif operand.kind == "int" and kind == "f64":
            value = int(np.float64(value).view(np.uint64))
        value &= (1 << bits) - 1
        if tag == "s" and not canonical and value >> bits - 1:
            value -= 1 << bits
        return value

    def _constant_array(self, value: int | bool, tag: str, bits: int) -> str:
        key = f"K{tag}{bits}_{int(value):x}"
        if key not in self.namespace:
            if bits == 1:
                array = np.full(self.program.lanes, bool(value))
            else:
                array = np.full(self.program.lanes, value, DTYPES["u", bits]).view(DTYPES[tag, bits])
            array.flags.writeable = False
            self.namespace[key] = array
        return key

    def _broadcast(self, register: Register, tag: str, bits: int) -> str:
        key = (register.number, tag)
        if key not in self.broadcast:
            name = f"a{register.number}{tag}"
            value = self.scalar(RegisterOperand(register), f"b{bits}" if bits > 1 else "pred")
            plain = f"full_{'b' if bits == 1 else 'u'}{bits}({value})"
            self.before.append(f"{name} = {self._view(plain, tag, bits)}")
            self.broadcast[key] = name
        return self.broadcast[key]

    @staticmethod
    def _view(expression: str, tag: str, bits: int) -> str:
        """A view in the representation; ``expression`` is unsigned."""
        return expression if tag in "ub" else f"{expression}.view({DTYPES[tag, bits].__name__})"

    def hold(self, register: Register, tag: str) -> str:
        """Local name of an array register in a representation."""
        number = register.number
        row = self.program.tile_rows.get(self.moved.get(number, number))
        if row is not None:
            return {"u": f"TU[{row}]", "f": f"TF[{row}]", "s": f"TU[{row}].view(int32)"}[tag]
        self._compute([number] if number in self.batches else [])
        held = self.held.get(number)
        if held is None:
            home = self.program.home_tag(register)
            held = self.held[number] = {home: f"r{number}{home}"}
            self.before.append(f"r{number}{home} = V[{number}]")
        if tag not in held:
            source = next(iter(held.values()))
            name = f"r{number}{tag}"
            self.before.append(f"{name} = {source}.view({DTYPES[tag, register.bits].__name__})")
            held[tag] = name
        return held[tag]

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, operand: Operand, kind: str, expression: str, *, scalar: bool = False, wider: bool = False) -> None:
        """Assign a result: a Python value (``scalar``, unsigned pattern or bool) or an array of the type."""
        if isinstance(operand, Sink):
            self.emit(expression)
            return
        if not isinstance(operand, RegisterOperand):
            raise self.fail("the result must be a register")
        register = operand.register
        self.check_width(register, kind, wider=wider)
        tag, bits = representation(kind)
        if wider and register.bits > bits:
            expression, tag = self._widened(expression, tag, register.bits, scalar)
            bits = register.bits
        if self.program.is_uniform(register):
            if not scalar:  # kept as an unsigned pattern, or a bool
                pattern = f".view({DTYPES['u', bits].__name__})" if tag in "sf" else ""
                expression = f"({expression}){pattern}.item(0)"
            self._write_uniform(register, expression)
            return
        if scalar:
            expression = self._view(f"full_{'b' if bits == 1 else 'u'}{bits}({expression})", tag, bits)
        self._write_array(register, tag, expression)

    @staticmethod
    def _widened(expression: str, tag: str, bits: int, scalar: bool) -> tuple[str, str]:
        """A narrow value in a wider register: sign-extended for signed types, else zero-extended."""
        if scalar:
            return (f"({expression}) & {hex((1 << bits) - 1)}" if tag == "s" else expression), "u"
        return f"({expression}).astype({DTYPES[tag if tag == 's' else 'u', bits].__name__})", tag if tag == "s" else "u"

    def _write_uniform(self, register: Register, expression: str) -> None:
        number = register.number
        name = f"k{number}"
        self._read_before(number)
        if self.guarded and number not in self.held:
            self.before.append(f"{name} = U[{number}]")
        self.emit(f"{name} = {expression}")
        self.held[number] = {"k": name}
        self.changed[number] = register
        for key in [key for key in self.broadcast if key[0] == number]:
            del self.broadcast[key]

    def _write_array(self, register: Register, tag: str, expression: str) -> None:
        number = register.number
        condition = self._written_where(register)
        self._read_before(number)
        row = self.program.tile_rows.get(number)
        moved = TILE_ROW.fullmatch(expression)
        if row is not None:
            for other in [other for other, source in self.moved.items() if source == number]:
                self.copy_moved(other)
            target = {"u": f"TU[{row}]", "f": f"TF[{row}]", "s": f"TU[{row}].view(int32)"}[tag]
            if condition is None:
                self.emit(f"{target}[:] = {expression}")
            else:
                self.emit(f"copyto({target}, {expression}, where={condition})")
            return
        if condition is not None or self.guarded:
            self.copy_moved(number)
            old = self.hold(register, tag)
            if condition is not None:
                expression = f"where({condition}, {expression}, {old})"
            elif moved:
                expression += ".copy()"
        self.batches.drop(number)
        self.moved.pop(number, None)
        if moved and condition is None and not self.guarded:
            self.moved[number] = self.program.tile_registers[int(moved[2])]
            self.held.pop(number, None)
            self.changed[number] = register
            return
        name = f"r{number}{tag}"
        self.emit(f"{name} = {expression}")
        self.held[number] = {tag: name}
        self.changed[number] = register

    def _written_where(self, register: Register) -> str | None:
        """Expression for the lanes whose value the current instruction changes; None for all that matter."""
        if self.condition is None and self.masked and self.program.is_contested(register):
            return "m"
        return self.condition

    def write_later(self, operand: Operand, kind: str, template: str, *sources: tuple[Operand, str]) -> None:
        """Assign a result that is computed when it is needed, together with others of its kind.

        Parameters
        ----------
        operand, kind
            The result, as for `write`.
        template
            Expression in ``{0}``, ``{1}`` that works on arrays of any shape, element by element.
        sources
            What these are: operands, and the types as which they are read.
        """
        texts = tuple(self.array(source, source_kind) for source, source_kind in sources)
        register = operand.register if isinstance(operand, RegisterOperand) else None
        if (
            register is None
            or self.program.warps > 1
            or self.guarded
            or register.number in self.program.tile_rows
            or self.program.is_uniform(register)
            or self._written_where(register) is not None
        ):
            self.write(operand, kind, template.format(*texts))
            return
        self.check_width(register, kind)
        number, tag = register.number, representation(kind)[0]
        read = [s.register.number for s, _ in sources if isinstance(s, RegisterOperand)]
        reads = frozenset((*read, *(self.moved[source] for source in read if source in self.moved)))
        self._read_before(number)
        name = f"r{number}{tag}"
        self.batches.drop(number)
        self.moved.pop(number, None)
        if number in reads:
            self.emit(f"{name} = {template.format(*texts)}")
        else:
            self.batches.add(Member(number, name, template, texts, reads))
        self.held[number] = {tag: name}
        self.changed[number] = register

    def _read_before(self, number: int) -> None:
        """Before a register changes: have what was put off and reads it."""
        if self.late.reads(number):
            self.make_stores()
        self._compute(self.batches.readers(number))

    def _compute(self, numbers: Sequence[int]) -> None:
        """Compute results that were put off, before the current instruction."""
        for number in numbers:
            if number in self.batches:
                self.before += self.batches.compute(number, self.temporary())

    def leave_tile(self) -> None:
        """Before the tile file changes: have what is still needed of it, put off or moved."""
        for number in (*self.batches.reading(self.program.tile_rows), *self.moved):
            if self._needed(number):
                self._compute([number])
                self.copy_moved(number)
            else:
                self.batches.drop(number)
                self.moved.pop(number, None)
                self.held.pop(number, None)
                self.changed.pop(number, None)

    def copy_moved(self, number: int) -> None:
        """Give a register that holds what one of the tile file does an array of its own."""
        source = self.moved.pop(number, None)
        if source is not None:
            name = f"r{number}u"
            self.before.append(f"{name} = TU[{self.program.tile_rows[source]}].copy()")
            self.held[number] = {"u": name}

    def _needed(self, number: int) -> bool:
        """Whether the current instruction, or one behind it, reads what a register holds now."""
        for decoded in self.program.code[self.decoded.index : self.block.end]:
            if any(register.number == number for register in decoded.uses):
                return True
            if any(register.number == number for register in decoded.defs):
                return self.masked or decoded.guard is not None
        return bool(self.block.live_out >> number & 1)

    # -- stores ------------------------------------------------------------------------------------------------------

    def stores_later(self) -> bool:
        """Whether the current instruction, a store, may be made together with others."""
        return not (self.program.each_access or self.masked or self.decoded.guard is not None)

    def store_later(
        self, call: str, address: str, operands: Sequence[Operand], values: Callable[[], Sequence[str]]
    ) -> None:
        """Put a store off; see `LateStore`. ``operands`` are what ``values`` reads."""
        name = self.temporary()
        self.emit(f"{name} = {address}")
        read = [operand.register.number for operand in operands if isinstance(operand, RegisterOperand)]
        reads = frozenset((*read, *(self.moved[number] for number in read if number in self.moved)))
        self.late.add(LateStore(call, self.decoded.index, name, values, reads))

    def make_stores(self) -> None:
        """Make the stores that were put off, before the current instruction."""
        if self.late:
            lines = list(self.late.make())  # what they store is computed before
            self.before += lines
