"""Registers split into webs: uses and the definitions that reach them.

People, and inlined fragments, use one register for unrelated things. Each web becomes a register of its own, so that a
scratch predicate that once depended on the lane does not make every later use of its name lane-dependent.
"""

from __future__ import annotations

from dataclasses import replace

from tilekit.emulator.ptx.compiler.control_flow import ControlFlow, members
from tilekit.emulator.ptx.language.forms import Decoded, collect_registers
from tilekit.emulator.ptx.language.syntax import (
    AddressOperand,
    CallList,
    Operand,
    PairOperand,
    Register,
    RegisterOperand,
    VectorOperand,
)


def split_webs(
    code: list[Decoded], flow: ControlFlow, registers: list[Register]
) -> tuple[list[Decoded], list[Register]]:
    """Instructions over renamed registers, and the list of those registers, numbered from 0."""
    return _Webs(code, flow, registers).renamed()


class _Webs:
    def __init__(self, code: list[Decoded], flow: ControlFlow, registers: list[Register]) -> None:
        self.code = code
        self.flow = flow
        self.registers = registers
        # Definition d < len(registers) is the value on entry; the others are (instruction, register) pairs.
        self.definitions: list[Register] = list(registers)
        self.of_register: list[int] = [1 << register.number for register in registers]
        self.at: list[dict[int, int]] = []
        for decoded in code:
            here: dict[int, int] = {}
            for register in decoded.defs:
                if register.number not in here:
                    here[register.number] = len(self.definitions)
                    self.of_register[register.number] |= 1 << len(self.definitions)
                    self.definitions.append(register)
            self.at.append(here)
        self.parent = list(range(len(self.definitions)))

    def find(self, web: int) -> int:
        while self.parent[web] != web:
            self.parent[web] = self.parent[self.parent[web]]
            web = self.parent[web]
        return web

    def _reaching(self) -> list[int]:
        """Bit sets of the definitions that reach the start of each block."""
        blocks = self.flow.blocks
        made, killed = [0] * len(blocks), [0] * len(blocks)
        for block in blocks:
            for position in range(block.start, block.end):
                guarded = self.code[position].guard is not None
                for number, definition in self.at[position].items():
                    if not guarded:
                        made[block.index] &= ~self.of_register[number]
                        killed[block.index] |= self.of_register[number]
                    made[block.index] |= 1 << definition
        reaching = [0] * len(blocks)
        reaching[0] = (1 << len(self.registers)) - 1
        changed = True
        while changed:
            changed = False
            for block in blocks:
                out = made[block.index] | (reaching[block.index] & ~killed[block.index])
                for successor in block.successors:
                    if successor < len(blocks) and out & ~reaching[successor]:
                        reaching[successor] |= out
                        changed = True
        return reaching

    def renamed(self) -> tuple[list[Decoded], list[Register]]:
        uses: list[dict[int, int]] = []
        reaching = self._reaching()
        for block in self.flow.blocks:
            current = {}
            bits = reaching[block.index]
            for position in range(block.start, block.end):
                decoded = self.code[position]
                guarded = decoded.guard is not None
                here: dict[int, int] = {}
                numbers = {register.number for register in decoded.uses}
                if guarded:
                    numbers |= self.at[position].keys()
                for number in numbers:
                    if number not in current:
                        current[number] = self._join(bits & self.of_register[number] or 1 << number)
                    here[number] = current[number]
                for number, definition in self.at[position].items():
                    tied = any(
                        kind == "{d+}" and number in {r.number for r in _registers_of(operand)}
                        for kind, operand in zip(decoded.form.operands, decoded.operands, strict=False)
                    )
                    if guarded or tied:
                        definition = self._join_two(definition, here[number])
                    current[number] = definition
                uses.append(here)
        return self._rewrite(uses)

    def _join(self, bits: int) -> int:
        found = members(bits)
        for other in found[1:]:
            self._join_two(found[0], other)
        return found[0]

    def _join_two(self, a: int, b: int) -> int:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)
        return min(a, b)

    def _rewrite(self, uses: list[dict[int, int]]) -> tuple[list[Decoded], list[Register]]:
        fresh: dict[int, Register] = {}

        def register_of(definition: int) -> Register:
            web = self.find(definition)
            if web not in fresh:
                original = self.definitions[web]
                fresh[web] = Register(original.name, original.type, len(fresh))
            return fresh[web]

        result = []
        for decoded, used, defined in zip(self.code, uses, self.at, strict=True):
            sources = {number: register_of(definition) for number, definition in used.items()}
            results = {number: register_of(definition) for number, definition in defined.items()}
            operands = tuple(
                _substitute(operand, results if kind.startswith(("d", "{d")) else sources)
                for kind, operand in zip(decoded.form.operands, decoded.operands, strict=False)
            )
            guard = decoded.guard
            if guard is not None:
                guard = RegisterOperand(sources[guard.register.number], guard.negated)
            renamed = replace(decoded, operands=operands, guard=guard)
            collect_registers(renamed)
            result.append(renamed)
        return result, list(fresh.values())


def _registers_of(operand: Operand) -> list[Register]:
    items = operand.items if isinstance(operand, VectorOperand) else (operand,)
    return [item.register for item in items if isinstance(item, RegisterOperand)]


def _substitute(operand: Operand, names: dict[int, Register]) -> Operand:
    match operand:
        case RegisterOperand(register=register):
            return replace(operand, register=names[register.number])
        case VectorOperand(items=items):
            return VectorOperand(tuple(_substitute(item, names) for item in items))
        case CallList(items=items):
            return CallList(tuple(_substitute(item, names) for item in items))
        case PairOperand(first=first, second=second):
            return PairOperand(_substitute(first, names), _substitute(second, names))
        case AddressOperand(base=base, addend=addend, coordinates=coordinates):
            renamed = None if coordinates is None else tuple(_substitute(c, names) for c in coordinates)
            return AddressOperand(_substitute(base, names), addend, renamed)
    return operand
