"""Arrays of a call with scales of blocks, viewed."""

from __future__ import annotations

from typing import Any

from tilekit.arrays import ArrayView
from tilekit.errors import ArgumentError
from tilekit.kernels.problem import matrix_view

OPERANDS = "e4m3, e5m2, or e2m1 (float4_e2m1fn, or pairs as uint8)"
SCALES = "ue8m0 (float8_e8m0fnu, or uint8), e4m3 (float8_e4m3fn), f32 (float32)"


def view_among(array: Any, name: str, legal: str, nearest: str) -> ArrayView:
    """View an array.

    Raises
    ------
    ArgumentError
        ``TK-SCALE-001`` with what is legal there, for a type that no product has; and what viewing raises.
    """
    try:
        return matrix_view(array, name)
    except ArgumentError as error:
        if error.code != "TK-DTYPE-001":
            raise
        given = getattr(array, "dtype", type(array).__name__)
    raise ArgumentError.of(name, str(given), legal=legal, nearest=nearest, code="TK-SCALE-001")
