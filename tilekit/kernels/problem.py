"""A product of matrices: shapes, strides and majors, read off the arrays and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tilekit.arrays import ArrayView, c_strides, view_of
from tilekit.errors import ArgumentError
from tilekit.tile_io.copy_plan import WIDTHS
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.call import Load, Major, Matrix


@dataclass(frozen=True)
class MatmulProblem:
    """``D[m, n] = A[m, k] @ B[k, n]``, for each of `batches` where `batched`."""

    m: int
    n: int
    k: int
    batches: int
    batched: bool
    a: Matrix
    b: Matrix
    multiplied: ClassVar[str] = "two matrices"

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return 2 * self.m * self.n * self.k * self.batches

    @property
    def read(self) -> float:
        """The part of A that lies in memory once."""
        return 1.0

    @property
    def read_b(self) -> float:
        """The part of B that lies in memory once."""
        return 1.0

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (self.batches, self.m, self.n) if self.batched else (self.m, self.n)

    @property
    def transposed(self) -> MatmulProblem:
        """The same product read the other way: ``D^T = B^T A^T``."""
        return replace(self, m=self.n, n=self.m, a=self.b, b=self.a)


@dataclass(frozen=True)
class MatmulCall:
    """A problem, where its result goes, and what is done on the way.

    Attributes
    ----------
    problem, out
        What is multiplied, and the output.
    scale
        The factor, where it is a number.
    scale_pitches
        Elements from one matrix's scales of rows to the next one's, and of columns; 0 where all share them.
    bias_pitch
        Elements from one matrix's bias to the next one's, where each has its own.
    residual, beta
        The matrix that is added, and its factor.
    groups, group_rows
        How many groups the rows are divided into, and how far apart they begin where they do not lie behind each other.
    matrices, numbers
        What a Python epilogue, or a family's own components, ask for by the names that they give.
    """

    problem: MatmulProblem
    out: Matrix
    scale: float = 1.0
    scale_pitches: tuple[int, int] = (0, 0)
    bias_pitch: int = 0
    residual: Matrix | None = None
    beta: float = 1.0
    groups: int = 0
    group_rows: int = 0
    matrices: Mapping[str, Matrix] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)


def read_problem(a: ArrayView, b: ArrayView) -> MatmulProblem:
    """Check two operands against each other and choose their majors.

    Raises
    ------
    ArgumentError
        ``TK-MM-010`` wrong rank, ``TK-MM-011`` K differs, ``TK-MM-012`` batches differ, ``TK-MM-013`` an operand
        without a contiguous dimension, each naming the argument, what was given, what is legal, and a way out.
    """
    for name, view in (("a", a), ("b", b)):
        if len(view.shape) not in (2, 3):
            one = len(view.shape) == 1
            nearest = f"add an axis, {name}[None, :]" if one else "reshape the leading axes into one"
            raise ArgumentError(
                f"{name} has shape {view.shape}: matmul takes (M, K) @ (K, N) or batches (B, M, K) @ (B, K, N); "
                f"nearest: {nearest}",
                code="TK-MM-010",
            )
    (m, k), (k_b, n) = a.shape[-2:], b.shape[-2:]
    if k != k_b:
        hint = " (b looks transposed: pass b.T)" if len(b.shape) == 2 and b.shape[1] == k else ""
        raise ArgumentError(
            f"a is {a.shape} and b is {b.shape}: K must agree, but a has K={k} columns and b has K={k_b} rows{hint}",
            code="TK-MM-011",
        )
    batch_a, batch_b = (view.shape[0] if len(view.shape) == 3 else 1 for view in (a, b))
    if batch_a != batch_b and 1 not in (batch_a, batch_b):
        raise ArgumentError(
            f"a is {a.shape} and b is {b.shape}: batches must agree or be 1, but they are {batch_a} and {batch_b}",
            code="TK-MM-012",
        )
    return MatmulProblem(
        m=m,
        n=n,
        k=k,
        batches=max(batch_a, batch_b) if 0 not in (batch_a, batch_b) else 0,
        batched=len(a.shape) == 3 or len(b.shape) == 3,
        a=_operand("a", a, k_axis=-1),
        b=_operand("b", b, k_axis=-2),
    )


IN_C_ORDER = "Pass an array in C order"
TURNED = "Compute out.T = b.T @ a.T instead, or pass an array in C order"
"""Ways out of an output whose last dimension is not contiguous: of any, and of a product."""


def rows_of_groups(view: ArrayView) -> ArrayView | None:
    """The rows of all of (G, R, N) as one matrix; None where the groups' do not lie behind each other."""
    if len(view.shape) != 3:
        return None
    groups, rows, inner = view.shape
    if groups > 1 and 0 not in view.shape and view.strides[0] != rows * view.strides[1]:
        return None
    return replace(view, shape=(groups * rows, inner), strides=view.strides[1:])


