"""One matmul to check: what is multiplied, how it lies in memory, which kernel does it, and what the inputs hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tilekit import ElementwiseSpec, MatmulSpec
from tilekit.dtypes import DType, as_dtype
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import Accumulation, Precision
from tilekit.targets import SM_90A, target

Data = Literal["integers", "coded_a", "coded_b", "normal"]
DATA: tuple[Data, ...] = ("integers", "coded_a", "coded_b", "normal")

ALIGNMENT = 16
"""Bytes of which TMA wants every address and pitch to be a multiple."""


@dataclass(frozen=True)
class Layout:
    """Where the elements of an array lie: strides and the place of element zero, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    lead: int = 0


@dataclass(frozen=True)
class Kernel:
    """What selects a kernel: types, majors, functions, kind of store, config (None: the picker's).

    Attributes
    ----------
    a, b, out
        Element types by tilekit's name. f32 operands are multiplied as tf32.
    majors
        ``"kk"``, ``"kn"``, ``"mk"`` or ``"mn"``: the contiguous dimension of A and that of B.
    batched
        Whether there is a batch dimension.
    scale
        None, ``"number"`` or ``"array"`` (of one f32, in device memory where there is one).
    scales
        ``"a"`` for a scale a row, ``"b"`` for one a column, ``"ab"`` for both.
    bias
        Type of the bias, or None.
    direct
        Whether the output lies where TMA cannot write it. Where it is not, and a config is given, N is a whole number
        of 16 bytes.
    accumulation
        How 8-bit products are summed.
    target
        The chip that is emulated; on a GPU it is that one's.
    """

    a: str = "bf16"
    b: str = "bf16"
    out: str = "bf16"
    majors: str = "kk"
    batched: bool = False
    scale: str | None = None
    scales: str = ""
    bias: str | None = None
    activation: str | None = None
    direct: bool = False
    accumulation: Accumulation = "fast"
    config: KernelConfig | None = None
    target: str = SM_90A.name

    @property
    def precision(self) -> Precision | None:
        """What to ask for."""
        return "tf32" if self.a == "f32" else None

    def __str__(self) -> str:
        functions = ".".join(
            filter(
                None,
                (
                    f"scale_{self.scale}" * bool(self.scale),
                    f"scales_{self.scales}" * bool(self.scales),
                    f"bias_{self.bias}" * bool(self.bias),
                    self.activation,
                ),
            )
        )
        words = [
            f"{self.a}.{self.b}.{self.out}",
            self.majors,
            "batched" * self.batched,
            functions,
            "direct" * self.direct,
            self.accumulation if self.accumulation != "fast" else "",
            _short(self.config) if self.config else "picked",
            self.target if self.target != SM_90A.name else "",
        ]
        return "-".join(filter(None, words))


