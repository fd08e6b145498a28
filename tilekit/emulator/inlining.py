"""Calls of ``.func`` are expanded in place, each with registers and local variables of its own.

Arguments and results pass through the caller's ``.param`` variables, which live in each lane's local memory.
"""

from __future__ import annotations

from dataclasses import replace

from .errors import UnsupportedInstruction
from .syntax import (
    AddressOperand,
    CallList,
    Function,
    FunctionName,
    Instruction,
    LabelOperand,
    Operand,
    PairOperand,
    PtxModule,
    Register,
    RegisterOperand,
    SymbolOperand,
    Variable,
    VectorOperand,
)


def inline_calls(function: Function, module: PtxModule) -> Function:
    """The function without calls; itself when it has none.

    Raises
    ------
    UnsupportedInstruction
        For a recursive call, or a function without a body.
    """
    return _expanded(function, module, ())


def _expanded(function: Function, module: PtxModule, callers: tuple[str, ...]) -> Function:
    if not any(instruction.opcode == "call" for instruction in function.instructions):
        return function
    expansion = _Expansion(function, module, (*callers, function.name))
    return expansion.run()


class _Expansion:
    def __init__(self, function: Function, module: PtxModule, callers: tuple[str, ...]) -> None:
        self.function = function
        self.module = module
        self.callers = callers
        self.code: list[Instruction] = []
        self.registers = list(function.registers)
        self.variables = list(function.variables)

    def run(self) -> Function:
        moved: list[int] = []
        labels: list[tuple[int, int]] = []
        for position, instruction in enumerate(self.function.instructions):
            moved.append(len(self.code))
            if instruction.opcode == "call":
                self._call(instruction)
            else:
                labels.append((len(self.code), position))
                self.code.append(instruction)
        moved.append(len(self.code))
        for place, _ in labels:
            instruction = self.code[place]
            operands = tuple(_moved(operand, moved) for operand in instruction.operands)
            self.code[place] = replace(instruction, operands=operands)
        return replace(self.function, instructions=self.code, registers=self.registers, variables=self.variables)

    def _call(self, call: Instruction) -> None:
        lists = [operand.items for operand in call.operands if isinstance(operand, CallList)]
        name = next((operand.name for operand in call.operands if isinstance(operand, FunctionName)), None)
        if name is None:
            raise self._fail(call, "indirect calls are not supported")
        callee = self.module.functions.get(name)
        if callee is None or not callee.has_body:
            raise self._fail(call, f"function {name} has no body in this module")
        if name in self.callers:
            raise self._fail(call, f"function {name} calls itself; recursion is not supported")
        callee = _expanded(callee, self.module, self.callers)
        # Results come first when there are any: call (r), f, (a, b);  call f, (a);  call f;
        results = lists.pop(0) if callee.results and lists else ()
        arguments = lists.pop(0) if lists else ()
        formals = (*callee.results, *callee.parameters)
        actuals = (*results, *arguments)
        if len(formals) != len(actuals) or not all(isinstance(actual, SymbolOperand) for actual in actuals):
            raise self._fail(call, f"{len(actuals)} arguments and results, where {name} has {len(formals)} .param ones")
        names = {id(f): a.variable for f, a in zip(formals, actuals, strict=True) if isinstance(a, SymbolOperand)}
        self._paste(call, callee, names)

    def _paste(self, call: Instruction, callee: Function, names: dict[int, Variable]) -> None:
        for variable in callee.variables:
            if variable.space in ("local", "frame"):
                names[id(variable)] = replace(variable)
                self.variables.append(names[id(variable)])
            elif variable not in self.variables:
                self.variables.append(variable)
        fresh = {}
        for register in callee.registers:
            fresh[register.number] = Register(register.name, register.type, len(self.registers))
            self.registers.append(fresh[register.number])
        guarded = call.guard is not None
        start = len(self.code) + guarded
        end = LabelOperand(f"after {callee.name}", start + len(callee.instructions))
        if call.guard is not None:
            skip = RegisterOperand(call.guard.register, not call.guard.negated)
            self.code.append(replace(call, opcode="bra", modifiers=(), operands=(end,), guard=skip))
        shift = list(range(start, end.position + 1))
        for instruction in callee.instructions:
            guard = instruction.guard
            if guard is not None:
                guard = RegisterOperand(fresh[guard.register.number], guard.negated)
            if instruction.opcode == "ret":
                self.code.append(replace(instruction, opcode="bra", modifiers=(), operands=(end,), guard=guard))
                continue
            operands = tuple(_moved(_renamed(o, fresh, names), shift) for o in instruction.operands)
            self.code.append(replace(instruction, operands=operands, guard=guard))

    @staticmethod
    def _fail(call: Instruction, message: str) -> UnsupportedInstruction:
        return UnsupportedInstruction(
            f"{message}, in: {call.text}",
            line=call.line,
            column=call.column,
            form=call.name,
            hint="inline the function",
        )


def _moved(operand: Operand, moved: list[int]) -> Operand:
    """The operand with its labels where their instructions now are."""
    if isinstance(operand, LabelOperand):
        return LabelOperand(operand.name, moved[operand.position])
    if isinstance(operand, VectorOperand):
        return VectorOperand(tuple(_moved(item, moved) for item in operand.items))
    return operand


def _renamed(operand: Operand, registers: dict[int, Register], names: dict[int, Variable]) -> Operand:
    match operand:
        case RegisterOperand(register=register, negated=negated):
            return RegisterOperand(registers[register.number], negated)
        case SymbolOperand(variable=variable, addend=addend):
            return SymbolOperand(names.get(id(variable), variable), addend)
        case VectorOperand(items=items):
            return VectorOperand(tuple(_renamed(item, registers, names) for item in items))
        case PairOperand(first=first, second=second):
            return PairOperand(_renamed(first, registers, names), _renamed(second, registers, names))
        case AddressOperand(base=base, addend=addend, coordinates=coordinates):
            renamed = None if coordinates is None else tuple(_renamed(c, registers, names) for c in coordinates)
            return AddressOperand(_renamed(base, registers, names), addend, renamed)
    return operand
