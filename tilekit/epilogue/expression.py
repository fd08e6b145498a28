"""The symbolic elements that make the graph of an epilogue written in Python.

A function is run once with an `Element` for each of its parameters. What it does with them becomes steps of a graph,
which is part of a kernel's spec: equal graphs are one kernel.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tilekit.assembly.errors import TraceError
from tilekit.dtypes import BF16, DTYPES, F16, as_dtype
from tilekit.epilogue.combining import Combine
from tilekit.epilogue.graph import (
    BITS,
    COMPARISONS,
    FUNCTIONS,
    SHIFTS,
    Axis,
    Kind,
    Step,
)
from tilekit.errors import ArgumentError

_HERE, _NUMPY = (str(Path(file).resolve().parent) for file in (__file__, np.__file__))

_UFUNCS: Mapping[str, str] = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "maximum": "max",
    "minimum": "min",
    "power": "pow",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
    "logical_and": "and",
    "logical_or": "or",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "left_shift": "shl",
    "right_shift": "shr",
    **{name: name for name in ("exp", "exp2", "log", "log2", "sqrt", "tanh")},
    "absolute": "abs",
    "fabs": "abs",
    "negative": "neg",
    "square": "square",
    "reciprocal": "reciprocal",
    "logical_not": "not",
    "invert": "not",
}
"""NumPy's functions by the names of what they become."""


LARGEST = (1 << 128) - (1 << 104)
"""The largest number of f32."""


class Tracer:
    """The steps of a function that is being run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[Step] = []
        self._known: dict[Step, int] = {}

    def step(self, does: str, *args: Element, value: int | str | None = None, kind: Kind = "f32") -> Element:
        """Add a step, or find the same one."""
        made = Step(does, tuple(arg.place for arg in args), value, kind)
        place = self._known.get(made)
        if place is None:
            place = self._known[made] = len(self.steps)
            self.steps.append(made)
        return Element(self, place, kind)

    def constant(self, value: Any, kind: Kind) -> Element:
        """A number."""
        if kind == "pred":
            zero = self.constant(0, "u32")
            return self.step("ne" if value else "lt", self.constant(1, "u32"), zero, kind="pred")
        if kind == "f32":
            if isinstance(value, int) and abs(value) > LARGEST:
                raise error(f"{self.name} has the number {_shown(value)}; legal: numbers of f32, to 3.4e38")
            with np.errstate(over="ignore"):
                bits = int(np.float32(value).view(np.uint32))
            return self.step("constant", value=bits, kind="f32")
        if not -(1 << 31) <= value < 1 << 32:
            raise error(
                f"{self.name} has the whole number {_shown(value)}; legal: -2147483648 to 4294967295, of 32 bits"
            )
        return self.step("constant", value=int(value) & 0xFFFFFFFF, kind="u32")

    def lift(self, value: Any, like: Kind) -> Element:
        """Take an element as it is, and a number as one of `like`'s kind where it can be."""
        if isinstance(value, Element):
            if value.tracer is not self:
                raise error(f"{self.name}: an element of another function's run was kept and used again")
            return value
        if isinstance(value, (bool, np.bool_)):
            return self.constant(bool(value), "pred")
        if isinstance(value, (int, np.integer)):
            return self.constant(int(value), "u32" if like == "u32" else "f32")
        if isinstance(value, (float, np.floating)):
            return self.constant(float(value), "f32")
        if isinstance(value, Reduced):
            value.refuse()
        raise error(
            f"{self.name} combines an element with {_shown(value)}; legal: elements and numbers. Arrays are operands: "
            "give the function a parameter, and pass the array where the epilogue is called"
        )


