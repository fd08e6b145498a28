"""Who calls whom in a module: which functions can be expanded in place, and which need frames of their own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from tilekit.emulator.core.memory.memory import FUNCTION_WINDOW
from tilekit.emulator.ptx.language.syntax import Function, FunctionName, Instruction, PtxModule, RegisterOperand

_SPACING = 16
"""Bytes between the addresses of two functions."""


def callee_of(call: Instruction) -> FunctionName | RegisterOperand | None:
    """The name that is called, or the register that holds its address."""
    return next((o for o in call.operands if isinstance(o, FunctionName | RegisterOperand)), None)


class CallGraph:
    """The functions of a module and their calls."""

    def __init__(self, module: PtxModule) -> None:
        self.module = module

    def address(self, name: str) -> int:
        """What ``mov.u64 %rd, name`` gives: an address that no data has."""
        return FUNCTION_WINDOW + _SPACING * (1 + list(self.module.functions).index(name))

    def body(self, name: str) -> Function | None:
        """The function of a name, if its body is in the module."""
        function = self.module.functions.get(name)
        return function if function is not None and function.has_body and not function.is_entry else None

    def outlined(self, kernel: Function) -> list[str]:
        """The functions reachable from a kernel that must be called: recursive ones, and whose address is taken."""
        reached, indirect = self._reached(self._calls(kernel))
        if indirect or self._indirect(kernel):
            reached, _ = self._reached({*reached, *self._addressed})
        else:
            return [name for name in self.module.functions if name in reached and self._recursive(name)]
        return [
            name
            for name in self.module.functions
            if name in self._addressed or (name in reached and self._recursive(name))
        ]

    def _reached(self, names: Iterable[str]) -> tuple[set[str], bool]:
        """All functions that calls can lead to, and whether one of them calls through a pointer."""
        seen: set[str] = set()
        work = list(names)
        indirect = False
        while work:
            name = work.pop()
            function = self.body(name)
            if name in seen or function is None:
                continue
            seen.add(name)
            indirect |= self._indirect(function)
            work += self._calls(function)
        return seen, indirect

    def _recursive(self, name: str) -> bool:
        function = self.body(name)
        assert function is not None
        return name in self._reached(self._calls(function))[0]

    @staticmethod
    def _calls(function: Function) -> set[str]:
        targets = (callee_of(i) for i in function.instructions if i.opcode == "call")
        return {target.name for target in targets if isinstance(target, FunctionName)}

    @staticmethod
    def _indirect(function: Function) -> bool:
        return any(i.opcode == "call" and isinstance(callee_of(i), RegisterOperand) for i in function.instructions)

    @cached_property
    def _addressed(self) -> set[str]:
        """Functions whose address some instruction or initialiser of the module takes."""
        functions = self.module.functions.values()
        taken = {
            operand.name
            for function in functions
            for instruction in function.instructions
            if instruction.opcode != "call"
            for operand in instruction.operands
            if isinstance(operand, FunctionName)
        }
        variables = [*self.module.variables.values(), *(v for f in functions for v in f.variables)]
        taken |= {pointer.symbol for variable in variables for pointer in variable.pointers}
        return {name for name in taken if self.body(name) is not None}
