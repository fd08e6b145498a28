"""Epilogues written as Python functions: `epilogue` marks one, and calling it with operands says what a launch does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import Any

import numpy as np

from tilekit.assembly.errors import TraceError
from tilekit.dtypes import DType, as_dtype
from tilekit.epilogue import reference
from tilekit.epilogue.expression import Element, Reduced, Tracer, as_float
from tilekit.epilogue.graph import Graph, Kind, Total
from tilekit.epilogue.whole_operands import whole_operand
from tilekit.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class EpilogueCall:
    """A function with its operands: what ``matmul(…, epilogue=…)`` takes.

    Attributes
    ----------
    function, graph
        The function, and what it computes.
    operands
        Arrays and numbers, in the order of its parameters.
    """

    function: EpilogueFunction
    graph: Graph
    operands: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"<epilogue {self.graph.name}({', '.join(self.function.operands)})>"

    def reference(self, accumulators: Any, *, dtype: Any = np.float64) -> Any:
        """What the function makes of a product, (M, N) or (B, M, N), in NumPy; not rounded to an output's type.

        Raises
        ------
        ArgumentError
            ``TK-EPI-004`` for operands that do not broadcast to it, and for whole numbers of more than 32 bits.
        """
        shape = np.shape(accumulators)
        operands = [self._operand(index, shape) for index in range(len(self.operands))]
        results = reference.evaluate(self.graph, accumulators, operands, np.dtype(dtype).type)
        return results[0] if len(results) == 1 else results

    def _operand(self, index: int, shape: tuple[int, ...]) -> Any:
        """An operand, checked against a product's shape; one that nothing follows from as it is."""
        name, kind, given = self.function.operands[index], self.function.kinds[index], self.operands[index]
        if index not in self.graph.operands:
            return given
        if kind == "s32":
            return whole_operand(self.graph, index, name, given)
        own = np.shape(given)
        pairs = zip(own[::-1], shape[::-1], strict=False)
        if len(own) > len(shape) or any(extent not in (1, most) for extent, most in pairs):
            raise ArgumentError(
                f"{name} has shape {own}, which does not broadcast to the product, {shape}; legal: one whose extents "
                "from the last on are the product's, or 1",
                code="TK-EPI-004",
            )
        return given