@dataclass(frozen=True)
class Case:
    """A kernel, a problem and its data.

    Attributes
    ----------
    batches
        Batch extent of A and of B: None for an operand without that dimension.
    pads
        What A, B and the output have beyond the smallest legal pitch: in units of 16 bytes, of elements for a direct
        output.
    leads
        How far into their memory A, B and the output begin, in the same units.
    data
        ``integers``: small ones, whose result is exact. ``coded_a`` (``coded_b``): A (B) holds a value that tells its
        place, and the other operand picks one of them for every output. ``normal``: rounded normal numbers.
    seed
        Of the data.
    """

    kernel: Kernel
    m: int
    n: int
    k: int
    batches: tuple[int | None, int | None] = (None, None)
    pads: tuple[int, int, int] = (0, 0, 0)
    leads: tuple[int, int, int] = (0, 0, 0)
    data: Data = "integers"
    seed: int = 0

    def __str__(self) -> str:
        batches = (
            ""
            if self.batches == (None, None)
            else "b{}.{}-".format(*(b if b is not None else "_" for b in self.batches))
        )
        layout = "" if not any(self.pads + self.leads) else "p{}{}{}.l{}{}{}-".format(*self.pads, *self.leads)
        return f"{self.kernel}-{batches}{self.m}x{self.n}x{self.k}-{layout}{self.data}-s{self.seed}"

    @cached_property
    def a_dtype(self) -> DType:
        return as_dtype(self.kernel.a)

    @cached_property
    def b_dtype(self) -> DType:
        return as_dtype(self.kernel.b)

    @cached_property
    def out_dtype(self) -> DType:
        return as_dtype(self.kernel.out)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        given = [b for b in self.batches if b is not None]
        return (*([0 if 0 in given else max(given)] if given else []), self.m, self.n)

    @property
    def a_layout(self) -> Layout:
        """Where A lies."""
        return _layout(
            (self.batches[0], self.m, self.k), self.kernel.majors[0] == "k", self.a_dtype, self.pads[0], self.leads[0]
        )

    @property
    def b_layout(self) -> Layout:
        """Where B lies."""
        return _layout(
            (self.batches[1], self.k, self.n), self.kernel.majors[1] == "n", self.b_dtype, self.pads[1], self.leads[1]
        )

    @property
    def out_layout(self) -> Layout:
        """Where the output lies."""
        batch = self.out_shape[0] if len(self.out_shape) == 3 else None
        if not self.kernel.direct:
            return _layout((batch, self.m, self.n), True, self.out_dtype, self.pads[2], self.leads[2])
        pitch = (self.n + self.pads[2]) | 1
        return Layout(
            self.out_shape, ((self.m * pitch + self.pads[2],) if batch is not None else ()) + (pitch, 1), self.leads[2]
        )

    @property
    def exact(self) -> bool:
        """Whether the result is known bit for bit."""
        return self.data != "normal" and self.kernel.activation in (None, "relu")

    @property
    def emulated_cost(self) -> float:
        """Roughly how long the emulator takes, in seconds, if the picker chooses tiles of 128 by 128."""
        config = self.kernel.config or MatmulConfig(tile=(128, 128), cluster=(1, 1))
        spans = [config.tile[0] * config.cluster[0], config.tile[1] * config.cluster[1]]
        m, n = (self.n, self.m) if config.swap_ab else (self.m, self.n)
        clusters = -(-m // spans[0]) * -(-n // spans[1]) * (self.out_shape[0] if len(self.out_shape) == 3 else 1)
        k_blocks = max(1, -(-self.k * self.a_dtype.bytes // 128))
        area = config.tile[0] * config.tile[1] / 4096 * (2 if self.kernel.activation else 1)
        stage = k_blocks * max(1, config.tile[0] / 128)
        return 0.03 + clusters * config.cluster_size * (0.004 * area + 0.002 * stage)


def legal(kernel: Kernel) -> bool:
    """Whether the kernel's config can be built for what its cases may need."""
    if kernel.config is None:
        return True
    functions = ElementwiseSpec(
        scale={None: None, "number": "value", "array": "pointer"}[kernel.scale],  # type: ignore[arg-type]
        bias=as_dtype(kernel.bias) if kernel.bias else None,
        activation=kernel.activation,  # type: ignore[arg-type]
        scale_a="a" in kernel.scales,
        scale_b="b" in kernel.scales,
    )
    majors = ["k" if major == "k" else "mn" for major in kernel.majors]
    return all(
        kernel.config.legal(
            target(kernel.target),
            MatmulSpec(
                *map(as_dtype, (kernel.a, kernel.b, kernel.out)),
                *majors,  # type: ignore[arg-type]
                batched=kernel.batched,
                functions=functions,
                store=store,
                precision=kernel.precision,
                accumulation=kernel.accumulation,
            ),
        )
        for store in (("tma", "direct") if kernel.direct else ("tma",))  # a direct output may be aligned by chance
    )


def _layout(shape: tuple[int | None, int, int], rows: bool, dtype: DType, pad: int, lead: int) -> Layout:
    """A matrix (or a batch of them) with its last dimension contiguous if `rows`, else the one before."""
    batch, *matrix = shape
    unit = ALIGNMENT // dtype.bytes
    inner, outer = (matrix[1], matrix[0]) if rows else (matrix[0], matrix[1])
    pitch = (max(1, -(-inner // unit)) + pad) * unit
    strides = (pitch, 1) if rows else (1, pitch)
    if batch is None:
        return Layout(tuple(matrix), strides, lead * unit)
    return Layout((batch, *matrix), (outer * pitch + pad * unit, *strides), lead * unit)


def _short(config: KernelConfig) -> str:
    """A config in an id: only what differs from the default behind tile, cluster and warpgroups or pairs."""
    default = type(config)()
    shapes = {"tile": "t", "cluster": "c"}
    always = {"consumers": "w", "cta_group": "p", "load_waves": "l", "mma_waves": "m"}
    others = {
        "stages": "s", "output_buffers": "o", "in_flight": "f", "raster_group": "g", "l2_promotion": "L",
        "prefetch": "h", "raster_order": "r", "k_group": "k", "swap_ab": "x", "accumulator_stages": "a",
        "clc_stages": "q", "split_k": "z", "stream_k": "y", "schedule": "", "l2_stream": "e",
    }  # fmt: skip
    words = [letter + "x".join(map(str, getattr(config, name))) for name, letter in shapes.items()]
    words += [f"{letter}{getattr(config, name)}" for name, letter in always.items() if hasattr(config, name)]
    words += [
        f"{letter}{getattr(config, name)}"
        for name, letter in others.items()
        if getattr(config, name, None) != getattr(default, name, None)
    ]
    return "".join(words)
