"""Six small matmul launches whose rings wrap, each CTA with several tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import tilekit
from tilekit import MatmulConfig, MatmulSpec
from tilekit.arrays import view_of
from tilekit.emulator import Buffer, Device, LaunchReport, TensorMap
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.problem import MatmulCall, output_matrix, read_problem
from tilekit.runtime.parameters import U32, Parameter, pack

from .mutation import Mutation

Array = NDArray[Any]
Arguments = dict[str, Parameter]
STEP_BUDGET = 100_000
"""Many times the blocks that an unbroken launch executes."""


@dataclass(frozen=True)
class Case:
    """A kernel and a problem small enough to run hundreds of times."""

    name: str
    config: MatmulConfig
    spec: MatmulSpec
    m: int
    n: int
    k: int
    clusters: int = 1

    @cached_property
    def kernel(self) -> Any:
        """The compiled kernel."""
        return tilekit.compile(self.spec, "sm_90a", self.config)

    @property
    def text(self) -> str:
        """Its PTX."""
        return str(self.kernel.ptx)

    @cached_property
    def operands(self) -> tuple[Array, Array]:
        """A (M, K) and B (K, N), small integers, every row and column different."""
        rng = np.random.default_rng(7)
        a = rng.integers(-3, 4, (self.m, self.k)).astype(ml_dtypes.bfloat16)
        b = rng.integers(-3, 4, (self.n, self.k)).astype(ml_dtypes.bfloat16).T
        return a, b

    @cached_property
    def boxes(self) -> dict[str, tuple[int, ...]]:
        """What the copies of each tensor map move."""
        a, b = self.operands
        out = np.empty((self.m, self.n), self.spec.out_dtype.numpy)
        call = MatmulCall(read_problem(view_of(a), view_of(b)), output_matrix(view_of(out)))
        addresses = Addresses(a=1 << 20, b=1 << 21, out=1 << 22)
        launch = self.kernel.launch_of(call, addresses, 1, lambda name, size: 1 << 23)
        named = zip((p.name for p in self.kernel.text.parameters), launch.parameters, strict=True)
        return {name: value.box for name, value in named if isinstance(value, TensorMap)}

    @cached_property
    def expected(self) -> Array:
        """The exact product, rounded once."""
        a, b = (x.astype(np.float32) for x in self.operands)
        return (a @ b).astype(self.spec.out_dtype.numpy)

    def run(
        self,
        text: str,
        schedule: Any,
        seed: int,
        change: Callable[[Arguments], Arguments] = lambda arguments: arguments,
        starts: Any = "ascending",
    ) -> tuple[LaunchReport, bool]:
        """Launch `text` in the kernel's place on a device for `clusters`, which start in some order.

        Returns the report, and whether the result is right and counters are as the next launch must find them.
        """
        kernel = self.kernel
        a, b = self.operands
        held = self.clusters * self.config.cluster_size
        device = Device("sm_90a", schedule=schedule, seed=seed, multiprocessors=held, starts=starts)
        out = np.full((self.m, self.n), np.nan, self.spec.out_dtype.numpy)
        buffers = device.buffer(a, "a"), device.buffer(np.ascontiguousarray(b.T), "b"), device.buffer(out, "out")
        memory: dict[str, Buffer] = {}

        def scratch(name: str, size: int) -> int:
            memory[name] = device.buffer(np.zeros(size, np.uint8), name)
            return memory[name].address

        launch = kernel.launch_of(
            MatmulCall(read_problem(view_of(a), view_of(b)), output_matrix(view_of(out))),
            Addresses(*(buffer.address for buffer in buffers)),
            self.clusters,
            scratch,
        )
        named = dict(zip((p.name for p in kernel.text.parameters), launch.parameters, strict=True))
        parameters = list(change(named).values())
        report = device.load(text)[kernel.name].launch(
            grid=launch.grid,
            block=kernel.text.threads,
            shared_bytes=kernel.text.shared_bytes,
            params=pack(parameters, TensorMap.encode).data,
            step_budget=STEP_BUDGET,
        )
        zeroed = "turns" not in memory or not memory["turns"].read().any()
        with np.errstate(invalid="ignore"):  # a broken kernel leaves the NaN that the output is filled with
            return report, bool(np.array_equal(buffers[2].read(), self.expected)) and zeroed


@cache
def cases() -> dict[str, Case]:
    """The launches by name."""
    two = MatmulConfig(tile=(128, 64), cluster=(1, 1), consumers=2, stages=2, output_buffers=1, in_flight=0)
    shared_b = MatmulConfig(tile=(64, 128), cluster=(2, 1), consumers=1, stages=3, output_buffers=2, in_flight=1)
    shared_a = MatmulConfig(tile=(64, 64), cluster=(1, 2), consumers=1, stages=2, in_flight=1)
    pingpong = MatmulConfig(tile=(64, 64), cluster=(1, 1), schedule="pingpong", stages=3, output_buffers=1)
    layers = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, cluster_k=2, stages=2, output_buffers=1)
    streamed = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, stream_k=4, stages=2, output_buffers=1)
    every = (
        Case("two consumers", two, MatmulSpec(), 256, 64, 384),
        Case("cluster 2x1", shared_b, MatmulSpec(), 256, 128, 512),
        Case("direct, cluster 1x2", shared_a, MatmulSpec(store="direct"), 104, 101, 384),
        Case("pingpong", pingpong, MatmulSpec(), 448, 64, 128),
        Case("sum in a cluster", layers, MatmulSpec(), 192, 64, 320),
        Case("streamed", streamed, MatmulSpec(), 576, 64, 320, clusters=4),
    )
    return {case.name: case for case in every}


def argument_mutations(case: Case) -> Iterator[tuple[Mutation, Callable[[Arguments], Arguments]]]:
    """Changes of what the host passes: tensor maps and counts."""

    def setting(name: str, **fields: Any) -> Callable[[Arguments], Arguments]:
        return lambda arguments: {**arguments, name: replace(arguments[name], **fields)}  # type: ignore[type-var]

    def counting(name: str, amount: int) -> Callable[[Arguments], Arguments]:
        def change(arguments: Arguments) -> Arguments:
            number = arguments[name]
            assert isinstance(number, U32)
            return {**arguments, name: U32(number.value + amount)}

        return change

    def swapping(first: str, second: str) -> Callable[[Arguments], Arguments]:
        return lambda arguments: {**arguments, first: arguments[second], second: arguments[first]}

    for name, box in case.boxes.items():
        fields = (
            ("box 8 rows lower", {"box": (box[0], box[1] - 8)}),
            ("box 8 rows higher", {"box": (box[0], box[1] + 8)}),
            ("swizzle 64B", {"swizzle": "64B", "box": (box[0] // 2, box[1])}),
            ("no swizzle", {"swizzle": None}),
        )
        for change, values in fields:
            yield Mutation("tensor map", name, "host", change), setting(name, **values)
    yield Mutation("tensor map", "a_map, b_map", "host", "swapped"), swapping("a_map", "b_map")
    for name, unit in (("k", case.kernel.k_block), ("tile_count", 1)):
        for change, amount in (("one fewer", -unit), ("one more", unit)):
            yield Mutation("count", name, "host", change), counting(name, amount)