class EpilogueFunction:
    """A Python function of an element of a product, and of what lies in its place in operands.

    Attributes
    ----------
    operands
        Names of its operands.
    kinds
        What each is in a register: ``s32`` where the parameter is annotated as ``int``.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        legal = "a function of Python's, def or lambda, whose first parameter is the element of the product"
        if not callable(function) or isinstance(function, (EpilogueFunction, np.ufunc, type)):
            nearest = f"lambda x: np.{function.__name__}(x)" if isinstance(function, np.ufunc) else None
            raise ArgumentError.of("tilekit.epilogue", function, legal=legal, nearest=nearest, code="TK-EPI-003")
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # of what is written in C
            raise ArgumentError.of("tilekit.epilogue", function, legal=legal, code="TK-EPI-003") from None
        update_wrapper(self, function)
        self._function = function
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise self._illegal(f"*{parameter.name}", "parameters with names: each operand is one")
        inputs = [one for one in parameters if one.kind is not one.KEYWORD_ONLY]
        if not inputs:
            raise self._illegal("no parameter", "a function whose first parameter is the element of the product")
        self.operands = tuple(one.name for one in inputs[1:])
        self.kinds: tuple[Kind, ...] = tuple("s32" if one.annotation in (int, "int") else "f32" for one in inputs[1:])
        self._signature = inspect.Signature([*inputs[1:], *(one for one in parameters if one.kind is one.KEYWORD_ONLY)])
        self._graphs: dict[Hashable, Graph] = {}
        constants = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
        if all(one.default is not one.empty for one in constants):
            self.graph({one.name: one.default for one in constants})  # its mistakes are found here

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self._function, "__name__", "epilogue"))

    def __repr__(self) -> str:
        return f"<epilogue {self.name}{self._signature}>"

    def __call__(self, *operands: Any, **named: Any) -> EpilogueCall:
        """Give the function its operands; keyword-only parameters are constants of the kernel."""
        try:
            bound = self._signature.bind(*operands, **named)
        except TypeError as wrong:
            raise ArgumentError(
                f"{self.name}{self._signature} as an epilogue: {wrong}; its first parameter, the element of the "
                "product, is not given",
                code="TK-EPI-004",
            ) from None
        bound.apply_defaults()
        constants = {name: value for name, value in bound.arguments.items() if name not in self.operands}
        return EpilogueCall(self, self.graph(constants), tuple(bound.arguments[name] for name in self.operands))

    def reference(self, accumulators: Any, *operands: Any, dtype: Any = np.float64, **named: Any) -> Any:
        """What the function makes of a product and operands, in NumPy, computed in `dtype` and not rounded."""
        return self(*operands, **named).reference(accumulators, dtype=dtype)

    def graph(self, constants: Mapping[str, Any]) -> Graph:
        """Run the function with symbolic elements.

        Raises
        ------
        TraceError
            ``TK-EPI-003``, with file and line, for what no element has; ``TK-EPI-002`` for what it returns.
        """
        key = tuple(sorted((name, type(value).__name__, repr(value)) for name, value in constants.items()))
        if key not in self._graphs:
            tracer = Tracer(self.name)
            given = [tracer.step("accumulator")]
            for index, kind in enumerate(self.kinds):
                given.append(tracer.step("operand", value=index, kind=kind))
            self._graphs[key] = self._graph(tracer, self._function(*given, **constants))
        return self._graphs[key]

    def _graph(self, tracer: Tracer, returned: Any) -> Graph:
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        outputs: list[int] = []
        dtypes: list[DType | None] = []
        totals: list[Total] = []
        order: list[tuple[str, int]] = []
        for result in results:
            if isinstance(result, Reduced):
                order.append(("total", len(totals)))
                totals.append(Total(result.along, result.combine, result.element.place))
            elif isinstance(result, Element):
                stored = as_float(result)
                order.append(("output", len(outputs)))
                outputs.append(stored.place)
                step = tracer.steps[stored.place]
                dtypes.append(as_dtype(step.value) if step.does in ("round", "type") else None)
            else:
                raise self._wrong(result)
        if not results or not isinstance(results[0], Element):
            raise self._wrong(results[0] if results else None)
        return _pruned(
            Graph(self.name, tuple(tracer.steps), tuple(outputs), tuple(dtypes), tuple(totals), tuple(order))
        )

    def _wrong(self, result: object) -> TraceError:
        return TraceError(
            f"{self._place}: {self.name} returned {result!r}; it must return what becomes of the element, and may "
            "return further elements, row_sum(...) and their like after it",
            code="TK-EPI-002",
        )

    def _illegal(self, given: str, legal: str) -> ArgumentError:
        return ArgumentError(f"{self._place}: epilogue of {given}; legal: {legal}", code="TK-EPI-003")

    @cached_property
    def _place(self) -> str:
        code = getattr(self._function, "__code__", None)
        return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code else repr(self._function)


def _pruned(graph: Graph) -> Graph:
    """The graph without steps that nothing follows from."""
    needed = {*graph.outputs, *(total.step for total in graph.totals)}
    for place in range(len(graph.steps) - 1, -1, -1):
        if place in needed:
            needed |= set(graph.steps[place].args)
    kept = sorted(needed)
    new = {old: place for place, old in enumerate(kept)}
    steps = tuple(
        type(step)(step.does, tuple(new[arg] for arg in step.args), step.value, step.kind)
        for step in (graph.steps[old] for old in kept)
    )
    totals = tuple(Total(total.along, total.combine, new[total.step]) for total in graph.totals)
    return Graph(graph.name, steps, tuple(new[one] for one in graph.outputs), graph.dtypes, totals, graph.order)


def epilogue(function: Callable[..., Any]) -> EpilogueFunction:
    """Mark a Python function as an epilogue.

    Its first parameter is an element of the product, accumulated in f32; the others are operands, and what lies in
    the element's place in each: matrices, rows, columns or scalars, as their shapes broadcast to the result. A
    parameter annotated as ``int`` is a whole number of 32 bits, and keyword-only ones are constants. It returns what
    becomes of the element, and after that, if more is to be stored, further elements and ``row_sum(…)`` and its like.

    Raises
    ------
    ArgumentError
        ``TK-EPI-003`` for what is no function, or one without a parameter.
    TraceError
        ``TK-EPI-003``, with file and line, where the function asks what no element has.

    Examples
    --------
    >>> import numpy as np, tilekit
    >>> @tilekit.epilogue
    ... def gated(x, gate, scale):
    ...     return tilekit.epilogue.silu(x) * gate * scale
    >>> a, b, gate = np.eye(64, dtype="f2"), np.ones((64, 64), "f2"), np.full((64, 64), 3, "f2")
    >>> float(tilekit.matmul(a, b, epilogue=gated(gate, 2.0))[0, 0])
    4.38671875
    """
    return EpilogueFunction(function)
