"""One launch of a matmul: a kernel of any chip, a problem that it does not divide, a device for few clusters."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from tests.matmul.matmul_launch_data import Array, Inputs, inputs_of, wrong
from tilekit import ElementwiseSpec, MatmulSpec
from tilekit.arrays import view_of
from tilekit.arrays.staging import EmulatedStaging
from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32, DType
from tilekit.emulator import Device, LaunchReport, TensorMap
from tilekit.kernels.launch import Launch
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.config import KernelConfig, plural
from tilekit.kernels.problem import MatmulCall, output_matrix, read_problem
from tilekit.runtime.parameters import pack
from tilekit.targets import Target, target

STEP_BUDGET = 1_000_000
"""Many times the blocks that an unbroken launch executes."""

GAP = 0xA5
"""What the bytes between the rows of an output hold."""


@dataclass(frozen=True)
class Problem:
    """Extents of one product."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class Outcome:
    """What came of a launch.

    Attributes
    ----------
    report
        The emulator's.
    wrong
        What is wrong with the result, with the bytes between its rows, or with what the next launch finds; empty if
        nothing is.
    started, tiles
        Clusters that ran, and cluster tiles they worked on.
    """

    report: LaunchReport
    wrong: str
    started: int
    tiles: int


@dataclass(frozen=True)
class LaunchCase:
    """A kernel, and how many cluster tiles its problem has.

    Attributes
    ----------
    config, spec
        Of the kernel; the chip is the config's.
    extents
        The problem, where it is not to follow from `tiles` and `k_blocks`.
    tiles
        Cluster tiles along M and N; the last of each is cut.
    k_blocks
        Blocks of K; the last is cut.
    batches
        Batch extent of A and of B: None for an operand without that dimension.
    """

    config: KernelConfig
    spec: MatmulSpec = field(default_factory=MatmulSpec)
    tiles: tuple[int, int] = (3, 2)
    k_blocks: int = 3
    batches: tuple[int | None, int | None] = (None, None)
    extents: Problem | None = None

    def __str__(self) -> str:
        c, s = self.config, self.spec
        knobs = {knob.name for knob in fields(c)}
        words = [
            "swapped" if c.swap_ab else "",
            f"{c.tile[0]}x{c.tile[1]}",
            "pairs" if c.cta_group == 2 else "",
            f"cluster {c.cluster[0]}x{c.cluster[1]}" + f"x{c.cluster_k}" * (c.cluster_k > 1)
            if c.cluster_size > 1
            else "",
            plural(c.consumers, "consumer") + f" {c.schedule}" * c.pingpong if "consumers" in knobs else "",
            f"stages {c.stages or 'auto'}" + (f" of {c.k_group}" if c.k_group > 1 else ""),
            f"accumulators {c.accumulator_stages}" if "accumulator_stages" in knobs else f"in flight {c.in_flight}",
            (f"claims {c.clc_stages}" if c.clc_stages else "static") if "clc_stages" in knobs else "",
            f"buffers {c.output_buffers}",
            "load order" if c.load_order else "",
            f"split {c.split_k}" if c.split_k > 1 else "",
            f"stream {c.stream_k}" if c.stream_k else "",
            f"prefetch {c.prefetch}" if c.prefetch else "",
            f"raster {c.raster_group or ''}{'n' if c.raster_order == 'n' else ''}"
            if c.raster_group or c.raster_order == "n"
            else "",
            s.name.removeprefix("matmul_"),
            str(self.extents or ""),
        ]
        return ", ".join(filter(None, words))

    @property
    def target(self) -> Target:
        """The chip."""
        return target(self.config.TARGET)

    @cached_property
    def kernel(self) -> MatmulKernel:
        """The compiled kernel."""
        return MatmulKernel(self.spec, self.config, self.target)

    @property
    def span(self) -> tuple[int, int]:
        """Rows and columns of the output that a cluster tile covers."""
        across, along = (t * c for t, c in zip(self.config.tile, self.config.cluster, strict=True))
        return (along, across) if self.config.swap_ab else (across, along)

    @property
    def problem(self) -> Problem:
        """That of `extents`, or one that ends inside a tile along M and N and inside a block of K."""
        if self.extents:
            return self.extents
        rows, columns = self.span
        block = self.config.k_block(self.spec.a_dtype)
        mix = rows * 7 + columns * 3 + block
        return Problem(
            (self.tiles[0] - 1) * rows + 1 + mix % (rows - 1),
            self._stored((self.tiles[1] - 1) * columns + columns // 2 + mix % (columns // 2)),
            (self.k_blocks - 1) * block + 1 + mix * 5 % (block - 2),
        )

    @property
    def short(self) -> Problem:
        """A problem with less of K than a block, and little of M and N."""
        rows, columns = self.span
        block = self.config.k_block(self.spec.a_dtype)
        return Problem(
            rows + 3, self._stored(columns // 2 + min(5, columns // 2 - 1)), 2 + (rows + columns) * 7 % (block - 3)
        )

    def _stored(self, n: int) -> int:
        """`n`, or as many columns less as the copy engine wants; an odd number for stores that it has no part in."""
        if self.spec.store == "direct":
            return n | 1
        return n - n % (16 // self.spec.out_dtype.bytes)

    def inputs(self, problem: Problem, kind: str, seed: int) -> Inputs:
        """Arrays for a problem."""
        return inputs_of(self.spec, problem.m, problem.n, problem.k, self.batches, kind, seed)

    def run(
        self,
        inputs: Inputs,
        *,
        schedule: Any = "adversarial",
        seed: int = 0,
        clusters: int = 2,
        starts: Any = "ascending",
        text: str | None = None,
        step_budget: int = STEP_BUDGET,
    ) -> Outcome:
        """Launch the kernel, or `text` in its place, on a device for so many clusters.

        Raises
        ------
        EmulatorError
            The first fault.
        """
        kernel, spec = self.kernel, self.spec
        held = clusters * self.config.cluster_size
        device = Device(self.target.name, schedule=schedule, seed=seed, multiprocessors=held, starts=starts)
        staging = EmulatedStaging(device)
        a = _placed(inputs.a, inputs.a.ndim - 1 if spec.a_major == "k" else inputs.a.ndim - 2)
        b = _placed(inputs.b, inputs.b.ndim - 2 if spec.b_major == "k" else inputs.b.ndim - 1)
        out = _output(inputs.expected.shape, spec.out_dtype, direct=spec.store == "direct")
        residual = _placed(inputs.residual, inputs.residual.ndim - 1) if inputs.residual is not None else None
        scale = np.array([inputs.scale], np.float32) if spec.functions.scale == "pointer" else None
        arrays = {"a": a, "b": b, "out": out, "bias": inputs.bias, "residual": residual, "scale": scale}
        views = {name: view_of(array, name) for name, array in arrays.items() if array is not None}
        call = MatmulCall(
            read_problem(views["a"], views["b"]),
            output_matrix(views["out"]),
            scale=inputs.scale,
            residual=output_matrix(views["residual"], "residual") if "residual" in views else None,
            beta=inputs.beta,
        )
        addresses = Addresses(**{name: staging.upload(view) for name, view in views.items()})
        counters: list[str] = []

        def scratch(name: str, size: int) -> int:
            if name in ("turns", "starts"):
                counters.append(name)
            return staging.scratch(name, size)

        launch: Launch = kernel.launch_of(call, addresses, clusters, scratch)
        ended: list[int] = []
        report = device.load(text or kernel.ptx)[kernel.name].launch(
            grid=launch.grid,
            block=kernel.text.threads,
            shared_bytes=kernel.text.shared_bytes,
            prerequisite=True,
            params=bytes(pack(list(launch.parameters), TensorMap.encode).data),
            step_budget=step_budget,
            progress=lambda done, total, seconds: ended.append(done),
        )
        gaps = _gaps(out)
        staging.download(views["out"])
        problem = wrong(out, inputs.expected, spec.functions.activation)
        if (gaps != GAP).any():
            problem += " the launch wrote between the rows of the output"
        if any(any(staging.read_scratch(name)) for name in counters):
            problem += " the launch leaves a turn that the next one would wait for"
        grid = launch.grid // self.config.cluster_size
        one_each = self.config.claims_tiles or self.config.split_k > 1  # a cluster for every tile, or share of one
        tiles = grid if one_each else self._cluster_tiles(inputs)
        return Outcome(report, problem, len(ended), tiles)

    def _cluster_tiles(self, inputs: Inputs) -> int:
        *batch, m, n = inputs.expected.shape
        rows, columns = self.span
        shares = min(self.config.split_k, -(-inputs.a.shape[-1] // self.config.k_block(self.spec.a_dtype)))
        tiles: int = -(-m // rows) * -(-n // columns) * (batch[0] if batch else 1) * max(shares, 1)
        return tiles


@dataclass(frozen=True)
class Run:
    """One launch of a case.

    Attributes
    ----------
    problem, kind
        What is multiplied.
    schedule, seed, clusters
        In which order, on a device for how many clusters.
    """

    case: LaunchCase
    problem: Problem
    kind: str
    schedule: str
    seed: int
    clusters: int

    def __str__(self) -> str:
        return f"{self.case} | {self.problem}, {self.kind}, {self.schedule} {self.seed}, room for {self.clusters}"


def computes(
    types: str = "bf16 bf16 bf16", majors: str = "kk", *, store: str = "tma", batched: bool = False, **functions: Any
) -> MatmulSpec:
    """A spec: types of A, B and the output; the contiguous dimensions of A and of B; what the epilogue adds."""
    a, b, out = (TYPES[name] for name in types.split())
    return MatmulSpec(
        a,
        b,
        out,
        "k" if majors[0] == "k" else "mn",
        "k" if majors[1] == "k" else "mn",
        batched=batched,
        functions=ElementwiseSpec(**functions),
        store=store,
        precision="tf32" if a == F32 else None,
    )


TYPES: dict[str, DType] = {dtype.name: dtype for dtype in (BF16, F16, F32, E4M3, E5M2)}


def _placed(values: Array, contiguous: int) -> Array:
    """The array with axis `contiguous` as its contiguous one, in rows of whole 16 bytes and more, NaN between them."""
    order = [axis for axis in range(values.ndim) if axis != contiguous] + [contiguous]
    shape = [values.shape[axis] for axis in order]
    unit = 16 // values.itemsize
    memory = np.full((*shape[:-1], (-(-shape[-1] // unit) + 1) * unit * values.itemsize), 0xFF, np.uint8)
    rows = memory.view(values.dtype)[..., : shape[-1]]
    placed: Array = rows.transpose([order.index(axis) for axis in range(values.ndim)])
    placed[...] = values
    return placed


def _output(shape: tuple[int, ...], dtype: DType, *, direct: bool) -> Array:
    """An output full of NaN, in rows that lie apart: an odd number of elements where the threads store themselves."""
    unit = 16 // dtype.bytes
    pitch = (shape[-1] + 2) | 1 if direct else (-(-shape[-1] // unit) + 1) * unit
    memory = np.full((*shape[:-1], pitch * dtype.bytes), GAP, np.uint8)
    out: Array = memory.view(dtype.numpy)[..., : shape[-1]]
    out[...] = np.nan
    return out


def _gaps(out: Array) -> Array:
    """The bytes between the rows of an output of `_output`, as a view."""
    memory = out
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    whole: Array = memory.view(np.uint8)
    return whole[..., out.shape[-1] * out.itemsize :]
