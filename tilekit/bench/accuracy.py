"""How far an answer is from float64, and how far it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilekit.dtypes import E4M3, E5M2, F32, S8, S32, DType
from tilekit.errors import ArgumentError

__all__ = ["Accuracy", "accuracy_of", "activated", "error_limit"]

_Array = np.ndarray[Any, Any]

_ACCUMULATION: Final = {32: 2.0**-9, 16: 2.0**-17, 8: 2.0**-11}
"""Error of a sum over the sum of its terms' magnitudes, by operand bits: f32 for 16-bit operands, the shorter sums of
Hopper's tensor cores (about 14 bits) for 8-bit ones, and for f32 ones the 13 bits that both lose as tf32."""

_WHOLE_SUM: Final = 2.0**-23
"""The same of whole numbers, whose sums are exact until they are rounded to f32."""

_ACTIVATION_ERROR: Final = 2.0**-10
"""Of ``tanh.approx`` (PTX ISA: 2^-11), with what is computed around it."""


def error_limit(operand: DType, out: DType) -> float:
    """Return the largest relative (Frobenius) error of a right product, for checks that look at whole arrays."""
    if operand is S8:  # sums are exact; the reference adds in f32
        return max(2e-5, 0.0 if out is S32 else out.epsilon)
    accumulation = 2e-3 if operand in (E4M3, E5M2, F32) else 2e-5
    return max(out.epsilon, accumulation) if out is not F32 else accumulation


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far an answer is from float64.

    Attributes
    ----------
    relative : float
        Frobenius norm of the difference over that of the reference; NaN if anything is NaN.
    largest : float
        Largest absolute difference.
    worst : float
        Largest difference over its own limit; the answer is right up to 1.
    """

    relative: float
    largest: float
    worst: float

    @classmethod
    def worst_of(cls, found: Sequence[Accuracy]) -> Accuracy:
        """The largest of each figure; NaN stays."""
        return cls(*(float(np.max([getattr(one, field.name) for one in found])) for field in fields(cls)))

    @property
    def right(self) -> bool:
        """Whether every element is within its limit (NaN never is)."""
        return self.worst <= 1


def accuracy_of(
    expected: _Array,
    magnitudes: _Array,
    out: _Array,
    operand: DType,
    result: DType,
    activation: str | None,
    rounding: Callable[[_Array], _Array] | None = None,
) -> Accuracy:
    """Compare an answer with sums in float64, each element against the error that its terms' magnitudes allow.

    What is too large for an 8-bit float has to be its largest number, as kernels convert it. `rounding` says what
    quantising sums may add.
    """
    limit = magnitudes * (_WHOLE_SUM if operand is S8 else _ACCUMULATION[operand.bits])
    if activation is not None:
        limit = 1.2 * limit + _ACTIVATION_ERROR * np.abs(expected)
        expected = activated(expected, activation)
    if result.bits == 8:
        largest = float(ml_dtypes.finfo(result.numpy).max)  # type: ignore[no-untyped-call]
        expected = np.clip(expected, -largest, largest)
    limit = limit + result.epsilon * np.abs(expected) + 1e-30
    if rounding is not None:
        limit += rounding(expected)
    if result is S32:
        limit = np.full_like(limit, 0.5)
    else:  # below the normal numbers, which of 8-bit floats end early, rounding no longer shrinks with the element
        smallest = np.array(1, f"u{result.bytes}").view(result.numpy)
        limit += float(smallest) / 2
    difference = out.astype(np.float64) - expected
    scale = float(np.linalg.norm(expected))
    return Accuracy(
        relative=float(np.linalg.norm(difference)) / scale if scale else float(np.linalg.norm(difference)),
        largest=float(np.max(np.abs(difference))),
        worst=float(np.max(np.abs(difference) / limit)),
    )


def activated(values: _Array, activation: str) -> _Array:
    """Return an activation of NumPy values."""
    if activation == "relu":
        rectified: _Array = np.maximum(values, 0)
        return rectified
    if activation == "gelu":
        inner: _Array = np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3))
        gelu: _Array = 0.5 * values * (1 + inner)
        return gelu
    if activation == "silu":
        # x sigmoid(x), with the sigmoid as a tanh so that large negative values do not overflow.
        half: _Array = np.tanh(values / 2)
        silu: _Array = values * (0.5 + 0.5 * half)
        return silu
    raise ArgumentError.of("activation", activation, legal="relu, gelu, silu or None", code="TK-BENCH-001")
