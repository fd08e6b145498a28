"""Calls of ``.func``: most are expanded in place, each with registers and local variables of its own.

Arguments and results pass through the caller's ``.param`` variables, which live in each lane's local memory, or through
registers. A function that calls itself, or whose address is taken, stands behind the kernel once, as a `Procedure`, and
is really called (see `ops_call`); so are the functions of CUDA's device runtime, which have no body.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilekit.emulator.core.errors import UnsupportedInstruction
from tilekit.emulator.ptx.compiler.call_graph import CallGraph, callee_of
from tilekit.emulator.ptx.language.syntax import (
    AddressOperand,
    CallList,
    Function,
    FunctionName,
    Immediate,
    Instruction,
    LabelOperand,
    Operand,
    PairOperand,
    Procedure,
    PtxModule,
    Register,
    RegisterOperand,
    Sink,
    SymbolOperand,
    Variable,
    VectorOperand,
)

RUNTIME = {"vprintf": (1, 2), "__assertfail": (0, 5), "malloc": (1, 1), "free": (0, 1)}
"""Functions of CUDA's device runtime that the emulator has: how many results and parameters each takes."""

_STACK = ("alloca", "stacksave", "stackrestore")


def inline_calls(kernel: Function, module: PtxModule) -> Function:
    """The kernel with its calls expanded, and the functions that are really called behind it.

    Raises
    ------
    UnsupportedInstruction
        For a function without a body that is not `RUNTIME`'s, or one that cannot be called as it is.
    """
    graph = CallGraph(module)
    outlined = graph.outlined(kernel)
    expander = _Expander(graph, set(outlined))
    expanded = expander.expanded(kernel)
    if not outlined:
        return expanded
    end = _plain(expanded.instructions[-1] if expanded.instructions else None, kernel, "ret")
    whole = replace(
        expanded,
        instructions=[*expanded.instructions, end],
        registers=list(expanded.registers),
        variables=list(expanded.variables),
        procedures=[],
    )
    for name in outlined:
        function = graph.body(name)
        assert function is not None
        _append(whole, expander.expanded(function), graph.address(name))
    return whole


def _plain(like: Instruction | None, function: Function, opcode: str) -> Instruction:
    """An instruction that the text does not have, at the place of one it has."""
    line, column = (like.line, like.column) if like is not None else (function.line, 1)
    return Instruction(opcode, (), (), None, line, column, f"{opcode};")


def _append(whole: Function, function: Function, address: int) -> None:
    """Put a function behind a kernel as a procedure: its one ``ret`` at its end, its frame's variables its own."""
    if any(v.register is not None for v in (*function.parameters, *function.results)):
        raise UnsupportedInstruction(
            f"{function.name} has .reg parameters, and calls itself or is called through a pointer",
            line=function.line,
            column=1,
            form="call",
            hint="pass .param variables",
        )
    names = {id(v): replace(v, space="frame", owned=True) for v in (*function.parameters, *function.results)}
    names |= {id(v): replace(v) for v in function.variables if v.space in ("local", "frame")}
    shared = [v for v in function.variables if v.space not in ("local", "frame")]
    whole.variables += [v for v in shared if v not in whole.variables]
    fresh = {}
    for register in function.registers:
        fresh[register.number] = Register(register.name, register.type, len(whole.registers))
        whole.registers.append(fresh[register.number])
    start = len(whole.instructions)
    count = len(function.instructions)
    shift = list(range(start, start + count + 1))
    end = LabelOperand(f"end of {function.name}", start + count)
    for instruction in function.instructions:
        guard = instruction.guard
        if guard is not None:
            guard = RegisterOperand(fresh[guard.register.number], guard.negated)
        if instruction.opcode == "ret":
            whole.instructions.append(replace(instruction, opcode="bra", modifiers=(), operands=(end,), guard=guard))
            continue
        operands = tuple(_moved(_renamed(o, fresh, names), shift) for o in instruction.operands)
        whole.instructions.append(replace(instruction, operands=operands, guard=guard))
    whole.instructions.append(_plain(function.instructions[-1] if count else None, function, "ret"))
    whole.procedures.append(
        Procedure(
            function.name,
            address,
            start,
            len(whole.instructions),
            [names[id(v)] for v in function.parameters],
            [names[id(v)] for v in function.results],
            list(names.values()),
        )
    )