class Element:
    """An element of the output, or of an operand in its place, while a function is run: a step of its graph.

    It takes NumPy's operators and functions, and those of `tilekit.epilogue`. It has no neighbours, no truth and no
    number: these are only known when the kernel runs.
    """

    __slots__ = ("kind", "place", "tracer")
    __hash__ = object.__hash__

    def __init__(self, tracer: Tracer, place: int, kind: Kind) -> None:
        self.tracer = tracer
        self.place = place
        self.kind: Kind = kind

    def __repr__(self) -> str:
        return f"<element: {self.tracer.steps[self.place].does}, {self.kind}>"

    # -- operators ----------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Element:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Element:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Element:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Element:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Element:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Element:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Element:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Element:
        return binary("div", other, self)

    def __pow__(self, other: Any) -> Element:
        return power(self, other)

    def __rpow__(self, other: Any) -> Element:
        return power(self.tracer.lift(other, "f32"), self)

    def __neg__(self) -> Element:
        return binary("mul", self, -1.0) if self.kind == "f32" else binary("sub", 0, self)

    def __pos__(self) -> Element:
        return self

    def __abs__(self) -> Element:
        return unary("abs", self)

    def __and__(self, other: Any) -> Element:
        return binary("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Element:
        return binary("or", self, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Element:
        return binary("xor", self, other)

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Element:
        return binary("shl", self, self._count(other))

    def __rshift__(self, other: Any) -> Element:
        return binary("shr", self, self._count(other))

    def _count(self, bits: Any) -> Any:
        """By how many bits a whole number is shifted."""
        if isinstance(bits, (int, np.integer)) and not 0 <= bits < 32:
            raise error(f"{self.tracer.name} shifts by {_shown(bits)} bits; legal: 0 to 31")
        return bits

    def __invert__(self) -> Element:
        return invert(self)

    def __lt__(self, other: Any) -> Element:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Element:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> Element:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> Element:
        return binary("ge", self, other)

    def __eq__(self, other: object) -> Element:  # type: ignore[override]
        return binary("eq", self, other)

    def __ne__(self, other: object) -> Element:  # type: ignore[override]
        return binary("ne", self, other)

    def astype(self, dtype: Any) -> Element:
        """The element rounded to a type: bf16 or f16, f32, or as a whole number's f32."""
        if isinstance(dtype, str) and dtype == "u32" and self.kind == "u32":
            return self
        return cast(self, dtype)

    # -- NumPy's functions --------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Element:
        name = _UFUNCS.get(ufunc.__name__)
        if method != "__call__" or keywords:
            raise error(
                f"{self.tracer.name} asks for numpy.{ufunc.__name__}.{method}: an element has no neighbours to combine "
                "with. Sums and largest elements of rows and columns are row_sum, column_sum, row_max and column_max "
                "of tilekit.epilogue, among what the function returns"
            )
        if name is None:
            raise unknown(self.tracer.name, f"numpy.{ufunc.__name__}")
        if name == "pow":
            return power(*inputs)
        if name == "neg":
            return -self
        if name == "not":
            return invert(self)
        if name == "square":
            return self * self
        if name == "reciprocal":
            return 1.0 / self
        return unary(name, self) if len(inputs) == 1 else binary(name, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Element:
        if function is np.where and len(args) == 3 and not kwargs:
            return where(*args)
        if function is np.clip and len(args) + len(kwargs) >= 3:
            x, low, high = (*args, *kwargs.values())[:3]
            return binary("min", binary("max", x, low), high)
        raise unknown(self.tracer.name, f"numpy.{function.__name__}")

    # -- what an element is not ---------------------------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise error(
            f"{self.tracer.name} asks whether an element is true, which is only known when the kernel runs: `if`, "
            "`while`, `and`, `or` and `not` cannot use it. Write where(condition, x, y) for a choice, and & | ~ for "
            "conditions"
        )

    def _neighbour(self, *_: Any) -> NoReturn:
        raise error(
            f"{self.tracer.name} takes an element for an array: it has no index, no length and no neighbours, since "
            "each element of the output is computed by itself. Pass what lies elsewhere as an operand"
        )

    __getitem__ = __setitem__ = __delitem__ = __len__ = __iter__ = __contains__ = _neighbour

    def _number(self, *_: Any) -> NoReturn:
        raise error(
            f"{self.tracer.name} takes an element for a number, which it is only when the kernel runs: Python's float, "
            "int, round and math cannot use it. Use the functions of tilekit.epilogue or NumPy"
        )

    __format__ = __float__ = __int__ = __index__ = __complex__ = __round__ = __floor__ = __ceil__ = __trunc__ = _number

    def _whole(self, *_: Any) -> NoReturn:
        raise error(
            f"{self.tracer.name} divides with // or %, which elements do not have; legal: / and, of whole "
            "numbers, >> and &"
        )

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = _whole

    def __matmul__(self, other: Any) -> NoReturn:
        self._neighbour()

    __rmatmul__ = __matmul__

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise error(
            f"{self.tracer.name} asks an element for .{name}, which it does not have; legal: .astype(dtype), "
            "operators, and the functions of tilekit.epilogue or NumPy"
        )


@dataclass(frozen=True, eq=False)
class Reduced:
    """What `row_sum` and its like return: among what a function returns, a vector beside the result."""

    element: Element
    along: Axis
    combine: Combine

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what would need the total in the kernel."""
        raise error(
            f"{self.element.tracer.name} goes on with {self.along}_{self.combine}, a total, which is complete only "
            "when the kernel ends; legal: to return it beside the result"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = refuse
    __neg__ = __pos__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __xor__ = __invert__ = refuse
    __bool__ = __float__ = __int__ = __index__ = __format__ = __getitem__ = __len__ = __iter__ = refuse
    __array__ = __array_ufunc__ = __array_function__ = astype = refuse


def unary(does: str, x: Any) -> Element:
    """A function of one f32."""
    element: Element = as_float(x)
    return element.tracer.step(does, element)


def binary(does: str, x: Any, y: Any) -> Element:
    """An operation of two elements, or of an element and a number."""
    one = x if isinstance(x, Element) else y
    x, y = one.tracer.lift(x, one.kind), one.tracer.lift(y, one.kind)
    tracer = one.tracer
    if does in BITS or does in SHIFTS:
        if does in BITS and x.kind == y.kind == "pred":
            return tracer.step(does, x, y, kind="pred")
        if x.kind == y.kind == "u32":
            return tracer.step(does, x, y, kind="u32")
        raise error(f"{tracer.name}: {does} of {x.kind} and {y.kind}; legal: two conditions, or two whole numbers")
    if x.kind == y.kind == "u32" and does not in ("div", "max", "min"):
        return tracer.step(does, x, y, kind="pred" if does in COMPARISONS else "u32")
    x, y = as_float(x), as_float(y)
    return tracer.step(does, x, y, kind="pred" if does in COMPARISONS else "f32")


def power(x: Any, y: Any) -> Element:
    """``x ** y``: products for small whole powers, else 2^(y log2 x)."""
    if isinstance(y, (int, float)) and not isinstance(y, bool):
        if y == 0.5:
            return unary("sqrt", x)
        if y == -0.5:
            return unary("rsqrt", x)
        if float(y).is_integer() and 1 <= abs(y) <= 8:
            result: Element = x
            for _ in range(int(abs(y)) - 1):
                result = result * x
            return result if y > 0 else 1.0 / result
    one = x if isinstance(x, Element) else y
    lifted: Element = one.tracer.lift(x, "f32")
    return unary("exp2", binary("mul", y, unary("log2", lifted)))


def invert(x: Element) -> Element:
    """The opposite of a condition; all bits of a whole number."""
    if x.kind == "f32":
        raise error(f"{x.tracer.name}: ~ of an f32; legal: of a condition, or of a whole number")
    one = x.tracer.constant(True, "pred") if x.kind == "pred" else x.tracer.constant(0xFFFFFFFF, "u32")
    return binary("xor", x, one)


def where(condition: Any, x: Any, y: Any) -> Element:
    """`x` where a condition holds, else `y`."""
    one = next(value for value in (condition, x, y) if isinstance(value, Element))
    tracer: Tracer = one.tracer
    if isinstance(condition, (bool, np.bool_)):
        return tracer.lift(x if condition else y, "f32")
    if not isinstance(condition, Element) or condition.kind != "pred":
        raise error(f"{tracer.name}: where({_shown(condition)}, ...); legal: a condition, such as x > 0")
    kinds = {value.kind for value in (x, y) if isinstance(value, Element)}
    like: Kind = "u32" if kinds == {"u32"} else "f32"
    x, y = tracer.lift(x, like), tracer.lift(y, like)
    if like == "f32":
        x, y = as_float(x), as_float(y)
    return tracer.step("where", condition, x, y, kind=like)


def as_float(x: Element) -> Element:
    """A whole number or a condition as an f32."""
    return x if x.kind == "f32" else x.tracer.step("float", x)


def cast(x: Element, dtype: Any) -> Element:
    """An element rounded to an element type, and an f32 again."""
    try:
        wanted = as_dtype(dtype, "astype")
    except ArgumentError:
        wanted = None
    if wanted not in DTYPES:
        names = [one.name for one in DTYPES]
        near = difflib.get_close_matches(dtype, names, 1) if isinstance(dtype, str) else []
        nearest = near[0] if near else "f32"
        raise error(f"{x.tracer.name}: astype({dtype!r}); legal: {', '.join(names)}; nearest: {nearest}")
    x = as_float(x)
    if wanted in (BF16, F16):
        return x.tracer.step("round", x, value=wanted.name)
    return x.tracer.step("type", x, value=wanted.name)


def unknown(function: str, name: str) -> TraceError:
    """The error for a function that elements do not have."""
    known = ", ".join([*FUNCTIONS, "maximum", "minimum", "where", "clip"])
    return error(f"{function} calls {name}, which elements do not have; legal: {known}, operators and astype")


def error(message: str) -> TraceError:
    """An error of a function of the caller's, with the file and line where it is."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_HERE, _NUMPY)):
        frame = frame.f_back
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    return TraceError(f"{place}: {message}", code="TK-EPI-003")


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"[:80]
