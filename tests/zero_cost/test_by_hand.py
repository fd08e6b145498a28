"""The matmuls written by hand are right: exact products, ragged edges, on the emulator and with `pytest -m gpu`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tilekit.arrays import view_of
from tilekit.arrays.staging import CudaStaging, EmulatedStaging, Staging
from tilekit.emulator import Device
from tilekit.kernels.launch import Launch
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.problem import MatmulCall, output_matrix, read_problem
from tilekit.runtime import driver
from tilekit.runtime.emulated import EmulatedModule
from tilekit.runtime.launch import CudaModule
from tilekit.runtime.prepared import LaunchConfig

from . import blackwell, hopper
from .pair import Pair

Array = NDArray[Any]

CASES = (
    (256, 256, 64, 1),
    (256, 256, 0, 1),
    (8, 8, 8, 1),
    (264, 264, 328, 1),
    (1000, 520, 392, 2),
    (520, 1032, 456, 1),
    (129, 2312, 136, 3),
)
"""M, N, K, and how many clusters run at once; rings wrap where a cluster has several tiles."""

each_pair = pytest.mark.parametrize("make", [pytest.param(c.pair, id=c.TARGET) for c in (hopper, blackwell)])


class Problem:
    """Operands of small integers, and an output full of NaN inside a frame of numbers that must stay."""

    def __init__(self, both: Pair, m: int, n: int, k: int) -> None:
        self.both = both
        rng = np.random.default_rng((m, n, k))
        self.a = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
        self.b = rng.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
        self.frame = (np.arange((m + 2) * (n + 16)) % 251).astype(ml_dtypes.bfloat16).reshape(m + 2, n + 16)
        self.out = self.frame[1:-1, 8:-8]
        self.out[...] = np.nan

    def arguments(self, memory: Staging, clusters: int) -> Launch:
        """Copy everything to a device, and make the launch that the traced kernel would have there."""
        views = {"a": view_of(self.a), "b": view_of(self.b.T), "out": view_of(self.out)}
        addresses = Addresses(**{name: memory.upload(view) for name, view in views.items()})
        call = MatmulCall(read_problem(views["a"], views["b"]), output_matrix(views["out"]))
        return self.both.kernel.launch_of(call, addresses, clusters, memory.scratch)

    def check(self, memory: Staging) -> None:
        """Fetch the output: each element is the exact product, rounded once, and the frame is as it was."""
        memory.download(view_of(self.out))
        exact = self.a.astype(np.float32) @ self.b.astype(np.float32).T
        assert np.array_equal(self.out, exact.astype(ml_dtypes.bfloat16))
        self.out[...] = np.nan
        untouched = Problem(self.both, self.a.shape[0], self.b.shape[0], self.a.shape[1]).frame
        assert np.array_equal(self.frame.view(np.uint16), untouched.view(np.uint16))

    def shape(self, launch: Launch) -> LaunchConfig:
        """The launch of the traced kernel, with the shared memory that the other one says it needs."""
        config = self.both.kernel.launch_config(launch.grid)
        return LaunchConfig(config.grid, config.block, config.cluster, self.both.shared_bytes, config.pdl)


def emulate(problem: Problem, clusters: int, seed: int) -> int:
    """Launch where so many clusters run at once, and check; return how many were launched."""
    both = problem.both
    device = Device(both.kernel.target.name, seed=seed, multiprocessors=2 * clusters)
    memory = EmulatedStaging(device)
    launch = problem.arguments(memory, clusters)
    module = EmulatedModule(device, both.by_hand.read_text("utf-8"))
    prepared = module.kernel(both.entry).prepare(problem.shape(launch), launch.parameters)
    prepared()
    assert prepared.report is not None
    assert prepared.report.clean, str(prepared.report)
    problem.check(memory)
    return launch.grid // 2


@pytest.mark.sampled(one_in=4)
@each_pair
@pytest.mark.parametrize(("m", "n", "k", "clusters"), CASES)
def test_emulated(make: Callable[[], Pair], m: int, n: int, k: int, clusters: int) -> None:
    """On the emulator, under three schedules, every product is exact and nothing is found."""
    for seed in range(3):
        emulate(Problem(make(), m, n, k), clusters, seed)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("seed", range(3, 11))
def test_tiles_are_claimed(seed: int) -> None:
    """Under more schedules, three clusters of CTA pairs share the tiles of fifteen, and none is left out."""
    assert emulate(Problem(blackwell.pair(), 1200, 696, 136), 3, seed) == 15


@pytest.mark.gpu
@each_pair
@pytest.mark.parametrize(("m", "n", "k", "clusters"), [*CASES, (4096, 4096, 1024, 66), (2056, 3080, 4104, 66)])
def test_on_gpu(make: Callable[[], Pair], m: int, n: int, k: int, clusters: int) -> None:
    """On a GPU every product is exact, launch after launch."""
    both = make()
    target = both.kernel.target
    if (reason := driver.why_unavailable()) is not None:
        pytest.skip(reason)
    if driver.devices()[0].compute_capability != target.compute_capability:
        pytest.skip(f"{driver.devices()[0].name} is not a {target.product}")
    module = CudaModule.from_ptx(both.by_hand.read_text("utf-8"), target.name, kernel_name=both.entry)
    with CudaStaging() as memory:
        problem = Problem(both, m, n, k)
        launch = problem.arguments(memory, clusters)
        prepared = module.kernel(both.entry).prepare(problem.shape(launch), launch.parameters, ordinal=memory.ordinal)
        for _ in range(3):
            prepared()
        problem.check(memory)
