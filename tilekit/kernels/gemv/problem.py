"""One gemv call: shapes, strides and the widest loads, read off the arrays and checked."""

from __future__ import annotations

from tilekit.arrays import ArrayView
from tilekit.errors import ArgumentError
from tilekit.kernels.gemv.spec import TOKENS, VECTOR
from tilekit.kernels.problem import MatmulProblem
from tilekit.tiles.call import Major, Matrix


def read_gemv(a: ArrayView, b: ArrayView) -> MatmulProblem:
    """Check two operands against each other and choose B's major; any alignment will do.

    Raises
    ------
    ArgumentError
        ``TK-GV-003`` for shapes that are no product of a few rows with a matrix, ``TK-GV-004`` for strides that no
        gemv kernel reads.
    """
    for name, view in (("a", a), ("b", b)):
        if len(view.shape) != 2:
            raise ArgumentError(
                f"{name} has shape {view.shape}: gemv takes (M, K) @ (K, N), without batches; tilekit.matmul takes "
                "more",
                code="TK-GV-003",
            )
    (m, k), (k_b, n) = a.shape, b.shape
    if k != k_b:
        raise ArgumentError(
            f"a is {a.shape} and b is {b.shape}: K must agree, but a has K={k} columns and b has K={k_b} rows",
            code="TK-GV-003",
        )
    if m > TOKENS[-1]:
        raise ArgumentError(
            f"a has M={m} rows: gemv takes up to {TOKENS[-1]}; tilekit.matmul takes more", code="TK-GV-003"
        )
    rows = _lines(a, "a", contiguous=1, major="k")
    if rows is None:
        raise ArgumentError(
            f"a has strides {a.strides} (elements): its last dimension must be contiguous. Pass a copy in C order",
            code="TK-GV-004",
        )
    weights = _lines(b, "b", contiguous=0, major="k") or (
        _lines(b, "b", contiguous=1, major="mn") if b.dtype.bytes > 1 else None
    )
    if weights is None:
        wanted = "one of its dimensions" if b.dtype.bytes > 1 else "K, its first dimension,"
        raise ArgumentError(
            f"b, {b.dtype}, has strides {b.strides} (elements): {wanted} must be contiguous. Pass a copy, for example "
            "the .T of an (N, K) array",
            code="TK-GV-004",
        )
    return MatmulProblem(m=m, n=n, k=k, batches=1, batched=False, a=rows, b=weights)


def access(view: ArrayView, matrix: Matrix) -> int:
    """The widest load in bytes, up to 16, that divides the matrix's address, pitch and rows."""
    together = view.address | matrix.pitch | matrix.extents[0] * matrix.dtype.bytes | VECTOR
    return together & -together


def _lines(view: ArrayView, name: str, *, contiguous: int, major: Major) -> Matrix | None:
    """The matrix with its dimension `contiguous` along memory; None if it does not lie so."""
    inner, outer = view.shape[contiguous], view.shape[1 - contiguous]
    step, pitch = view.strides[contiguous], view.strides[1 - contiguous]
    if outer <= 1 or inner == 0:
        pitch = inner  # there is no second row
    if (step != 1 and inner > 1) or pitch < 0:
        return None
    return Matrix(name, view.dtype, (inner, outer), pitch * view.dtype.bytes, 0, 1, major)
