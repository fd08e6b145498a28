"""What an epilogue written in Python computes: an immutable graph, which is part of a kernel's spec."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal, TypeAlias

from tilekit.dtypes import DType
from tilekit.epilogue.combining import Combine

Kind: TypeAlias = Literal["f32", "s32", "u32", "pred"]
"""Of a value: every floating-point element is an f32 in a register, and whole numbers are modulo 2^32: signed, but
where the function asks for their bits as unsigned."""

WHOLE: tuple[Kind, ...] = ("s32", "u32")

Axis: TypeAlias = Literal["row", "column"]

ARITHMETIC = ("add", "sub", "mul", "div", "max", "min")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
BITS = ("and", "or", "xor")
SHIFTS = ("shl", "shr")
FUNCTIONS = ("abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "erf", "relu", "tanh", "sigmoid", "gelu", "silu")
"""Functions of one f32."""

COORDINATES = ("row", "column", "batch")


@dataclass(frozen=True)
class Step:
    """One step of a graph.

    Attributes
    ----------
    does
        What: a word of this module, ``"accumulator"``, ``"operand"``, ``"constant"``, ``"where"``, ``"round"``,
        ``"float"``, ``"bits"`` (a whole number seen as the other kind), ``"pow"``.
    args
        Places of the steps that it takes.
    value
        Which operand; the bits of a constant; the name of the type that is rounded to.
    kind
        Of the result.
    """

    does: str
    args: tuple[int, ...] = ()
    value: int | str | None = None
    kind: Kind = "f32"

    @property
    def number(self) -> float | int:
        """The number of a constant."""
        bits = int(self.value or 0)
        if self.kind == "f32":
            return struct.unpack("<f", struct.pack("<I", bits))[0]  # type: ignore[no-any-return]
        return bits - (1 << 32) if self.kind == "s32" and bits >> 31 else bits


@dataclass(frozen=True)
class Total:
    """A sum, or the largest or smallest, of the elements of each row or column.

    Attributes
    ----------
    along
        ``"row"``: one a row.
    combine
        How elements are combined.
    step
        The place of the element.
    """

    along: Axis
    combine: Combine
    step: int


@dataclass(frozen=True)
class Graph:
    """What becomes of an element.

    Attributes
    ----------
    name
        The function's.
    steps
        In an order in which each follows those that it takes.
    outputs
        Places of the elements that are stored: the result's, and those of further matrices.
    dtypes
        Of the further matrices; None for that of the result.
    totals
        What is made of rows and columns.
    order
        Where the results stand in what the function returns: ``("output", 1)`` or ``("total", 0)``.
    """

    name: str
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    dtypes: tuple[DType | None, ...] = ()
    totals: tuple[Total, ...] = ()
    order: tuple[tuple[str, int], ...] = (("output", 0),)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.steps, self.outputs, self.dtypes, self.totals))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def digest(self) -> str:
        """Eight digits that tell graphs apart in a kernel's name."""
        steps = [(s.does, s.args, s.value, s.kind) for s in self.steps]
        totals = [(t.along, t.combine, t.step) for t in self.totals]
        text = repr((steps, self.outputs, [str(dtype) for dtype in self.dtypes], totals))
        return sha256(text.encode()).hexdigest()[:8]

    @property
    def operands(self) -> set[int]:
        """Which operands it uses."""
        return {int(step.value or 0) for step in self.steps if step.does == "operand"}

    def takes_bits(self, operand: int) -> bool:
        """Whether all that is asked of a whole number is its bits, as a hash does of a seed."""
        places = {place for place, step in enumerate(self.steps) if step.does == "operand" and step.value == operand}
        return all(step.does == "bits" for step in self.steps if places & set(step.args))

    def uses(self, word: str) -> bool:
        """Whether a step does what `word` says."""
        return any(step.does == word for step in self.steps)
