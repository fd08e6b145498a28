"""Device values: Python objects that stand for registers while a kernel is traced.

Arithmetic on them traces the plain integer, predicate and f32 operations; everything else comes from a fragment. A
device value has no Python truth and no Python integer: ``if value`` and ``range(value)`` raise and say what to write
instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, overload

from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import require_register_type, with_article
from tilekit.assembly.trace import Operation
from tilekit.assembly.types import F32, PRED, U32, RegisterType

if TYPE_CHECKING:
    from tilekit.assembly.writer import Writer

Operand: TypeAlias = "Value | int | float"

_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "negative": operator.neg,
    "absolute": operator.abs,
    "invert": operator.invert,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
"""What NumPy calls Python's operators where one of their operands is its own."""


def _refuses(what: str, instead: str) -> Callable[..., NoReturn]:
    """A method for an operation that no device value has."""

    def refuse(self: Value, *others: object) -> NoReturn:
        raise TraceError(f"{self!r} has no {what}; {instead}", code="TK-TRACE-004")

    return refuse


def _gathers(sign: str, operation: Callable[[Any, Any], Value]) -> Callable[[Value, Operand], Value]:
    """The method for Python's ``value += other``, which gives `value`'s name to another register."""

    def gather(self: Value, other: Operand) -> Value:
        self._writer.presence.require_of_round(self, sign)
        return operation(self, other)

    return gather


