"""What is run: the rules every workload keeps, and the matmul, with the float64 result its answers are held to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

import numpy as np

from tilekit.bench.accuracy import Accuracy, accuracy_of, error_limit
from tilekit.dtypes import BF16, F32, DType
from tilekit.errors import ArgumentError

if TYPE_CHECKING:
    from tilekit.arrays import ArrayView
    from tilekit.bench.machine import Machine
    from tilekit.epilogue.functions import Activation
    from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec, Precision
    from tilekit.targets import ChipName
    from tilekit.tiles.call import Major

__all__ = [
    "MOST",
    "Fused",
    "MatmulWorkload",
    "Operands",
    "Workload",
    "checked_rows",
    "require_extent",
]

_Array = np.ndarray[Any, Any]

_CHECKED_ROWS: Final = 1024

MOST: Final = (1 << 31) - 1
"""Of an extent: kernels count in 32 bits."""

_ADDRESSES: Final = 1 << 48
"""Bytes that any machine addresses."""


class Workload(Protocol):
    """Something to measure. The harness knows no more of it; who computes it is found by its family."""

    @property
    def family(self) -> str:
        """The function of tilekit's that computes it, with what is fused."""
        ...

    @property
    def label(self) -> str:
        """The shape; with :attr:`kind` it tells workloads apart."""
        ...

    @property
    def kind(self) -> str:
        """Types and layout in a few words."""
        ...

    @property
    def bits(self) -> int:
        """Of an element of A, which sets the ceiling of the tensor cores."""
        ...

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result, each counted once."""
        ...

    @property
    def error_limit(self) -> float:
        """Largest relative (Frobenius) error of a right answer."""
        ...

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return new operands of one launch, in the order of the call; the last is the output."""
        ...

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the plain products that the outcome consists of, as ``(a, b, out)`` each."""
        ...

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return what becomes of a plain product's float32 result."""
        ...


def require_extent(name: str, extent: int) -> None:
    """Refuse an extent that no kernel counts to (``TK-BENCH-001``)."""
    if not 1 <= extent <= MOST:
        legal = f"a whole number from 1 on, {MOST} at most"
        raise ArgumentError.of(name, extent, legal=legal, nearest=min(max(extent, 1), MOST), code="TK-BENCH-001")


