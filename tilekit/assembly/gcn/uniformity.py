"""Which registers hold one value for all lanes of a wave, where lanes part, and where each register is kept.

The trace says of a value what was known when it was made. What is assigned later, in a loop or where lanes have parted,
changes what was made before, so the whole kernel is gone through until nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilekit.assembly.accesses import accessed, values_of
from tilekit.assembly.numbers import Number
from tilekit.assembly.trace import (
    Bound,
    EndIf,
    EndLoop,
    If,
    Line,
    Loop,
    Operation,
    Placement,
    Register,
    Scope,
    SharedBase,
)
from tilekit.assembly.types import PRED
from tilekit.assembly.values import Value

Path = tuple[If | Loop, ...]
"""The constructs that are open at a statement, the outermost first."""


@dataclass(slots=True)
class Accesses:
    """Where one register is read and written, in the order of the text; `path` is what is open there."""

    paths: list[Path] = field(default_factory=list)
    first_is_write: bool = False
    writes: list[Path] = field(default_factory=list)


class Uniformity:
    """What is the same in all lanes of a wave.

    Parameters
    ----------
    body
        The kernel.
    accumulators
        Whether operands that may be in accumulator registers are to be there.

    Attributes
    ----------
    tiles
        The declared register, and the number within it, of every register's name.
    varying
        Names of declared registers that may differ from lane to lane.
    scalar
        Names of those that scalar instructions alone write: they live in scalar registers; of tiles those that a
        fragment wants there. A predicate of these has all its bits set, or none.
    accumulators
        Names of those that live in accumulator registers.
    constants
        Registers that hold a number from the one place on that writes them.
    same
        Registers that hold another register's value from the one place on that writes them: sums with 0, as addresses
        in shared memory are.
    """

    def __init__(self, body: Scope, *, accumulators: bool) -> None:
        self.tiles: dict[str, tuple[Register, int]] = {}
        for register in _registers(body):
            if register.count is None:
                self.tiles[register.name] = (register, 0)
            else:
                self.tiles |= {f"{register.name}{i}": (register, i) for i in range(register.count)}
        self._lines = list(body.lines())
        self._writes = Counter(name for line in self._lines for name in accessed(line.statement)[1])
        self.constants = dict(self._constants())
        self.same: dict[str, Value] = {}
        self._accesses: dict[str, Accesses] = {}
        self._note_accesses()
        self.same = dict(self._sums_with_zero())
        self._accesses = {}
        self._note_accesses()
        self._parting: set[int] = set()
        self.varying: set[str] = set()
        while self._spread():
            pass
        self._kept = {name for name in self._accesses if self._crosses(name)}
        self.accumulators = set(self._in_accumulators()) if accumulators else set()
        asked = set(self._asked_as_scalars())
        self.scalar = {r.name for r, _ in self.tiles.values() if r.count is None or r.name in asked}
        self.scalar -= self.varying | self.accumulators
        while self._drop_vectors():
            pass

    def name(self, value: Value) -> str:
        """Name of the register that holds a value."""
        return self._held(value.text)

    def root(self, value: Value) -> str:
        """Name of the declared register that a value is, or is part of."""
        return self.tiles[self.name(value)][0].name

    def parts(self, construct: If | Loop) -> bool:
        """Whether lanes may take different ways at a branch or loop."""
        return id(construct) in self._parting

    def keeps(self, name: str) -> bool:
        """Whether a register, where lanes have parted, must keep what the others have in it."""
        return name in self._kept

    def is_uniform(self, what: Bound) -> bool:
        """Whether an operand is the same in all lanes."""
        if isinstance(what, Value):
            return self.root(what) not in self.varying
        return isinstance(what, (Number, str)) or all(self.is_uniform(each) for each in what)

    def is_scalar(self, what: Bound) -> bool:
        """Whether an operand is a constant, or in scalar registers."""
        if isinstance(what, Value):
            return self.root(what) in self.scalar or what.text in self.constants
        return isinstance(what, (Number, str)) or all(self.is_scalar(each) for each in what)

    def used_once(self, value: Value) -> bool:
        """Whether one place writes and one place reads it."""
        accesses = self._accesses[value.text]
        return len(accesses.writes) == 1 and len(accesses.paths) == 2

    # -- what the attributes are made of ------------------------------------------------------------------------------

    def _note_accesses(self) -> None:
        path: Path = ()
        for line in self._lines:
            statement = line.statement
            reads, writes = accessed(statement)
            for name in map(self._held, reads):
                self._accesses.setdefault(name, Accesses()).paths.append(path)
            for name in writes:
                if name in self.same:
                    continue
                accesses = self._accesses.setdefault(name, Accesses())
                accesses.first_is_write |= not accesses.paths
                accesses.paths.append(path)
                accesses.writes.append(path)
            match statement:
                case If() | Loop():
                    path = (*path, statement)
                case EndIf() | EndLoop():
                    path = path[:-1]

    def _held(self, name: str) -> str:
        while name in self.same:
            name = self.same[name].text
        return name

    def _sums_with_zero(self) -> Iterator[tuple[str, Value]]:
        """Sums of a register and 0 that are read behind where they are made, while the register cannot have changed."""
        for line in self._lines:
            match line.statement:
                case Operation("add", type_, result, operands) if type_.kind != "float" and self._is_single(result):
                    zeros = [self._is_zero(what) for what in operands]
                    if not any(zeros) or result.text in self.constants:
                        continue
                    other = operands[zeros.index(True) ^ 1]
                    accesses = self._accesses[result.text]
                    begin = accesses.paths[0]
                    behind = accesses.first_is_write and all(path[: len(begin)] == begin for path in accesses.paths)
                    if isinstance(other, Value) and self._is_single(other) and behind:
                        yield result.text, other

    def _is_single(self, value: Value) -> bool:
        """Whether one place writes a register that is no tile's."""
        return self._writes[value.text] == 1 and self.tiles[value.text][0].count is None

    def _is_zero(self, what: Bound) -> bool:
        number = self.constants.get(what.text) if isinstance(what, Value) else what
        return isinstance(number, Number) and number.value == 0

    def _spread(self) -> bool:
        """Go through the kernel once; returns whether something was found."""
        before = len(self.varying), len(self._parting)
        for line in self._lines:
            match line.statement:
                case Operation(_, _, result, operands):
                    if not all(self.is_uniform(what) for what in operands):
                        self.varying.add(self.root(result))
                case Placement(fragment, bound):
                    inputs = [bound[operand.name] for operand in fragment.inputs.values()]
                    for operand in fragment.operands:
                        alike = operand.file == "scalar" or (fragment.uniform and all(map(self.is_uniform, inputs)))
                        if operand.direction != "in" and not alike:
                            self.varying |= {self.root(value) for value in values_of(bound[operand.name])}
                case If(condition):
                    if not self.is_uniform(condition):
                        self._parting.add(id(line.statement))
                case EndLoop(opened, again):
                    if not self.is_uniform(again):
                        self._parting.add(id(opened))
        for name in self._accesses:
            root = self.tiles[name][0].name
            if root not in self.varying and self._crosses(name):
                self.varying.add(root)
        return before != (len(self.varying), len(self._parting))

    def _crosses(self, name: str) -> bool:
        """Whether a register is written where lanes have parted and lives beyond: lanes may then see different writes.

        It does not where all of its life is in one branch or loop, with what writes it first at the front: lanes that
        are not there, or left the loop, never read it.
        """
        accesses = self._accesses[name]
        innermost = [next((c for c in reversed(path) if self.parts(c)), None) for path in accesses.writes]
        if not any(innermost):
            return False
        here, begin = innermost[0], accesses.paths[0]
        confined = (
            all(construct is here for construct in innermost)
            and accesses.first_is_write
            and all(path[: len(begin)] == begin and here in path for path in accesses.paths)
        )
        return not confined

    def _constants(self) -> Iterator[tuple[str, Number]]:
        for line in self._lines:
            match line.statement:
                case Operation("move", _, result, (Number() as number,)):
                    value = number
                case SharedBase(result):
                    value = Number(0, result.type)  # all shared memory is one block, which begins at 0
                case _:
                    continue
            if self._is_single(result):
                yield result.text, value

    def _in_accumulators(self) -> Iterator[str]:
        for line in self._lines:
            if isinstance(line.statement, Placement):
                for operand in line.statement.fragment.operands:
                    if operand.file == "accumulator":
                        for value in values_of(line.statement.bound[operand.name]):
                            yield self.root(value)

    def _asked_as_scalars(self) -> Iterator[str]:
        for line in self._lines:
            if isinstance(line.statement, Placement):
                for operand in line.statement.fragment.operands:
                    if operand.file == "scalar":
                        for value in values_of(line.statement.bound[operand.name]):
                            yield self.root(value)

    def _drop_vectors(self) -> bool:
        """Take away what a vector instruction must write; returns whether something was."""
        before = len(self.scalar)
        for line in self._lines:
            match line.statement:
                case Operation(name, type_, result, operands):
                    floating = type_.kind == "float" and name not in ("move", "select")
                    long_division = name in ("div", "rem") and type_.bits == 64
                    if floating or long_division or not all(self.is_scalar(what) for what in operands):
                        self.scalar.discard(self.root(result))
                case Placement(fragment, bound):
                    for operand in fragment.operands:
                        written = operand.direction != "in"
                        if written and (operand.file != "scalar" or operand.type is PRED):
                            self.scalar -= {self.root(value) for value in values_of(bound[operand.name])}
        return before != len(self.scalar)


def _registers(scope: Scope) -> Iterator[Register]:
    yield from scope.registers
    for item in scope.items:
        if not isinstance(item, Line):
            yield from _registers(item)
