"""Products with scales of blocks to run, whole and of groups of rows, and what float64 makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tilekit.bench.accuracy import Accuracy, accuracy_of
from tilekit.bench.row_groups import GroupOperands, Groups, RowGroups
from tilekit.bench.views import Lying, layout
from tilekit.bench.workload import MatmulWorkload, Operands
from tilekit.dtypes import E4M3, F32, DType
from tilekit.errors import ArgumentError
from tilekit.targets import DEFAULT, ChipName

if TYPE_CHECKING:
    from tilekit.arrays import ArrayView
    from tilekit.bench.machine import Machine
    from tilekit.kernels.matmul.spec import MatmulSpec
    from tilekit.tiles.call import Major

__all__ = ["BlockwiseWorkload", "GroupedBlockwiseWorkload", "ScaledGroups", "Scales", "scales"]

BLOCK = 128


@dataclass(frozen=True, slots=True)
class Scales:
    """Scales of both operands, and on the device the block of each element of N and of K.

    Attributes
    ----------
    a, b : array
        As `tilekit.scaled_matmul` takes them; those of A with its rows behind each other.
    blocks : tuple of array
        Of N and of K.
    """

    a: Any
    b: Any
    blocks: tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class ScaledGroups(Groups):
    """Which rows belong to which group, with the scales."""

    scales: Scales = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ScaledOperands(Operands):
    """Operands with their scales."""

    scale_a: Any = None
    scale_b: Any = None


def scales(machine: Machine, a: tuple[int, ...], b: tuple[int, ...], seed: int, *, major: Major = "mn") -> Scales:
    """Return scales between 0.5 and 1.5 of operands of shapes ``(…, M, K)`` and ``(…, N, K)``; `major` is of A's."""
    random = np.random.default_rng(seed)
    (*outer, rows, k), (*groups, n, _) = a, b
    along_k = -(-k // BLOCK)
    lying = _scales_of_a((*outer, rows), k)
    shape = lying.stored if major == "mn" else (*outer, rows, along_k)
    of_a = machine.upload(random.uniform(0.5, 1.5, shape).astype(np.float32))
    of_b = machine.upload(random.uniform(0.5, 1.5, (*groups, -(-n // BLOCK), along_k)).astype(np.float32))
    places = [machine.upload(np.arange(extent) // BLOCK) for extent in (n, k)]
    return Scales(lying.cut(of_a) if major == "mn" else of_a, of_b, (places[0], places[1]))


def _scales_of_a(rows: tuple[int, ...], k: int) -> Lying:
    """How scales of such rows lie of which a k-block's are behind each other."""
    return Lying((*rows[:-1], -(-k // BLOCK), rows[-1]), F32, ((-1, -2),))


class Unscaled:
    """An operand times its scales: rows are made when they are asked for, in float32."""

    def __init__(self, values: Any, factors: Any, along_k: Any, along_rows: Any = None) -> None:
        self._values, self._factors, self._k, self._rows = values, factors, along_k, along_rows
        self.shape = values.shape

    def __getitem__(self, rows: Any) -> Any:
        """Return some rows."""
        values, factors = self._values[rows], self._factors
        factors = factors[rows] if self._rows is None else factors[self._rows][rows]
        wide = values.float() if hasattr(values, "float") else values.astype(np.float32)
        return wide * factors[..., self._k]


EVERY = (..., slice(None), slice(None))


@dataclass(frozen=True, slots=True)
class BlockwiseWorkload(MatmulWorkload):
    """``(M, K) @ (K, N)`` of 8-bit operands with scales of 1x128 and 128x128 elements.

    Attributes
    ----------
    scales_major : "k" or "mn"
        Which of its scales of A lie behind each other: those of rows, or those along K.
    """

    a_dtype: DType = E4M3
    b_dtype: DType = E4M3
    scales_major: Major = "mn"

    @property
    def family(self) -> str:
        """The function of tilekit's that computes it."""
        return "blockwise"

    @property
    def kind(self) -> str:
        """Types and fused functions in a few words."""
        fused = "".join(f" +{name}" for name in ("bias" if self.bias else None, self.activation) if name)
        return f"{self.a_dtype}→{self.out_dtype} blocks{fused}"

    @property
    def scale_views(self) -> tuple[ArrayView, ArrayView]:
        """The scales as they lie in memory that does not exist."""
        from tilekit.arrays import ArrayView

        along_k, along_n = -(-self.k // BLOCK), -(-self.n // BLOCK)
        padded = -(-self.m // 4) * 4
        steps = (1, padded) if self.scales_major == "mn" else (along_k, 1)
        of_a = ArrayView(0, (self.m, along_k), steps, F32, "cpu", "numpy", None)
        return of_a, ArrayView(0, (along_n, along_k), (along_k, 1), F32, "cpu", "numpy", None)

    @property
    def spec(self) -> MatmulSpec:
        """What computes it on the usual chip."""
        return self.spec_on(DEFAULT.name)

    def spec_on(self, target: ChipName) -> MatmulSpec:
        """What computes it on a chip."""
        from tilekit.kernels.blockwise.arguments import BlockwiseArguments

        a, b, out = self.views
        bias = np.zeros(self.n, np.float32) if self.bias else None
        parsed = BlockwiseArguments.parse(
            a, b, *self.scale_views, out=out, bias=bias, activation=self.activation, target=target, memory=False
        )
        spec: MatmulSpec = parsed.spec
        return spec

    def operands(self, seed: int, place: Callable[[Any], Any] = lambda stored: stored) -> ScaledOperands:
        """Return standard normal operands and their scales; `place` is as of a `MatmulWorkload`."""
        plain = MatmulWorkload.operands(self, seed, place)
        random = np.random.default_rng(seed + 1)
        of_a, of_b = self.scale_views
        lines, line = (of_a.shape[1], of_a.strides[1]) if self.scales_major == "mn" else of_a.shape
        a = place(random.uniform(0.5, 1.5, (lines, line)).astype(np.float32))
        b = random.uniform(0.5, 1.5, of_b.shape).astype(np.float32)
        a = a.swapaxes(0, 1)[: self.m] if self.scales_major == "mn" else a
        return ScaledOperands(plain.a, plain.b, plain.bias, None, a, place(b))

    def call(self, operands: Operands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.scaled_matmul` is called with."""
        of_a, of_b = self.scale_views
        if isinstance(operands, ScaledOperands):
            of_a, of_b = operands.scale_a, operands.scale_b
        more = {"bias": operands.bias, "activation": self.activation}
        return operands.a, operands.b, {"scale_a": of_a, "scale_b": of_b, **more}

    def accuracy(self, operands: Operands, out: Any) -> Accuracy:
        """Compare an answer with float64, each element against the error its own sum may have."""
        assert isinstance(operands, ScaledOperands), "operands of this workload have scales"
        along_n, along_k = np.arange(self.n) // BLOCK, np.arange(self.k) // BLOCK
        a = operands.a.astype(np.float64) * operands.scale_a[:, along_k]
        b = operands.b.astype(np.float64) * operands.scale_b[along_n][:, along_k].T
        expected = a @ b + (0.0 if operands.bias is None else operands.bias.astype(np.float64))
        return accuracy_of(expected, np.abs(a) @ np.abs(b), out, self.a_dtype, self.out_dtype, self.activation)

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return operands, scales and an output on a machine: ``(a, b, scales, out)``."""
        if self.fused:
            raise ArgumentError.of("bias", self.bias, legal="False: these are timed without", code="TK-BENCH-001")
        a, b, out = MatmulWorkload.operand_set(self, machine, seeds)
        shapes = (self.m, self.k), (self.n, self.k)
        return a, b, scales(machine, *shapes, next(seeds), major=self.scales_major), out

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the one product, of operands times their scales."""
        a, b, of, out = operands
        wide = Unscaled(b.swapaxes(0, 1), of.b, of.blocks[1], of.blocks[0])[EVERY]
        return [(Unscaled(a, of.a, of.blocks[1]), wide.swapaxes(0, 1), out)]

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return the product: nothing is behind it."""
        return product

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        a, b, of, out = operands
        return kernel.bind(a, b, out, scale_a=of.a, scale_b=of.b)


@dataclass(frozen=True, slots=True)
class GroupedBlockwiseWorkload(RowGroups):
    """Rows of 8-bit elements in groups, times ``(G, K, N)``, with scales of blocks."""

    family: ClassVar[str] = "grouped_blockwise"

    dtype: DType = E4M3

    @property
    def _lying(self) -> tuple[Lying, Lying, Lying]:
        """How A, B and the scales of A lie."""
        a = Lying((*self.outer, self.k), self.dtype)
        b = Lying((len(self.sizes), self.n, self.k), self.dtype, ((-1, -2),))
        return a, b, _scales_of_a(self.outer, self.k)

    @property
    def _of_b(self) -> tuple[int, ...]:
        """Shape of the scales of B."""
        return len(self.sizes), -(-self.n // BLOCK), -(-self.k // BLOCK)

    @property
    def layouts(self) -> GroupOperands:
        """The operands as they lie in memory that does not exist."""
        a, b, of_a = self._lying
        scales = {"scale_a": of_a.view(3), "scale_b": layout(4, self._of_b, F32)}
        return GroupOperands(a.view(0), b.view(1), self.bounds | scales)

    def operands(self, seed: int, place: Callable[[Any], Any] = lambda stored: stored) -> GroupOperands:
        """Return standard normal operands and scales between 0.5 and 1.5; `place` is as of a `GroupedWorkload`."""
        random = np.random.default_rng(seed)
        *lying, of_a = self._lying
        a, b = (
            one.cut(place(random.standard_normal(one.stored, dtype=np.float32).astype(one.dtype.numpy)))
            for one in lying
        )
        scale_a, scale_b = (
            place(random.uniform(0.5, 1.5, shape).astype(np.float32)) for shape in (of_a.stored, self._of_b)
        )
        bounds = {name: place(numbers) for name, numbers in self.bounds.items()}
        return GroupOperands(a, b, bounds | {"scale_a": of_a.cut(scale_a), "scale_b": scale_b})

    def wide(self, operands: GroupOperands, group: int, at: Any) -> tuple[Any, Any]:
        """The rows `at` of a group, and its matrix, in float64 and times their scales."""
        of_a, of_b = operands.more["scale_a"][at], operands.more["scale_b"][group]
        along_n, along_k = np.arange(self.n) // BLOCK, np.arange(self.k) // BLOCK
        a = operands.a[at].astype(np.float64) * of_a[:, along_k]
        return a, operands.b[group].astype(np.float64) * of_b[along_n][:, along_k].T

    @property
    def arguments(self) -> Any:
        """What reads such calls."""
        from tilekit.kernels.blockwise.arguments import GroupedBlockwiseArguments

        return GroupedBlockwiseArguments

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        a, b, groups, out = operands
        return kernel.bind(a, b, out, scale_a=groups.scales.a, scale_b=groups.scales.b, **groups.keywords)

    @property
    def kind(self) -> str:
        """Types, and how groups lie."""
        lie = "contiguous" if self.rows is None else f"masked, up to {self.rows}"
        return f"{self.dtype}→{self.out_dtype} blocks {lie}" + self.fused

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return operands on a machine, groups with their scales, and an output: ``(a, b, groups, out)``."""
        rows, matrices, _ = self._lying
        a, b = (one.cut(machine.normal(one.stored, one.dtype, next(seeds))) for one in (rows, matrices))
        of = scales(machine, rows.shape, matrices.shape, next(seeds))
        groups = ScaledGroups(self.sizes, *self.told(machine), scales=of)
        return a, b, groups, machine.empty((*self.outer, self.n), self.out_dtype)

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the product of each group that has rows, of operands times their scales."""
        a, b, groups, out = operands
        of, found = groups.scales, []
        for group, at in groups.rows():
            wide = Unscaled(b[group].swapaxes(0, 1), of.b[group], of.blocks[1], of.blocks[0])[EVERY]
            found.append((Unscaled(a[at], of.a[at], of.blocks[1]), wide.swapaxes(0, 1), out[at]))
        return found