def checked_rows(rows: int) -> slice:
    """Return which rows of an output are compared with a reference, so that it does not take longer than the rest.

    About a thousand: every ``step``-th up to the last, with an odd ``step``, so that they fall on every row of a tile
    in turn.
    """
    step = -(-rows // _CHECKED_ROWS) | 1
    return slice((rows - 1) % step, None, step)


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of one call; ``bias`` and ``residual`` are None where there is none."""

    a: Any
    b: Any
    bias: Any
    residual: Any = None


@dataclass(frozen=True, slots=True)
class Fused:
    """What is computed behind a product, as a launch takes it.

    Attributes
    ----------
    bias : array or None
        N values of the result's type, since the library takes no other.
    activation : str or None
    """

    bias: Any
    activation: Activation | None


@dataclass(frozen=True, slots=True)
class MatmulWorkload:
    """``(M, K) @ (K, N)``, with a batch dimension in front of all three where ``batch`` is given.

    Attributes
    ----------
    m, n, k : int
    batch : int or None
    a_dtype, b_dtype, out_dtype : DType
    a_major, b_major : "k" or "mn"
        The contiguous dimension: ``b_major="k"`` is the transposed view of a C-ordered (N, K) array.
    bias : bool
        Whether a vector of N values is added.
    activation : str or None
    precision : "tf32" or None
        How f32 operands are multiplied.
    accumulation : "fast" or "promoted"
        How products of 8-bit operands are summed on Hopper.
    padded : bool
        Whether rows of the operands are padded to 16 bytes, as TMA needs them. If not, they lie as an array library
        makes them, one behind the other.
    """

    m: int
    n: int
    k: int
    batch: int | None = None
    a_dtype: DType = BF16
    b_dtype: DType = BF16
    out_dtype: DType = BF16
    a_major: Major = "k"
    b_major: Major = "k"
    bias: bool = False
    activation: Activation | None = None
    precision: Precision | None = None
    accumulation: Accumulation = "fast"
    padded: bool = True
    residual: ClassVar[bool] = False
    read: ClassVar[float] = 1.0
    row_groups: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            extent = getattr(self, name)
            if extent is not None:
                require_extent(name, extent)
        if self.bytes >= _ADDRESSES:
            batch = "" if self.batch is None else f", batch={self.batch}"
            raise ArgumentError(
                f"m={self.m}, n={self.n}, k={self.k}{batch}: {self.bytes:.3g} bytes of operands and result; "
                f"legal: less than {_ADDRESSES:.3g}",
                code="TK-BENCH-001",
            )
        for name in ("a_major", "b_major"):
            if getattr(self, name) not in ("k", "mn"):
                raise ArgumentError.of(name, getattr(self, name), legal="'k' or 'mn'", code="TK-BENCH-001")

    @classmethod
    def parse(cls, shape: str, like: Self | None = None) -> Self:
        """Read ``MxNxK`` or ``BxMxNxK``; everything but the shape is taken from ``like``."""
        if not re.fullmatch(r"\d{1,18}(x\d{1,18}){2,3}", shape):
            raise ArgumentError.of(
                "shape", shape, legal="MxNxK or BxMxNxK", nearest="4096x4096x4096", code="TK-BENCH-001"
            )
        *batch, m, n, k = (int(extent) for extent in shape.split("x"))
        base = cls(1, 1, 1) if like is None else like
        return replace(base, m=m, n=n, k=k, batch=batch[0] if batch else None)

    @property
    def family(self) -> str:
        """A matmul, or one with a function behind it."""
        return "fused_matmul" if self.fused else "matmul"

    @property
    def fused(self) -> bool:
        """Whether a bias or an activation is behind the product."""
        return self.bias or self.activation is not None

    @property
    def label(self) -> str:
        """The shape as :meth:`parse` reads it."""
        return "x".join(str(extent) for extent in (self.batch, self.m, self.n, self.k) if extent is not None)

    @property
    def kind(self) -> str:
        """Types, majors, fused functions and padding in a few words."""
        inputs = (
            (self.precision or self.a_dtype.name) if self.a_dtype is self.b_dtype else f"{self.a_dtype}·{self.b_dtype}"
        )
        summed = f" {self.accumulation}" if self.accumulation != "fast" else ""
        fused = "".join(f" +{name}" for name in ("bias" if self.bias else None, self.activation) if name)
        rows = "" if self.padded else " contiguous"
        return f"{inputs}→{self.out_dtype} {self.a_major}/{self.b_major}{summed}{fused}{rows}"

    @property
    def bits(self) -> int:
        """Of an element of A."""
        return self.a_dtype.bits

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * (self.batch or 1) * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result."""
        a, b = self.m * self.k * self.a_dtype.bytes, self.k * self.n * self.b_dtype.bytes
        return (self.batch or 1) * (a + b + self.m * self.n * self.out_dtype.bytes)

    @property
    def spec(self) -> MatmulSpec:
        """The matmul for operands and an output laid out like this workload's."""
        from tilekit.epilogue.functions import ElementwiseSpec
        from tilekit.kernels.matmul.arguments import spec_of
        from tilekit.kernels.problem import output_matrix, read_problem, store_kind

        a, b, out = self.views
        return spec_of(
            read_problem(a, b),
            self.out_dtype,
            ElementwiseSpec(bias=F32 if self.bias else None, activation=self.activation),
            store=store_kind(0, output_matrix(out)),
            precision=self.precision,
            accumulation=self.accumulation,
        )

    @property
    def views(self) -> tuple[ArrayView, ArrayView, ArrayView]:
        """Operands and output as they lie in memory that does not exist."""
        from tilekit.arrays import ArrayView

        def view(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> ArrayView:
            return ArrayView(0, shape, strides, dtype, "cpu", "numpy", None)

        def operand(name: str) -> ArrayView:
            # No memory is touched: NumPy cuts and turns an array of which every element is the same byte.
            shape, dtype = self.stored(name)
            strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
            image = self.cut(name, np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), shape, strides))
            return view(image.shape, image.strides, dtype)

        steps = (self.m * self.n, self.n, 1)[-len(self.out_shape) :]
        return operand("a"), operand("b"), view(self.out_shape, steps, self.out_dtype)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (self.m, self.n) if self.batch is None else (self.batch, self.m, self.n)

    def stored(self, operand: str) -> tuple[tuple[int, ...], DType]:
        """Return the C-ordered shape that operand ``"a"`` or ``"b"`` is cut from, and its type."""
        outer, inner = self._outer_inner(operand)
        dtype = self.a_dtype if operand == "a" else self.b_dtype
        step = 16 // dtype.bytes if self.padded else 1
        shape = (outer, -(-inner // step) * step)
        return (shape if self.batch is None else (self.batch, *shape)), dtype

    def cut(self, operand: str, stored: Any) -> Any:
        """Return the operand as a view of what :meth:`stored` describes: padding off, transposed if K comes first."""
        values = stored[..., : self._outer_inner(operand)[1]]
        rows_are_outer = (self.a_major == "k") if operand == "a" else (self.b_major == "mn")
        return values if rows_are_outer else values.swapaxes(-1, -2)

    def _outer_inner(self, operand: str) -> tuple[int, int]:
        extent, major = (self.m, self.a_major) if operand == "a" else (self.n, self.b_major)
        return (extent, self.k) if major == "k" else (self.k, extent)

    def operands(self, seed: int, place: Callable[[_Array], Any] = lambda stored: stored) -> Operands:
        """Return standard normal operands, laid out as the majors say.

        Parameters
        ----------
        seed : int
        place : callable, optional
            Turns each stored NumPy array into the array that the operand is cut from, such as a copy on a device.
        """
        random = np.random.default_rng(seed)
        arrays = []
        for operand in ("a", "b"):
            shape, dtype = self.stored(operand)
            values = random.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
            arrays.append(self.cut(operand, place(values)))
        bias = place(random.standard_normal(self.n, dtype=np.float32)) if self.bias else None
        return Operands(arrays[0], arrays[1], bias)

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return standard normal operands on a machine, what is fused, and an output: ``(a, b, [fused,] out)``."""
        a, b = (self.cut(name, machine.normal(*self.stored(name), next(seeds))) for name in ("a", "b"))
        out = machine.empty(self.out_shape, self.out_dtype)
        if not self.fused:
            return a, b, out
        bias = machine.normal((self.n,), self.out_dtype, next(seeds)) if self.bias else None
        return a, b, Fused(bias, self.activation), out

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the one product."""
        a, b, *_, out = operands
        return [(a, b, out)]

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return what becomes of the product: with the bias, through the activation."""
        return machine.finished(product, operands[2]) if self.fused else product

    def accuracy(self, operands: Operands, out: _Array) -> Accuracy:
        """Compare an answer with float64, each element against the error its own sum may have.

        Parameters
        ----------
        operands : Operands
            NumPy arrays.
        out : numpy.ndarray
            The answer, of any floating-point type.
        """
        a, b = operands.a.astype(np.float64), operands.b.astype(np.float64)
        expected: _Array = a @ b
        if operands.bias is not None:
            expected += operands.bias.astype(np.float64)
        return accuracy_of(expected, np.abs(a) @ np.abs(b), out, self.a_dtype, self.out_dtype, self.activation)

    def call(self, operands: Operands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.matmul` is called with."""
        more = {"activation": self.activation, "precision": self.precision, "accumulation": self.accumulation}
        return operands.a, operands.b, {"bias": operands.bias, **more}

    def spec_on(self, target: ChipName) -> Any:
        """What computes it on a chip, as that chip loads operands."""
        from tilekit.kernels.matmul.arguments import MatmulArguments

        a, b, out = self.views
        return MatmulArguments.parse(
            a,
            b,
            out=out,
            bias=np.zeros(self.n, np.float32) if self.bias else None,
            activation=self.activation,
            precision=self.precision,
            accumulation=self.accumulation,
            target=target,
            memory=False,
        ).spec

    def kernel(self, target: ChipName, config: Any) -> Any:
        """The kernel that computes it with a config."""
        import tilekit

        return tilekit.compile(self.spec_on(target), target=target, config=config)

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        a, b, out = operands
        return kernel.bind(a, b, out)

    def placed(self, out: Any) -> Any:
        """An output as a call takes it."""
        return out

    @property
    def error_limit(self) -> float:
        """Largest relative (Frobenius) error that a right answer has."""
        return error_limit(self.a_dtype, self.out_dtype)
