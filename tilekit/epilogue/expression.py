"""The symbolic elements that make the graph of an epilogue written in Python.

A function is run once with an `Element` for each of its parameters. What it does with them becomes steps of a graph,
which is part of a kernel's spec: equal graphs are one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tilekit.dtypes import BF16, DTYPES, F16, F32, as_dtype, nearest_dtype
from tilekit.epilogue.combining import Combine
from tilekit.epilogue.graph import BITS, COMPARISONS, SHIFTS, WHOLE, Axis, Kind, Step
from tilekit.epilogue.mistakes import error, shown, unknown
from tilekit.epilogue.numpy_names import LOGICAL, UFUNCS, WHOLE_TYPES
from tilekit.errors import ArgumentError

LARGEST = (1 << 128) - (1 << 104)
"""The largest number of f32."""

PRODUCTS = 64
"""The largest whole exponent whose power is made of products."""


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
            zero = self.constant(0, "s32")
            return self.step("ne" if value else "lt", self.constant(1, "s32"), zero, kind="pred")
        if kind == "f32":
            if isinstance(value, int) and abs(value) > LARGEST:
                raise error(f"{self.name} has the number {shown(value)}; legal: numbers of f32, to 3.4e38")
            with np.errstate(over="ignore"):
                bits = int(np.float32(value).view(np.uint32))
            return self.step("constant", value=bits, kind="f32")
        low, high = (-(1 << 31), (1 << 31) - 1) if kind == "s32" else (0, (1 << 32) - 1)
        if not low <= value <= high:
            more = ", and to 4294967295 beside .astype('u32') of a whole number" if kind == "s32" else ""
            raise error(f"{self.name} has the whole number {shown(value)}; legal: {low} to {high}, of 32 bits{more}")
        return self.step("constant", value=int(value) & 0xFFFFFFFF, kind=kind)

    def lift(self, value: Any, like: Kind) -> Element:
        """Take an element as it is, and a number as one of `like`'s kind where it can be."""
        if isinstance(value, Element):
            if value.tracer is not self:
                raise error(f"{self.name}: an element of another function's run was kept and used again")
            return value
        if isinstance(value, (bool, np.bool_)):
            return self.constant(bool(value), "pred")
        if isinstance(value, (int, np.integer)):
            return self.constant(int(value), like if like in WHOLE else "f32")
        if isinstance(value, (float, np.floating)):
            return self.constant(float(value), "f32")
        if isinstance(value, Reduced):
            value.refuse()
        raise error(
            f"{self.name} combines an element with {shown(value)}; legal: elements and numbers. Arrays are operands: "
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
        return power(other, self)

    def __neg__(self) -> Element:
        return binary("mul", self, -1.0) if self.kind == "f32" else binary("sub", 0, self)

    def __pos__(self) -> Element:
        return self

    def __abs__(self) -> Element:
        return where(self < 0, -self, self) if self.kind == "s32" else unary("abs", self)

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
        return binary("shl", self, other)

    def __rlshift__(self, other: Any) -> Element:
        return binary("shl", other, self)

    def __rshift__(self, other: Any) -> Element:
        return binary("shr", self, other)

    def __rrshift__(self, other: Any) -> Element:
        return binary("shr", other, self)

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
        """The element rounded to a type, bf16 or f16, and f32 again; a whole number's bits as ``s32`` or ``u32``."""
        return cast(self, dtype)

    # -- NumPy's functions --------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Element:
        called = f"{self.tracer.name} calls numpy.{ufunc.__name__}"
        # a number of NumPy's on an operator's left comes as an array without extents
        inputs = tuple(one[()] if isinstance(one, np.ndarray) and one.ndim == 0 else one for one in inputs)
        if method != "__call__":
            raise error(
                f"{called}.{method}: an element has no neighbours to combine with. Sums and largest elements of rows "
                "and columns are row_sum, column_sum, row_max and column_max of tilekit.epilogue, among what the "
                "function returns"
            )
        if keywords:
            choice = "where(condition, x, y) for a choice" if "where" in keywords else ".astype(dtype) for a type"
            names = ", ".join(f"{name}=" for name in keywords)
            form = f"numpy.{ufunc.__name__}({', '.join('xy'[: len(inputs)])})"
            raise error(f"{called} with {names}; legal: {form}, and {choice}")
        if ufunc.__name__ in LOGICAL:
            conditions = [truth(self.tracer.lift(value, "f32")) for value in inputs]
            name = LOGICAL[ufunc.__name__]
            return invert(*conditions) if name == "not" else binary(name, *conditions)
        name = UFUNCS.get(ufunc.__name__, "")
        match name:
            case "":
                raise unknown(self.tracer.name, f"numpy.{ufunc.__name__}")
            case "pow":
                return power(*inputs)
            case "neg":
                return -self
            case "not":
                return invert(self)
            case "square":
                return self * self
            case "reciprocal":
                return 1.0 / self
            case "abs":
                return abs(self)
        return unary(name, self) if len(inputs) == 1 else binary(name, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Element:
        if function is np.where:
            if len(args) == 3 and not kwargs:
                return where(*args)
            raise error(
                f"{self.tracer.name} calls numpy.where with {len(args)} argument{'s' if len(args) > 1 else ''}, which "
                "asks for places among neighbours; legal: where(condition, x, y)"
            )
        if function is np.clip:
            return clip(self.tracer, args, kwargs)
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
    tracer = one.tracer
    if does in SHIFTS and isinstance(y, (int, np.integer)) and not 0 <= y < 32:
        raise error(f"{tracer.name} shifts by {shown(y)} bits; legal: 0 to 31")
    x, y = tracer.lift(x, one.kind), tracer.lift(y, one.kind)
    whole = x.kind in WHOLE and y.kind in WHOLE
    if does in BITS and x.kind == y.kind == "pred":
        return tracer.step(does, x, y, kind="pred")
    if does in SHIFTS and whole:
        return tracer.step(does, x, y, kind=x.kind)
    if (does in BITS or does in SHIFTS) and not whole:
        sign = {"and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}[does]
        legal = "two whole numbers" if does in SHIFTS else "two conditions, or two whole numbers"
        raise error(
            f"{tracer.name}: {sign} of {x.kind} and {y.kind}; legal: {legal}. Whole numbers are row(x), column(x), "
            "batch(x), parameters annotated as int (seed: int), and what follows from them"
        )
    if not whole or does == "div":
        x, y = as_float(x), as_float(y)
        return tracer.step(does, x, y, kind="pred" if does in COMPARISONS else "f32")
    alike(x, y)
    if does in ("max", "min"):
        return where(x > y if does == "max" else x < y, x, y)
    return tracer.step(does, x, y, kind="pred" if does in COMPARISONS else x.kind)


def alike(x: Element, y: Element) -> None:
    """Refuse a signed whole number beside an unsigned one: which of them is negative is not known."""
    if x.kind != y.kind:
        raise error(
            f"{x.tracer.name} combines a whole number with one that .astype('u32') made unsigned; legal: two of a "
            "kind; nearest: .astype('u32') of both"
        )


def clip(tracer: Tracer, args: tuple[Any, ...], keywords: dict[str, Any]) -> Element:
    """``numpy.clip``: at least one limit and at most another, each of which may be None."""
    names = ("a", "a_min", "a_max")[: len(args)]
    given = {**dict(zip(names, args, strict=False)), **keywords}
    low, high = (given.pop(f"a_{one}", given.pop(one, None)) for one in ("min", "max"))
    if len(args) > 3 or set(given) != {"a"} or (low is None and high is None):
        raise error(f"{tracer.name} calls numpy.clip otherwise than clip(x, low, high); legal: one of them may be None")
    x = given["a"]
    if low is not None:
        x = binary("max", x, low)
    return x if high is None else binary("min", x, high)


def power(x: Any, y: Any) -> Element:
    """``x ** y``: products for small whole powers that are known, else 2^(y log2 x) with the sign that it has."""
    one = x if isinstance(x, Element) else y
    tracer: Tracer = one.tracer
    exponent = y.item() if isinstance(y, np.generic) else y
    if isinstance(exponent, (int, float)):
        if exponent in (0.5, -0.5):
            return unary("sqrt" if exponent > 0 else "rsqrt", x)
        if abs(exponent) <= PRODUCTS and exponent == int(exponent):
            whole = isinstance(exponent, int) and exponent >= 0 and x.kind in WHOLE
            return _product(x if whole else as_float(x), int(exponent))
        y = exponent
    x, y = tracer.lift(x, "f32"), tracer.lift(y, "f32")
    return tracer.step("pow", as_float(x), as_float(y))


def _product(x: Element, times: int) -> Element:
    """A whole power."""
    if times < 0:
        return 1.0 / _product(x, -times)
    result = None
    while times:
        if times & 1:
            result = x if result is None else result * x
        times >>= 1
        if times:
            x = x * x
    return x.tracer.constant(1, x.kind) if result is None else result


def truth(x: Element) -> Element:
    """A condition, or whether a number is not 0."""
    return x if x.kind == "pred" else x != 0


def invert(x: Element) -> Element:
    """The opposite of a condition; all bits of a whole number."""
    if x.kind == "f32":
        raise error(f"{x.tracer.name}: ~ of an f32; legal: of a condition, or of a whole number")
    one: Any = True if x.kind == "pred" else -1 if x.kind == "s32" else 0xFFFFFFFF
    return binary("xor", x, one)


def where(condition: Any, x: Any, y: Any) -> Element:
    """`x` where a condition holds, else `y`."""
    one = next(value for value in (condition, x, y) if isinstance(value, Element))
    tracer: Tracer = one.tracer
    if isinstance(condition, (bool, np.bool_)):
        return tracer.lift(x if condition else y, "f32")
    if not isinstance(condition, Element) or condition.kind != "pred":
        raise error(f"{tracer.name}: where({shown(condition)}, ...); legal: a condition, such as x > 0")
    kinds = [value.kind for value in (x, y) if isinstance(value, Element)]
    like: Kind = next((kind for kind in kinds if kind in WHOLE), "f32")
    x, y = tracer.lift(x, like), tracer.lift(y, like)
    if x.kind in WHOLE and y.kind in WHOLE:
        alike(x, y)
        return tracer.step("where", condition, x, y, kind=x.kind)
    return tracer.step("where", condition, as_float(x), as_float(y))


def as_float(x: Element) -> Element:
    """A whole number or a condition as an f32."""
    return x if x.kind == "f32" else x.tracer.step("float", x)


def cast(x: Element, dtype: Any) -> Element:
    """An element rounded to an element type, and an f32 again; the bits of a whole number as another type's."""
    whole = WHOLE_TYPES.get(str(getattr(dtype, "__name__", getattr(dtype, "name", dtype))))
    if whole is not None and x.kind in WHOLE:
        return x if x.kind == whole else x.tracer.step("bits", x, kind=whole)
    try:
        wanted = as_dtype(dtype, "astype")
    except ArgumentError:
        wanted = None
    if wanted not in DTYPES:
        legal = ", ".join([one.name for one in DTYPES] + ["s32", "u32"] * (x.kind in WHOLE))
        nearest = nearest_dtype(dtype)
        nearest = nearest if nearest in DTYPES else F32
        raise error(f"{x.tracer.name}: astype({dtype!r}); legal: {legal}; nearest: {nearest}")
    x = as_float(x)
    if wanted in (BF16, F16):
        return x.tracer.step("round", x, value=wanted.name)
    return x.tracer.step("type", x, value=wanted.name)
