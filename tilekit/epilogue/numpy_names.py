"""What NumPy's functions are of an element of an epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

UFUNCS: Mapping[str, str] = {
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
    "invert": "not",
}
"""Functions of elements by the names of what they become."""

LOGICAL: Mapping[str, str] = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}
"""Functions of conditions, and of numbers that are not 0."""

WHOLE_TYPES: Mapping[str, Literal["s32", "u32"]] = {"s32": "s32", "int32": "s32", "u32": "u32", "uint32": "u32"}
"""Types of whole numbers that a whole number may be seen as, by every name of theirs."""
