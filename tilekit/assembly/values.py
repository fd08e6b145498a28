"""Device values: Python objects that stand for registers while a kernel is traced.

Arithmetic on them emits the plain integer, predicate and f32 instructions; everything else comes from a fragment. A device value
has no Python truth and no Python integer: ``if value`` and ``range(value)`` raise and say what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, Union

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import F32, PRED, RegisterType

if TYPE_CHECKING:
    from tilekit.assembly.writer import Writer

Operand = Union["Value", int, float]


class Value:
    """One register (or kernel parameter already loaded into one).

    Attributes
    ----------
    type
        Its register type.
    text
        Its name in the emitted assembly.
    uniform
        Whether every lane of a warp is known to hold the same value.
    """

    __slots__ = ("_writer", "text", "type", "uniform")
    __hash__ = object.__hash__

    def __init__(self, writer: Writer, type_: RegisterType, text: str, *, uniform: bool) -> None:
        self._writer = writer
        self.type = type_
        self.text = text
        self.uniform = uniform

    def __repr__(self) -> str:
        return f"<{self.type} {self.text}>"

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Value:
        return self if _is_int(other, 0) else self._binary("add", other)

    def __radd__(self, other: Operand) -> Value:
        return self + other

    def __sub__(self, other: Operand) -> Value:
        return self if _is_int(other, 0) else self._binary("sub", other)

    def __rsub__(self, other: Operand) -> Value:
        return self._writer.constant(self.type, other)._binary("sub", self)

    def __mul__(self, other: Operand) -> Value:
        if _is_int(other, 1):
            return self
        return self._binary("mul" if self.type is F32 else "mul.lo", other)

    def __rmul__(self, other: Operand) -> Value:
        return self * other

    def __floordiv__(self, other: Operand) -> Value:
        return self if _is_int(other, 1) else self._binary("div", other)

    def __mod__(self, other: Operand) -> Value:
        return self._binary("rem", other)

    def __lshift__(self, bits: Operand) -> Value:
        return self if _is_int(bits, 0) else self._bitwise("shl", bits)

    def __rshift__(self, bits: Operand) -> Value:
        return self if _is_int(bits, 0) else self._binary("shr", bits)

    def __and__(self, other: Operand) -> Value:
        return self._bitwise("and", other)

    def __or__(self, other: Operand) -> Value:
        return self._bitwise("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._bitwise("xor", other)

    def __invert__(self) -> Value:
        result = self._writer.new(self.type, self._hint("not"), uniform=self.uniform)
        self._writer.emit(f"not.{self._bit_suffix()} {result.text}, {self.text};")
        return result

    # -- comparison ---------------------------------------------------------------------------------------------------

    def __lt__(self, other: Operand) -> Value:
        return self._compare("lt", other)

    def __le__(self, other: Operand) -> Value:
        return self._compare("le", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare("gt", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compare("ge", other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._compare("ne", other)

    # -- state --------------------------------------------------------------------------------------------------------

    def assign(self, source: Operand) -> None:
        """Overwrite this register: ``value.assign(value + 1)`` is a device assignment, ``value = value + 1`` a new name."""
        if isinstance(source, Value) and not source.uniform:
            self.uniform = False
        self._writer.emit(f"mov.{_move_suffix(self.type)} {self.text}, {self._writer.operand(source, self.type)};")

    def retyped(self, type_: RegisterType) -> Value:
        """Return the same register seen as another type of the same width; emits nothing."""
        if type_.bits != self.type.bits:
            raise TraceError(
                f"{self.text} is a {self.type} of {self.type.bits} bits and cannot be seen as a {type_} of {type_.bits}; "
                f"use Writer.widen for a conversion",
                code="TK-TRACE-001",
            )
        return Value(self._writer, type_, self.text, uniform=self.uniform)

    # -- what a device value is not --------------------------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} is a device value: its truth is only known when the kernel runs, so a Python `if`, `while`, `and`, `or` or "
            f"`not` cannot use it. Write `with w.when(condition):` for a branch, `a & b` for a conjunction of predicates, "
            f"`w.select(condition, x, y)` for a choice.",
            code="TK-TRACE-002",
        )

    def __index__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} is a device value and has no Python integer, so `range`, indexing and formatting cannot use it. "
            f"Write `for i in w.range(count):` for a device loop; a Python `range` over build-time integers unrolls.",
            code="TK-TRACE-003",
        )

    __int__ = __index__

    def __iter__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} is a device value and cannot be iterated. Write `for i in w.range(count):` for a device loop.",
            code="TK-TRACE-003",
        )

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _binary(self, operation: str, other: Operand) -> Value:
        if self.type.arithmetic is None:
            raise TraceError(
                f"{self!r} has no arithmetic: a {self.type} is moved, compared bitwise or passed on",
                code="TK-TRACE-004",
            )
        result = self._writer.new(self.type, self._hint(operation), uniform=self._joint_uniform(other))
        text = self._writer.operand(other, self.type)
        self._writer.emit(f"{operation}.{self.type.arithmetic} {result.text}, {self.text}, {text};")
        return result

    def _bitwise(self, operation: str, other: Operand) -> Value:
        result = self._writer.new(self.type, self._hint(operation), uniform=self._joint_uniform(other))
        self._writer.emit(
            f"{operation}.{self._bit_suffix()} {result.text}, {self.text}, {self._writer.operand(other, self.type)};"
        )
        return result

    def _compare(self, relation: str, other: object) -> Value:
        if not isinstance(other, (Value, int, float)):
            raise TraceError(
                f"{self!r} was compared with {other!r}; a device value compares with device values and numbers",
                code="TK-TRACE-004",
            )
        result = self._writer.new(PRED, relation, uniform=self._joint_uniform(other))
        suffix = self.type.arithmetic or f"b{self.type.bits}"
        self._writer.emit(
            f"setp.{relation}.{suffix} {result.text}, {self.text}, {self._writer.operand(other, self.type)};"
        )
        return result

    def _joint_uniform(self, other: Operand) -> bool:
        return self.uniform and (not isinstance(other, Value) or other.uniform)

    def _bit_suffix(self) -> str:
        return "pred" if self.type is PRED else f"b{self.type.bits}"

    def _hint(self, operation: str) -> str:
        return operation.partition(".")[0]


class RegisterTile(Sequence[Value]):
    """Consecutive registers of one type: an accumulator fragment, or what a vector instruction fills."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = tuple(values)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return RegisterTile(self._values[index])
        return self._values[index]

    @property
    def type(self) -> RegisterType:
        """The type all registers of the tile share."""
        return self._values[0].type

    def __repr__(self) -> str:
        return f"<{len(self)} x {self.type} {self._values[0].text}…>"


def _is_int(value: object, constant: int) -> bool:
    return isinstance(value, int) and value == constant


def _move_suffix(type_: RegisterType) -> str:
    return {"pred": "pred", "f32": "f32", "b16": "b16"}.get(
        type_.declared, f"b{type_.bits}" if type_.arithmetic is None else type_.arithmetic
    )