class Value:
    """One register (or kernel parameter already loaded into one).

    Attributes
    ----------
    type
        Its register type.
    text
        Its name in the emitted assembly.
    uniform
        Whether every lane of a warp is known to hold the same value. A register overwritten with something else, or
        where lanes may have diverged, is not uniform from there on. What was emitted before, and a loop brings round
        again, is looked at when the trace is whole (`loop_uniformity`).
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

    # -- arithmetic ----------------------------------------------------------------------------------------------------

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
        return self._binary("mul", other)

    def __rmul__(self, other: Operand) -> Value:
        return self * other

    def __neg__(self) -> Value:
        return self._binary("mul", -1)

    def __floordiv__(self, other: Operand) -> Value:
        # ptxas makes a real division even of one by a constant 2 (40 instructions; 13.0 and 13.5).
        bits = self._power_of_two(other)
        return self._divide("div", other) if bits is None else self >> bits

    def __rfloordiv__(self, other: Operand) -> Value:
        return self._writer.constant(self.type, other) // self

    def __mod__(self, other: Operand) -> Value:
        bits = self._power_of_two(other)
        return self._divide("rem", other) if bits is None else self & ((1 << bits) - 1)

    def __rmod__(self, other: Operand) -> Value:
        return self._writer.constant(self.type, other) % self

    def __lshift__(self, bits: Operand) -> Value:
        return self if _is_int(bits, 0) else self._shift("shl", bits)

    def __rlshift__(self, other: Operand) -> Value:
        return self._writer.constant(self.type, other) << self

    def __rshift__(self, bits: Operand) -> Value:
        return self if _is_int(bits, 0) else self._shift("shr", bits)

    def __rrshift__(self, other: Operand) -> Value:
        return self._writer.constant(self.type, other) >> self

    def __and__(self, other: Operand) -> Value:
        return self._bitwise("and", other)

    def __or__(self, other: Operand) -> Value:
        return self._bitwise("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._bitwise("xor", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Value:
        self.require(self.type is not F32, "bits")
        return self._writer.operate("not", self.type, self.type, self)

    __iadd__ = _gathers("+", operator.add)
    __isub__ = _gathers("-", operator.sub)
    __imul__ = _gathers("*", operator.mul)
    __ifloordiv__ = _gathers("//", operator.floordiv)
    __imod__ = _gathers("%", operator.mod)
    __ilshift__ = _gathers("<<", operator.lshift)
    __irshift__ = _gathers(">>", operator.rshift)
    __iand__ = _gathers("&", operator.and_)
    __ior__ = _gathers("|", operator.or_)
    __ixor__ = _gathers("^", operator.xor)

    # -- comparison ----------------------------------------------------------------------------------------------------

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

    # -- state ---------------------------------------------------------------------------------------------------------

    def assign(self, source: Operand) -> None:
        """Overwrite this register: ``value.assign(value + 1)`` is a device assignment, ``value = value + 1`` a name."""
        move = Operation("move", self.type, self, (self._writer.operand(source, self.type),))
        if self._writer.divergent or (isinstance(source, Value) and not source.uniform):
            if self.uniform:
                self._writer.lost_uniform.append(move)
            self.uniform = False
        self._writer.emit(move)
        self._writer.presence.made(self)

    def retyped(self, type_: RegisterType) -> Value:
        """Return the same register seen as another type of the same width; emits nothing."""
        require_register_type(f"{self.text}.retyped", "type_", type_)
        if type_.bits != self.type.bits:
            raise TraceError(
                f"{self.text} is {with_article(self.type)} of {self.type.bits} bits and cannot be seen as "
                f"{with_article(type_)} of {type_.bits}; Writer.widen_multiply(value, 1) widens a u32",
                code="TK-TRACE-001",
            )
        return Value(self._writer, type_, self.text, uniform=self.uniform)

    def renamed(self, text: str) -> Value:
        """Return another register of this one's type, which the caller declares."""
        return Value(self._writer, self.type, text, uniform=False)

    # -- what a device value is not ------------------------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} is a device value: its truth is only known when the kernel runs, so a Python `if`, `while`, "
            f"`and`, `or` or `not` cannot use it. Write `with w.when(condition):` for a branch, `a & b` for a "
            f"conjunction of predicates, `w.select(condition, x, y)` for a choice.",
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

    __getitem__ = _refuses("elements", "it is one register: a tile of them has, such as w.tile(type, count, name)")
    __float__ = _refuses(
        "Python float, so `float` and `math` cannot use it",
        "the fragments of w.isa.elementwise compute: absolute, divide, exp2, log2, sqrt, tanh and others",
    )
    __truediv__ = __rtruediv__ = _refuses("/", "write w.isa.elementwise.divide(a=, b=) for f32, // for integers")
    __pow__ = __rpow__ = _refuses("**", "write x * x, or w.isa.elementwise.exp2(x=), log2 and sqrt")
    __abs__ = _refuses("abs", "write w.isa.elementwise.absolute(x=)")
    __divmod__ = __rdivmod__ = _refuses("divmod", "write // and %")
    __matmul__ = __rmatmul__ = _refuses("@", "tiles are multiplied by a component, such as Wgmma or MmaSync")

    def __format__(self, spec: str) -> str:
        if spec:
            raise TraceError(
                f"{self!r} is a device value, which has no number to format as {spec!r}; nearest: no format",
                code="TK-TRACE-003",
            )
        return repr(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        if ufunc.__name__ not in _UFUNCS or method != "__call__" or keywords:
            raise TraceError(
                f"{self!r} is a device value, which NumPy's {ufunc.__name__} cannot compute with; the fragments of "
                "w.isa.elementwise do: absolute, divide, exp2, log2, maximum, sqrt, tanh and others",
                code="TK-TRACE-004",
            )
        import numpy as np  # the caller has it

        cells = [np.empty((), object) if isinstance(given, Value) else given for given in inputs]
        for cell, given in zip(cells, inputs, strict=True):
            if isinstance(given, Value):
                cell[()] = given
        return np.frompyfunc(_UFUNCS[ufunc.__name__], len(cells), 1)(*cells)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _binary(self, operation: str, other: Operand) -> Value:
        self.require(self.type.is_number, "arithmetic")
        return self._writer.operate(operation, self.type, self.type, self, other)

    def _divide(self, operation: str, other: Operand) -> Value:
        self.require(self.type is not F32, "integer division (w.isa.elementwise.divide(a=, b=) divides f32)")
        if _is_int(other, 0):
            raise TraceError(
                f"{self!r} is divided by 0, which has no result; write a divisor of at least 1", code="TK-TRACE-005"
            )
        return self._binary(operation, other)

    def _power_of_two(self, divisor: Operand) -> int | None:
        """log2 of a constant divisor, where shifting right divides by it: unsigned integers."""
        if not isinstance(divisor, int) or divisor.bit_count() != 1 or divisor < 1:
            return None
        return divisor.bit_length() - 1 if self.type.kind == "unsigned" else None

    def _bitwise(self, operation: str, other: Operand) -> Value:
        self.require(self.type is not F32, "bitwise operations")
        return self._writer.operate(operation, self.type, self.type, self, other)

    def _shift(self, operation: str, bits: Operand) -> Value:
        self.require(self.type is not F32 and self.type is not PRED, "shifts")
        writer = self._writer
        result = writer.new(self.type, operation, uniform=all_uniform(self, bits))
        writer.emit(Operation(operation, self.type, result, (self, writer.operand(bits, U32))))
        return result

    def _compare(self, relation: str, other: object) -> Value:
        if not isinstance(other, (Value, int, float)):
            raise TraceError(
                f"{self!r} was compared with {other!r}; a device value compares with device values and numbers",
                code="TK-TRACE-004",
            )
        self.require(self.type is not PRED, "comparison (`a ^ b` and `~(a ^ b)` compare predicates)")
        self.require(self.type.is_number or relation in ("eq", "ne"), "order")
        return self._writer.operate(relation, self.type, PRED, self, other)

    def require(self, holds: bool, what: str) -> None:
        """Refuse an operation that the type does not have (``TK-TRACE-004``)."""
        if not holds:
            type_ = with_article(self.type)
            raise TraceError(f"{self!r} has no {what}: {type_} value does not support it", code="TK-TRACE-004")


class RegisterTile(Sequence[Value]):
    """Consecutive registers of one type: an accumulator fragment, or what a vector instruction fills."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = tuple(values)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values)

    @overload
    def __getitem__(self, index: int) -> Value: ...

    @overload
    def __getitem__(self, index: slice) -> RegisterTile: ...

    def __getitem__(self, index: int | slice) -> Value | RegisterTile:
        if isinstance(index, slice):
            return RegisterTile(self._values[index])
        return self._values[index]

    def __repr__(self) -> str:
        return f"<{len(self)} x {self._values[0].type} {self._values[0].text}…>" if self._values else "<0 registers>"


def all_uniform(*operands: object) -> bool:
    """Whether all are numbers or uniform values."""
    varying = [operand for operand in operands if isinstance(operand, Value) and not operand.uniform]
    return not varying


def _is_int(value: object, constant: int) -> bool:
    return isinstance(value, int) and value == constant
