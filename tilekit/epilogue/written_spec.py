"""A Python epilogue in a kernel's spec: its graph, and where the elements of its operands are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from tilekit.annotations import check_fields
from tilekit.assembly.legal import illegal, require_word
from tilekit.dtypes import DType
from tilekit.epilogue.graph import Graph, Step

Where = Literal["number", "scalar", "row", "column", "matrix", "source"]
"""Of an operand: a number of the launch, one element in memory, one a row, one a column, one an element; a matrix that
the epilogue brings itself is its source."""

Level = Literal["shared", "row", "column", "element"]

LONG = 12
"""Steps of an element, with that of the product, beyond which an epilogue takes more registers."""


@dataclass(frozen=True)
class Place:
    """Where an operand's elements are.

    Attributes
    ----------
    where
        As its shape says.
    dtype
        Its element type; None for a number.
    batched
        Whether each matrix of a batch has its own; of a scalar one element a matrix.
    """

    where: Where
    dtype: DType | None = None
    batched: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        require_word("Place", "where", self.where, get_args(Where))
        if (self.where == "number") == (self.dtype is not None) or (self.batched and self.where == "number"):
            legal = "None and not batched for a number of the launch, an element type for what lies in memory"
            raise illegal("Place", "dtype", self.dtype, legal, None if self.where == "number" else "f32")

    @property
    def of_rows(self) -> bool:
        """Whether elements of a row have one value: each row its own, or each matrix of a batch."""
        return self.where == "row" or (self.where == "scalar" and self.batched)


@dataclass(frozen=True)
class WrittenSpec:
    """A Python epilogue in a kernel's spec.

    Attributes
    ----------
    graph
        What is computed.
    places
        Of the function's operands, in their order.
    outputs
        Element types of the further matrices that are stored.
    """

    graph: Graph
    places: tuple[Place, ...]
    outputs: tuple[DType, ...] = ()
    scale: None = field(default=None, init=False)
    bias: None = field(default=None, init=False)
    biases: bool = field(default=False, init=False)
    activation: None = field(default=None, init=False)
    scale_b: bool = field(default=False, init=False)

    @property
    def residual(self) -> DType | None:
        """Element type of the matrix that the epilogue brings."""
        return next((place.dtype for place in self.places if place.where == "source"), None)

    @property
    def scale_a(self) -> bool:
        """Whether rows have anything of their own."""
        return self.visits_rows or any(place.of_rows for place in self.places)

    @property
    def loads_matrices(self) -> bool:
        """Whether threads load elements of matrices."""
        return any(place.where == "matrix" for place in self.places)

    @property
    def visits_rows(self) -> bool:
        """Whether threads reach the rows of matrices by themselves, or make totals."""
        coordinates = self.graph.uses("row") or self.graph.uses("batch")
        return self.loads_matrices or coordinates or bool(self.outputs or self.graph.totals)

    @property
    def reduces(self) -> bool:
        """Whether rows or columns have totals."""
        return bool(self.graph.totals)

    @property
    def reduces_columns(self) -> bool:
        """Whether columns have totals."""
        return any(total.along == "column" for total in self.graph.totals)

    @property
    def loads(self) -> bool:
        """Whether threads load anything."""
        return self.scale_a or any(place.where == "column" for place in self.places)

    @property
    def words(self) -> list[str]:
        """The function in a kernel's name."""
        kinds = "".join(
            {"number": "n", "scalar": "s", "row": "r", "column": "c", "matrix": "m", "source": "x"}[place.where]
            + (place.dtype.name if place.dtype else "")
            + ("b" if place.batched else "")
            for place in self.places
        )
        name = re.sub(r"[^A-Za-z0-9_]+", "_", self.graph.name).strip("_")
        return [name, self.graph.digest, kinds, *(dtype.name for dtype in self.outputs)]

    @property
    def long(self) -> bool:
        """Whether an element has many steps, of which a compiler keeps several elements' in flight."""
        return self.graph.uses("erf") or self.levels().count("element") > LONG

    def levels(self) -> tuple[Level, ...]:
        """How often each step is computed."""
        found: list[Level] = []
        for step in self.graph.steps:
            found.append(self._level(step, {found[arg] for arg in step.args}))
        return tuple(found)

    def of_columns(self) -> tuple[tuple[int, ...], bool]:
        """Places of what elements take of their columns, but the columns' numbers, and whether that is computed.

        Where some of it is no f32, which lanes cannot hand each other, the columns' operands, from which it follows.
        """
        levels, steps = self.levels(), self.graph.steps
        takers = [step.args for place, step in enumerate(steps) if levels[place] == "element"]
        ends = self.graph.outputs + tuple(total.step for total in self.graph.totals)
        asked = {place for args in (*takers, ends) for place in args}
        found = [p for p in sorted(asked) if levels[p] == "column" and steps[p].does != "column"]
        if all(steps[place].kind == "f32" for place in found):
            return tuple(found), True
        operands = [p for p, step in enumerate(steps) if levels[p] == "column" and step.does == "operand"]
        return tuple(operands), False

    def _level(self, step: Step, args: set[Level]) -> Level:
        if step.does == "operand":
            place = self.places[int(step.value or 0)]
            if place.of_rows:
                return "row"
            if place.where == "column":
                return "column"
            return "shared" if place.where in ("number", "scalar") else "element"
        if step.does in ("row", "batch"):
            return "row"
        if step.does == "column":
            return "column"
        if step.does == "accumulator" or "element" in args or {"row", "column"} <= args:
            return "element"
        return "row" if "row" in args else "column" if "column" in args else "shared"
