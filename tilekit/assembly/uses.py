"""What components do with the arrays of a call, said when they are made: a kernel that declares its arrays compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Along = Literal["rows", "columns", "matrix", "scalar", "m", "n", "mn", "nm"]
"""How an array lies beside the output: an element for each of its rows, of its columns or of its elements, or one; or
the operand of a product whose rows are the product's M or its N; or the output itself, whose rows are M or N."""


class Element(Protocol):
    """What an element type is compared by."""

    @property
    def name(self) -> str:
        """As the PTX ISA has it."""


@dataclass(frozen=True)
class Use:
    """What a component does with one array.

    Attributes
    ----------
    component, argument
        Which component, and which of its arguments says so.
    array
        What the call names it.
    dtype
        Element type that the component takes it to be of; None where it does not care.
    along
        How it takes the array to lie beside the output; None where it does not care.
    contiguous
        Which extent of a product's operand it takes to be contiguous: K, or M or N. None where it does not care.
    """

    component: str
    argument: str
    array: str
    dtype: Element | None = None
    along: Along | None = None
    contiguous: Literal["k", "mn"] | None = None


class Uses(Protocol):
    """Compares uses with what a kernel declares."""

    def __call__(self, use: Use) -> None:
        """Raise `TraceError` for a use that the declaration does not allow."""
