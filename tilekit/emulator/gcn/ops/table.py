"""Which instructions are executed, and by what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from tilekit.emulator.core.errors import EmulatorError
from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.moved_lanes import begin_dpp
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Instruction, Operand

__all__ = ["OPS", "Handler", "begin_vector", "op", "vector"]

Handler = Callable[[Emitter, Instruction], None]
OPS: dict[str, Handler] = {}
"""By mnemonic without encoding: what adds an instruction's statements to a block."""


def op(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for instructions."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name not in OPS, name
            OPS[name] = _checked(handler)
        return handler

    return register


def _checked(handler: Handler) -> Handler:
    """The handler, for operands of any number and kind: what it cannot take apart is an error of the text."""

    @wraps(handler)
    def checked(e: Emitter, instruction: Instruction) -> None:
        try:
            handler(e, instruction)
        except EmulatorError:
            raise
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise unsupported(instruction, "has operands that are not those that it takes") from error

    return checked


def vector(name: str, result: str, sources: str, expression: str) -> None:
    """Register a vector instruction: kind of its result, kinds of its sources, and an expression of these."""
    kinds = sources.split()

    def handler(e: Emitter, instruction: Instruction) -> None:
        operands = instruction.operands
        begin_vector(e, instruction, operands[1:], len(kinds))
        e.put(operands[0], expression.format(*(e.source(i, kind) for i, kind in enumerate(kinds))), result)

    op(name)(handler)


def begin_vector(e: Emitter, instruction: Instruction, sources: Sequence[Operand], count: int) -> None:
    """Start a vector instruction: check how many sources it has, and move lanes for DPP."""
    if len(sources) != count:
        raise unsupported(instruction, f"takes {count} source{'s' * (count != 1)}, and the text has {len(sources)}")
    e.begin(instruction, tuple(sources))
    if instruction.encoding in ("dpp", "e64_dpp"):
        begin_dpp(e)
