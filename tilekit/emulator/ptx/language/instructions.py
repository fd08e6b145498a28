"""Instructions and their operands, parsed to :mod:`.syntax`.

Source: PTX ISA, sections 4.5, 5.4 and 6.
"""

from __future__ import annotations

from dataclasses import replace

from tilekit.emulator.ptx.language.call_rules import call_problem
from tilekit.emulator.ptx.language.constants import CONSTANT_STARTS
from tilekit.emulator.ptx.language.lexer import Token, TokenStream
from tilekit.emulator.ptx.language.scopes import COMPONENTS, Scope, Scopes
from tilekit.emulator.ptx.language.special_registers import SPECIAL_REGISTERS
from tilekit.emulator.ptx.language.syntax import (
    TYPE_BYTES,
    AddressOperand,
    CallList,
    Function,
    FunctionName,
    Immediate,
    Instruction,
    Operand,
    PairOperand,
    PtxModule,
    Register,
    RegisterOperand,
    Sink,
    SpecialRegister,
    SymbolOperand,
    VectorOperand,
)
from tilekit.emulator.ptx.language.token_reader import TokenReader

_ADDED = {kind + bits for kind in "bsu" for bits in ("16", "32", "64")}
"""Types of registers that ``register + constant`` may name."""


class InstructionReader(TokenReader):
    """Takes instructions of the function that is being read, with the names that are visible there."""

    def __init__(self, stream: TokenStream) -> None:
        super().__init__(stream)
        self.result = PtxModule("", "", stream.text)
        self.scopes = Scopes()
        self.function: Function | None = None

    def instruction(self) -> None:
        assert self.function is not None
        guard = None
        first = self.tokens[self.at]
        if self.accept("@"):
            negated = self.accept("!")
            name = self.word("a predicate register")
            register = self.find_register(name.text)
            if register is None or register.type != "pred":
                self.fail(f"the guard {name.text} is not a predicate register", name)
            guard = RegisterOperand(register, negated)
        opcode = self.word("an opcode")
        modifiers = []
        while self.tokens[self.at].kind == "dotted":
            modifiers.append(self.next().text[1:])
        operands: list[Operand] = []
        if not self.accept(";"):
            operands.append(self.operand(opcode.text))
            while self.accept(","):
                operands.append(self.operand(opcode.text))
            self.expect(";")
        if opcode.text == "call" and (wrong := call_problem(self.result.functions, tuple(operands))):
            self.fail(wrong, opcode)
        last = self.tokens[self.at - 1]
        text = " ".join(self.stream.text[first.start : last.end].split())
        provenance = self.stream.provenance.get(last.line) or self.stream.provenance.get(first.line, "")
        self.function.instructions.append(
            Instruction(
                opcode.text, tuple(modifiers), tuple(operands), guard, opcode.line, opcode.column, text, provenance
            )
        )

    def operand(self, opcode: str) -> Operand:
        token = self.tokens[self.at]
        if token.text == "[":
            return self.address()
        if token.text == "{":
            self.at += 1
            items = [self.element(opcode)]
            while self.accept(","):
                items.append(self.element(opcode))
            if not self.accept("}"):
                self.fail("expected ',' or '}' in a vector")
            return VectorOperand(tuple(items))
        if token.text == "(" and opcode == "call":
            self.at += 1
            items = []
            while self.peek() != ")" or items:
                item = self.element(opcode)
                items += item.items if isinstance(item, VectorOperand) else (item,)  # a vector passes its components
                if not self.accept(","):
                    break
            if not self.accept(")"):
                self.fail("expected ',' or ')' in a list")
            return CallList(tuple(items))
        first = self.tokens[self.at]
        operand = self.simple(opcode)
        if isinstance(operand, RegisterOperand) and self.accept("+"):
            return self.sum(operand.register, first)
        if self.accept("|"):
            return PairOperand(operand, self.simple(opcode))
        return operand

    def element(self, opcode: str) -> Operand:
        """An operand inside of a vector or a list: no vector in braces, and no list."""
        if self.peek() in ("{", "["):
            self.fail(f"expected a register or a number, found {self.peek()!r}")
        return self.simple(opcode)

    def simple(self, opcode: str) -> Operand:
        token = self.next()
        before_name = self.tokens[self.at].kind == "word" and self.peek() != "WARP_SZ"
        if token.text == "!" and before_name:
            name = self.word("a predicate register")
            register = self.find_register(name.text)
            if register is None or register.type != "pred":
                self.fail(f"{name.text} is not a predicate register", name)
            return RegisterOperand(register, negated=True)
        if token.text == "-" and before_name:
            operand = self.named(self.next(), opcode)
            if not isinstance(operand, RegisterOperand):
                self.fail("expected a number or a register after '-'", token)
            return replace(operand, minus=True)
        if token.kind == "number" or token.text in CONSTANT_STARTS or token.text == "WARP_SZ":
            self.at -= 1
            return self.constant()
        if token.kind != "word":
            self.fail(f"expected an operand, found {token.text!r}", token)
        if token.text == "_":
            return Sink()
        return self.named(token, opcode)

    def sum(self, register: Register, token: Token) -> RegisterOperand:
        """``register + constant`` as a source, which ptxas adds up before the instruction."""
        assert self.function is not None
        addend = self.integer()
        if register.type not in _ADDED:
            self.fail(f"a constant is added to an integer register, and {register.name} is .{register.type}", token)
        total = Scope().new_registers(self.function, f"{register.name}+{addend}", register.type)[0]
        operands = (RegisterOperand(total), RegisterOperand(register), Immediate(addend))
        kind = f"s{register.bits}"
        text = f"add.{kind} {total.name}, {register.name}, {addend};"
        self.function.instructions.append(Instruction("add", (kind,), operands, None, token.line, token.column, text))
        return RegisterOperand(total)

    def named(self, token: Token, opcode: str) -> Operand:
        name = token.text
        registers = self.scopes.registers(self.function, name)
        after = self.tokens[self.at]
        suffixed = after.kind == "dotted" and after.start == token.end
        if len(registers) > 1:
            items = tuple(RegisterOperand(register) for register in registers)
            return self.component(items, name) if suffixed else VectorOperand(items)
        if registers:
            if opcode.startswith("v") and suffixed:
                return RegisterOperand(registers[0], part=self.next().text[1:])
            return RegisterOperand(registers[0])
        if name.startswith("%"):
            if suffixed:
                name += self.next().text
            if name in SPECIAL_REGISTERS:
                return SpecialRegister(name)
            if f"{name}.w" in SPECIAL_REGISTERS:  # %tid and the like as a whole
                return VectorOperand(tuple(SpecialRegister(f"{name}.{letter}") for letter in "xyzw"))
            hint = self.scopes.close_to(name, tuple(SPECIAL_REGISTERS))
            self.fail(f"{name} is not a declared or special register{hint}", token)
        found = self.scopes.variable(name)
        if isinstance(found, tuple):
            return VectorOperand(found)
        if found is not None:
            if opcode and self.accept("["):  # an element as the place that is read or written
                index = self.integer()
                self.expect("]")
                return AddressOperand(SymbolOperand(found), index * TYPE_BYTES[found.type])
            return SymbolOperand(found, self.addend())
        own = self.function is not None and name == self.function.name
        if own or name in self.result.functions or opcode == "call":
            return FunctionName(name)
        return self.scopes.label(token)

    def component(self, items: tuple[RegisterOperand, ...], name: str) -> RegisterOperand:
        token = self.next()
        found = [n for n, letters in enumerate(COMPONENTS[: len(items)]) if token.text[1:] in tuple(letters)]
        if not found:
            legal = ", ".join(f".{letters[0]}" for letters in COMPONENTS[: len(items)])
            self.fail(f"{name} has the components {legal}, not {token.text}", token)
        return items[found[0]]

    def address(self) -> AddressOperand:
        self.expect("[")
        base: Operand
        token = self.tokens[self.at]
        if token.kind == "number" or token.text in CONSTANT_STARTS:
            base = Immediate(self.integer())
        else:
            base = self.named(self.word("an address"), "")
        addend = self.addend()
        coordinates = None
        while self.accept(","):
            vector = self.operand("")
            if isinstance(vector, VectorOperand):
                coordinates = vector.items
            elif self.peek() != ",":
                self.fail("expected a vector of coordinates after ',' in an address")
        self.expect("]")
        return AddressOperand(base, addend, coordinates)

    def addend(self) -> int:
        """``+ constant`` behind a name; 0 where there is none."""
        return self.integer() if self.accept("+") else 0

    def find_register(self, name: str) -> Register | None:
        found = self.scopes.registers(self.function, name)
        return found[0] if len(found) == 1 else None