class _Expander:
    """Expands functions that keep the calls of outlined ones."""

    def __init__(self, graph: CallGraph, outlined: set[str]) -> None:
        self.graph = graph
        self.outlined = outlined
        self._done: dict[int, Function] = {}

    def expanded(self, function: Function) -> Function:
        """The function without calls that can be expanded, and with the addresses of functions as numbers."""
        if not any(
            instruction.opcode == "call" or any(isinstance(o, FunctionName) for o in instruction.operands)
            for instruction in function.instructions
        ):
            return function
        if id(function) not in self._done:
            self._done[id(function)] = _Expansion(function, self).run()
        return self._done[id(function)]

    def address(self, operand: Operand) -> Operand:
        """A function's name as its address; any other operand as it is."""
        return Immediate(self.graph.address(operand.name)) if isinstance(operand, FunctionName) else operand


class _Expansion:
    def __init__(self, function: Function, expander: _Expander) -> None:
        self.function = function
        self.expander = expander
        self.code: list[Instruction] = []
        self.registers = list(function.registers)
        self.variables = list(function.variables)

    def run(self) -> Function:
        moved: list[int] = []
        kept: list[int] = []
        for instruction in self.function.instructions:
            moved.append(len(self.code))
            if instruction.opcode == "call":
                self._call(instruction)
            else:
                kept.append(len(self.code))
                operands = tuple(self.expander.address(operand) for operand in instruction.operands)
                self.code.append(replace(instruction, operands=operands))
        moved.append(len(self.code))
        for place in kept:
            instruction = self.code[place]
            operands = tuple(_moved(operand, moved) for operand in instruction.operands)
            self.code[place] = replace(instruction, operands=operands)
        return replace(self.function, instructions=self.code, registers=self.registers, variables=self.variables)

    def _call(self, call: Instruction) -> None:
        target = callee_of(call)
        if target is None:
            raise self._fail(call, "the call names no function")
        if call.guard is not None:
            skip = RegisterOperand(call.guard.register, not call.guard.negated)
            branch = len(self.code)
            self.code.append(replace(call, opcode="bra", modifiers=(), guard=skip))
            self._unguarded(replace(call, guard=None), target)
            end = LabelOperand("after the call", len(self.code))
            self.code[branch] = replace(self.code[branch], operands=(end,))
        else:
            self._unguarded(call, target)

    def _unguarded(self, call: Instruction, target: FunctionName | RegisterOperand) -> None:
        at = call.operands.index(target)
        results = next((o.items for o in call.operands[:at] if isinstance(o, CallList)), ())
        arguments = next((o.items for o in call.operands[at + 1 :] if isinstance(o, CallList)), ())
        if isinstance(target, RegisterOperand) or target.name in self.expander.outlined:
            self._keep(call, target, results, arguments)
            return
        callee = self.expander.graph.body(target.name)
        if callee is None:
            self._runtime(call, target, results, arguments)
            return
        callee = self.expander.expanded(callee)
        for what, formals, actuals in (
            ("results", callee.results, results),
            ("arguments", callee.parameters, arguments),
        ):
            if len(formals) != len(actuals):
                raise self._fail(call, f"{len(actuals)} {what}, where {target.name} has {len(formals)}")
        self._paste(call, callee, results, arguments)

    def _keep(
        self,
        call: Instruction,
        target: FunctionName | RegisterOperand,
        results: tuple[Operand, ...],
        arguments: tuple[Operand, ...],
    ) -> None:
        """Leave a call in the code, in the one form that is executed: results, function, arguments."""
        if not all(isinstance(operand, SymbolOperand) for operand in (*results, *arguments)):
            raise self._fail(call, "a function that is really called takes and returns .param variables")
        self.code.append(replace(call, operands=(CallList(results), target, CallList(arguments))))

    def _runtime(
        self, call: Instruction, target: FunctionName, results: tuple[Operand, ...], arguments: tuple[Operand, ...]
    ) -> None:
        known = RUNTIME.get(target.name)
        if known is None:
            raise self._fail(call, f"function {target.name} has no body in this module")
        if (len(results), len(arguments)) != known:
            raise self._fail(call, f"{target.name} takes {known[1]} arguments and has {known[0]} results")
        self._keep(call, target, results, arguments)

    def _paste(
        self, call: Instruction, callee: Function, results: tuple[Operand, ...], arguments: tuple[Operand, ...]
    ) -> None:
        names: dict[int, Variable] = {}
        fresh = {}
        for register in callee.registers:
            fresh[register.number] = Register(register.name, register.type, len(self.registers))
            self.registers.append(fresh[register.number])
        moves = (instruction for instruction in callee.instructions if instruction.opcode == "mov")
        addressed = {id(o.variable) for move in moves for o in move.operands if isinstance(o, SymbolOperand)}
        after: list[Instruction] = []
        pairs = [(formal, actual, True) for formal, actual in zip(callee.results, results, strict=True)]
        pairs += [(formal, actual, False) for formal, actual in zip(callee.parameters, arguments, strict=True)]
        for formal, actual, is_result in pairs:
            if is_result and isinstance(actual, Sink):
                if formal.register is None:
                    names[id(formal)] = self._own(formal)
            elif formal.register is not None:
                inner = RegisterOperand(fresh[formal.register.number])
                kind = "pred" if formal.type == "pred" else f"b{formal.size * 8}"
                operands: tuple[Operand, ...] = (actual, inner) if is_result else (inner, actual)
                move = replace(call, opcode="mov", modifiers=(kind,), operands=operands)
                (after if is_result else self.code).append(move)
            elif isinstance(actual, SymbolOperand):
                if formal.size and formal.size != actual.variable.size:
                    given = f"{actual.variable.name} with {actual.variable.size} bytes"
                    raise self._fail(call, f"{formal.name} of {callee.name} has {formal.size} bytes, not {given}")
                names[id(formal)] = actual.variable
                if id(formal) in addressed:
                    names[id(formal)] = own = self._own(formal)
                    ends = (own, actual.variable) if is_result else (actual.variable, own)
                    (after if is_result else self.code).extend(self._copied(call, *ends))
            else:
                raise self._fail(call, f"{formal.name} of {callee.name} takes a .param variable")
        for variable in callee.variables:
            if variable.space in ("local", "frame"):
                names[id(variable)] = replace(variable)
                self.variables.append(names[id(variable)])
            elif variable not in self.variables:
                self.variables.append(variable)
        if any(instruction.opcode in _STACK for instruction in callee.instructions):
            self._restore_stack(call, after)
        start = len(self.code)
        end = LabelOperand(f"after {callee.name}", start + len(callee.instructions))
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
        self.code += after

    def _own(self, formal: Variable) -> Variable:
        """An argument or result that is not the caller's variable: the callee writes to it, and takes its address."""
        own = replace(formal, space="frame", owned=True)
        self.variables.append(own)
        return own

    def _copied(self, call: Instruction, source: Variable, target: Variable) -> Iterator[Instruction]:
        """Instructions that copy one variable of call frames to another."""
        at = 0
        while at < target.size:
            most = min(source.align, target.align, target.size - at)
            width = next(n for n in (8, 4, 2, 1) if at % n == 0 and n <= most)
            value = Register("%argument", f"b{max(width, 2) * 8}", len(self.registers))
            self.registers.append(value)
            held, modifiers = RegisterOperand(value), ("param", f"b{width * 8}")
            places = [AddressOperand(SymbolOperand(variable), at) for variable in (source, target)]
            yield replace(call, opcode="ld", modifiers=modifiers, operands=(held, places[0]))
            yield replace(call, opcode="st", modifiers=modifiers, operands=(places[1], held))
            at += width

    def _restore_stack(self, call: Instruction, after: list[Instruction]) -> None:
        """What the callee takes from the stack is given back when it returns."""
        top = Register("%stack", "b64", len(self.registers))
        self.registers.append(top)
        self.code.append(replace(call, opcode="stacksave", modifiers=("u64",), operands=(RegisterOperand(top),)))
        after.append(replace(call, opcode="stackrestore", modifiers=("u64",), operands=(RegisterOperand(top),)))

    @staticmethod
    def _fail(call: Instruction, message: str) -> UnsupportedInstruction:
        return UnsupportedInstruction(
            f"{message}, in: {call.text}",
            line=call.line,
            column=call.column,
            form=call.name,
            hint=f"of the device runtime there are {', '.join(RUNTIME)}; every other function needs a body in the text",
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
        case RegisterOperand(register=register):
            return replace(operand, register=registers[register.number])
        case SymbolOperand(variable=variable, addend=addend):
            return SymbolOperand(names.get(id(variable), variable), addend)
        case VectorOperand(items=items):
            return VectorOperand(tuple(_renamed(item, registers, names) for item in items))
        case CallList(items=items):
            return CallList(tuple(_renamed(item, registers, names) for item in items))
        case PairOperand(first=first, second=second):
            return PairOperand(_renamed(first, registers, names), _renamed(second, registers, names))
        case AddressOperand(base=base, addend=addend, coordinates=coordinates):
            renamed = None if coordinates is None else tuple(_renamed(c, registers, names) for c in coordinates)
            return AddressOperand(_renamed(base, registers, names), addend, renamed)
    return operand