def output_matrix(out: ArrayView, name: str = "out", *, hint: str = TURNED) -> Matrix:
    """Describe an output, or a matrix like it, whose N dimension is contiguous; `hint` says the way out if it is not.

    `store_kind` says whether the copy engine takes it.
    """
    n_stride = out.strides[-1]
    if n_stride != 1 and out.shape[-1] > 1:
        raise ArgumentError(
            f"{name} has strides {out.strides} (elements): its last dimension must be contiguous. {hint}",
            code="TK-MM-014",
        )
    size = out.dtype.bytes
    rows, batch_pitch = out.shape[-2], _batch_pitch(out)
    pitch = out.strides[-2] * size if rows > 1 else _rounded(out.shape[-1] * size)
    if pitch < 0 or batch_pitch < 0:
        raise ArgumentError(
            f"{name} has strides {out.strides} (elements): neither its rows nor its batches may run backwards. Pass a "
            f"copy, for example {name}.copy() of an array or {name}.contiguous() of a tensor",
            code="TK-MM-013",
        )
    return Matrix(
        name=name,
        dtype=out.dtype,
        extents=(out.shape[-1], rows),
        pitch=pitch,
        batch_pitch=batch_pitch,
        batches=out.shape[0] if batch_pitch else 1,  # a broadcast batch is one matrix
        major="mn",
    )


def store_kind(address: int, out: Matrix) -> str:
    """``"tma"`` where the copy engine can write `out`, else ``"direct"``.

    It writes whole units of 16 bytes: of a row that ends inside one, it overwrites what follows (seen on an H200),
    which may be another array's columns. Rows that are all the same one, of a residual, have no pitch that it takes.
    """
    row_bytes = out.extents[0] * out.dtype.bytes
    return "direct" if not out.pitch or (address | out.pitch | out.batch_pitch | row_bytes) % TMA_ALIGNMENT else "tma"


def matrix_view(array: Any, name: str) -> ArrayView:
    """View an operand or an output; an empty one as if in C order, since its strides mean nothing."""
    view = view_of(array, name)
    if 0 not in view.shape:
        return view
    return replace(view, strides=c_strides(view.shape))


def _operand(name: str, view: ArrayView, *, k_axis: int) -> Matrix:
    mn_axis = -3 - k_axis
    size = view.dtype.bytes
    if 0 in view.shape:  # nothing is read, so either major would do
        rows, k = view.shape[mn_axis], view.shape[k_axis]
        return Matrix(
            name, view.dtype, (k, rows), _rounded(k * size), 0, view.shape[0] if len(view.shape) == 3 else 1, "k"
        )
    batch_pitch = _batch_pitch(view)
    choices: tuple[tuple[Major, int, int], ...] = (("k", k_axis, mn_axis), ("mn", mn_axis, k_axis))
    found = []
    for major, inner, outer in choices:
        contiguous = view.strides[inner] == 1 or view.shape[inner] <= 1
        pitch = view.strides[outer] * size if view.shape[outer] > 1 else _rounded(view.shape[inner] * size)
        if major == "mn" and size != 2 and view.strides[k_axis] == 1:
            continue  # a k-major operand with one column is also mn-major; of some types only the former is multiplied
        if contiguous and pitch >= 0 <= batch_pitch:
            batches = view.shape[0] if batch_pitch else 1  # a broadcast batch is one matrix
            extents = (view.shape[inner], view.shape[outer])
            load = _load_kind(view.address, pitch, batch_pitch)
            found.append(Matrix(name, view.dtype, extents, pitch, batch_pitch, batches, major, load))
    if found:
        return max(found, key=lambda matrix: TMA_ALIGNMENT if matrix.load == "tma" else matrix.load)
    raise ArgumentError(
        f"{name}, {view.dtype} of shape {view.shape}, has strides {view.strides} (elements): one of its last two "
        "dimensions must be contiguous, and neither they nor the batches run backwards. Pass a copy, for example "
        f"{name}.copy() of an array or {name}.contiguous() of a tensor",
        code="TK-MM-013",
    )


def _load_kind(address: int, pitch: int, batch_pitch: int) -> Load:
    """How an operand can be loaded. Rows that are all the same one have no pitch that TMA takes."""
    if address % TMA_ALIGNMENT == 0 and pitch % TMA_ALIGNMENT == 0 and batch_pitch % TMA_ALIGNMENT == 0 and pitch:
        return "tma"
    return load_width((address, pitch, batch_pitch))


def load_width(numbers: Sequence[int]) -> int:
    """Bytes that threads can load at once of what lies at an address, and so far apart."""
    return next(width for width in WIDTHS if all(number % width == 0 for number in numbers))


def _batch_pitch(view: ArrayView) -> int:
    return view.strides[0] * view.dtype.bytes if len(view.shape) == 3 and view.shape[0] > 1 else 0


def _rounded(size: int) -> int:
    return max(TMA_ALIGNMENT, -(-size // TMA_ALIGNMENT) * TMA_ALIGNMENT)
