"""Block-scaled products as workloads: operands in a format, with scales, and the float64 result they are held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.bench.accuracy import Accuracy, accuracy_of
from tilekit.bench.workload import MatmulWorkload, Operands
from tilekit.dtypes import BF16, E4M3, F32, U8, UE8M0, DType
from tilekit.errors import ArgumentError
from tilekit.kernels.block_scaled.arguments import BlockScaledArguments
from tilekit.targets import ChipName
from tilekit.tile_op.block_scaled import FORMATS, ScaleFormat

if TYPE_CHECKING:
    from tilekit.bench.machine import Machine

__all__ = ["ScaledOperands", "ScaledWorkload"]

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ScaledOperands(Operands):
    """The arrays of one call; ``scales`` are those of A and of B."""

    scales: tuple[Any, Any] = (None, None)


@dataclass(frozen=True)
class LaidOut:
    """Scales of both operands on the device, as the tensor core reads them, and in host memory what they scale.

    Attributes
    ----------
    a, b
        Scales as `tilekit.lay_out_scales` returns them.
    host
        Values and scales of A, and of the transpose of B.
    upload
        Copies an array of the host's to the device.
    """

    a: Any
    b: Any
    host: tuple[tuple[_Array, _Array], tuple[_Array, _Array]]
    upload: Callable[[_Array], Any]


@dataclass(frozen=True)
class ScaledWorkload(MatmulWorkload):
    """A product of operands in a block-scaled format.

    Attributes
    ----------
    scaled
        The format, with e4m3 elements for MXFP8.
    out_scaled
        Format of a result that is quantised; None for one of `out_dtype`.
    """

    a_dtype: DType = E4M3
    b_dtype: DType = E4M3
    scaled: str = "mxfp8"
    out_scaled: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k % self.format.packed:
            raise ArgumentError.of(
                "k", self.k, legal=f"even for {self.scaled}", nearest=self.k + 1, code="TK-BENCH-001"
            )
        if self.batch is not None:
            legal = "none: block_scaled has no batches"
            raise ArgumentError.of("--batch", self.batch, legal=legal, code="TK-BENCH-001")

    @classmethod
    def like(cls, plain: MatmulWorkload, scaled: str, out_scaled: str | None = None) -> ScaledWorkload:
        """The same product in a format; bf16 out by default, or quantised."""
        if scaled not in FORMATS:
            legal = ", ".join(FORMATS)
            raise ArgumentError.of("--dtype", scaled, legal=f"{legal} for block_scaled", nearest="mxfp8")
        for name, given in (("--a-major", plain.a_major), ("--b-major", plain.b_major)):
            if given != "k":
                raise ArgumentError.of(name, given, legal="k: scaled along K", nearest="k", code="TK-SCALE-003")
        if plain.accumulation != "fast":
            legal = "fast: scaled sums of block_scaled are the tensor core's"
            raise ArgumentError.of("--accumulation", plain.accumulation, legal=legal, nearest="fast", code="TK-CLI-001")
        return cls(
            **{one.name: getattr(plain, one.name) for one in fields(plain)}, scaled=scaled, out_scaled=out_scaled
        )

    @property
    def format(self) -> ScaleFormat:
        """The format's numbers."""
        return FORMATS[self.scaled]

    @property
    def kind(self) -> str:
        """The format, result and fused functions in a few words."""
        fused = "".join(f" +{name}" for name in ("bias" if self.bias else None, self.activation) if name)
        return f"{self.scaled}→{self.asked}{fused}"

    @property
    def asked(self) -> DType | str:
        """What a call is asked for."""
        return self.out_scaled or self.out_dtype

    @property
    def family(self) -> str:
        """The kernel family that computes it."""
        return "block_scaled"

    @property
    def bits(self) -> int:
        """Of an element of A."""
        return 8 // self.format.packed

    @property
    def bytes(self) -> int:
        """Bytes of the operands, their scales and the result."""
        row = self.k // self.format.packed + -(-self.k // self.format.block)
        return (self.m + self.n) * row + self.m * self.n * self.out_dtype.bytes

    @property
    def spec(self) -> Any:
        """What the kernel for such operands computes."""
        return self.spec_on(None)

    def spec_on(self, target: ChipName | None) -> Any:
        """What computes it on a chip, by default on the first that has such instructions."""
        a, b, _ = self.views
        _, _, keywords = self.call(Operands(a, b, np.zeros(self.n, np.float32) if self.bias else None))
        keywords |= {"out_dtype": self.asked, "target": target}
        return BlockScaledArguments.parse(a, b, memory=False, **keywords).spec

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return random operands on a machine, their scales, and an output: ``(a, b, scales, out)``."""
        import tilekit

        if self.fused:
            raise ArgumentError.of("bias", self.bias, legal="False: these are timed without", code="TK-BENCH-001")
        if self.out_scaled is not None:
            legal = "bf16, f16, f32, e4m3, e5m2: results that are quantised are run, and not timed"
            raise ArgumentError.of("out_scaled", self.out_scaled, legal=legal, nearest="bf16", code="TK-BENCH-001")
        sides, laid, host = [], [], []
        for rows in (self.m, self.n):
            random = np.random.default_rng(next(seeds))
            count, width = -(-self.k // self.format.block), self.k // self.format.packed
            values: _Array = random.integers(0, 256, (rows, -(-width // 16) * 16), np.uint8)
            if self.format.packed == 1:
                values = np.array(random.standard_normal(values.shape), self.a_dtype.numpy)
            scales: _Array
            if self.format.scale is UE8M0:
                scales = random.integers(126, 129, (rows, count), np.uint8)
            else:
                scales = np.array(random.uniform(0.5, 1.5, (rows, count)), self.format.scale.numpy)
            sides.append(machine.upload(values)[:, :width])
            laid.append(tilekit.lay_out_scales(machine.upload(scales)))
            host.append((values[:, :width], scales))
        scaled = LaidOut(laid[0], laid[1], (host[0], host[1]), machine.upload)
        return sides[0], sides[1].swapaxes(0, 1), scaled, machine.empty(self.out_shape, self.out_dtype)

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the one product, of operands times their scales."""
        import tilekit

        *_, scaled, out = operands
        a, b = (scaled.upload(tilekit.dequantise(values, scales)) for values, scales in scaled.host)
        return [(a, b.swapaxes(0, 1), out)]

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        a, b, scaled, out = operands
        return kernel.bind(a, b, scaled.a, scaled.b, out)

    @property
    def views(self) -> tuple[Any, Any, Any]:
        """Operands and output as they lie in memory that does not exist."""
        packed = self.format.packed
        a, b, out = replace(self, scaled="mxfp8", k=self.k // packed).views if packed > 1 else super().views
        if packed > 1:
            a, b = (replace(view, dtype=U8) for view in (a, b))
        return a, b, out

    def operands(self, seed: int, place: Callable[[_Array], Any] = lambda stored: stored) -> ScaledOperands:
        """Return standard normal numbers in the format, rows padded to 16 bytes.

        NVFP4's scale of the whole is 1: a call that is not told of another then computes with these numbers, and not
        with ones that are 448 * 6 at most, whose sums no narrow result has.
        """
        import tilekit

        random = np.random.default_rng(seed)
        whole: dict[str, Any] = {} if self.format.scale is UE8M0 else {"scale": 1.0}
        sides, scales = [], []
        for rows in (self.m, self.n):
            found = tilekit.quantise(random.standard_normal((rows, self.k), dtype=np.float32), self.scaled, **whole)
            width = found.values.shape[1]
            stored = np.zeros((rows, -(-width // 16) * 16), found.values.dtype)
            stored[:, :width] = found.values
            sides.append(place(stored)[:, :width])
            plain = found.scales.view(np.uint8) if self.format.scale is UE8M0 else found.scales
            scales.append(place(plain))
        bias = place(random.standard_normal(self.n, dtype=np.float32)) if self.bias else None
        return ScaledOperands(sides[0], sides[1].T, bias, None, (scales[0], scales[1]))

    def call(self, operands: Operands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.scaled_matmul` is called with, with scales laid out ahead; of layouts alone, views."""
        import tilekit

        if isinstance(operands, ScaledOperands):
            scales = [tilekit.lay_out_scales(one) for one in operands.scales]
        else:
            count = -(-self.k // self.format.block)
            shapes = ((rows, count) for rows in (self.m, self.n))
            scales = [replace(operands.a, shape=s, strides=(count, 1), dtype=self.format.scale) for s in shapes]
        keywords = {"bias": operands.bias, "activation": self.activation}
        return operands.a, operands.b, {"scale_a": scales[0], "scale_b": scales[1], **keywords}

    def accuracy(self, operands: Operands, out: _Array) -> Accuracy:
        """Compare an answer with float64, each element against the error its own sum may have."""
        import tilekit

        assert isinstance(operands, ScaledOperands)
        sides = zip((operands.a, operands.b.T), operands.scales, strict=True)
        a, b = (tilekit.dequantise(values, scales).astype(np.float64) for values, scales in sides)
        expected: _Array = a @ b.T
        if operands.bias is not None:
            expected += operands.bias.astype(np.float64)
        sizes: _Array = np.abs(a) @ np.abs(b.T)
        if self.out_scaled is None:
            return accuracy_of(expected, sizes, out, BF16, self.out_dtype, self.activation)
        return accuracy_of(expected, sizes, out, BF16, F32, self.activation, self._rounding)

    def _rounding(self, exact: _Array) -> _Array:
        """How far a quantised result may be from what it is made of: by its element, and by the smallest of its block.

        A block's largest element may be above the type's largest, by up to a seventh, or a third of e2m1.
        """
        assert self.out_scaled is not None
        found = FORMATS[self.out_scaled]
        of_element, of_block = (0.125, 2.0**-18) if found.packed == 1 else (0.25, 0.0625)
        rows, columns = exact.shape
        padded: _Array = np.zeros((rows, -(-columns // found.block) * found.block))
        padded[:, :columns] = np.abs(exact)
        most = padded.reshape(rows, -1, found.block).max(-1)
        return of_element * np.abs(exact) + of_block * np.repeat(most, found.block, 1)[:, :columns]
