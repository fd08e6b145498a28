"""A machine whose device time is arithmetic, so that the harness itself can be held to exact figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilekit
from tilekit.bench.accuracy import activated
from tilekit.bench.blockwise import Scales
from tilekit.bench.entrants import OURS, Entrant
from tilekit.bench.machine import weights_of
from tilekit.bench.matmul import Case, Result
from tilekit.bench.row_groups import Groups
from tilekit.bench.scaled import LaidOut
from tilekit.bench.workload import Fused
from tilekit.dtypes import DType
from tilekit.kernels.matmul.spec import Accumulation


class SimulatedMachine:
    """Computes with NumPy; device time is what each launch says it costs, times a drift that grows with every slice."""

    library, device, uuid = "simulated 1.0", "Simulated GPU", "GPU-0"
    capability = (9, 0)
    l2_bytes = 1 << 20
    accumulation: Accumulation = "fast"

    def __init__(self) -> None:
        self.drift = 1.0
        self.drift_per_slice = 0.0
        self.spent = 0.0
        self.slices: list[tuple[Callable[[], None], int]] = []
        self.products: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def normal(self, shape: tuple[int, ...], dtype: DType, seed: int) -> Any:
        return np.random.default_rng(seed).standard_normal(shape).astype(dtype.numpy)

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        return values.copy()

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        return np.asarray(array, np.float64)

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return np.zeros(shape, dtype.numpy)

    def poison(self, array: Any) -> None:
        array.view(np.uint8).fill(0xFF)

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        self.spend(2e-6)
        out[...] = (a.astype(np.float32) @ b.astype(np.float32)).astype(out.dtype)

    def fused(self, a: Any, b: Any, fused: Fused, out: Any) -> None:
        self.spend(3e-6)
        out[...] = self.finished(a.astype(np.float32) @ b.astype(np.float32), fused).astype(out.dtype)

    def blockwise(self, a: Any, b: Any, scales: Scales, out: Any) -> None:
        self.spend(3e-6)
        (along_n, along_k), wide = scales.blocks, (a.astype(np.float32), b.astype(np.float32))
        out[...] = ((wide[0] * scales.a[:, along_k]) @ (wide[1] * scales.b[along_n][:, along_k].T)).astype(out.dtype)

    def block_scaled(self, a: Any, b: Any, scales: LaidOut, out: Any) -> None:
        self.spend(3e-6)
        wide = [tilekit.dequantise(values, factors) for values, factors in scales.host]
        out[...] = (wide[0] @ wide[1].T).astype(out.dtype)

    def finished(self, product: Any, fused: Fused) -> Any:
        values = product if fused.bias is None else product + fused.bias.astype(np.float32)
        return values if fused.activation is None else activated(values, fused.activation)

    def single(self, array: Any) -> Any:
        return array.astype(np.float32)

    def one(self) -> Any:
        return np.float32(1)

    def product(self, a: Any, b: Any) -> Any:
        self.products.append((a.shape, b.shape))
        return a.astype(np.float32) @ b.astype(np.float32)

    def softmax(self, scores: Any, added: Any, cap: float | None) -> Any:
        return weights_of(np, scores, added, cap)

    def any_nan(self, array: Any) -> bool:
        return bool(np.isnan(array.astype(np.float32)).any())

    def distance(self, array: Any, expected: Any) -> float:
        return float(np.linalg.norm(array.astype(np.float32) - expected) / np.linalg.norm(expected))

    def spend(self, seconds: float) -> None:
        """Let a launch cost device time."""
        self.spent += seconds

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        before = self.spent
        work()
        cost = self.spent - before

        def replay() -> None:
            self.spent += cost

        return replay

    def time(self, replay: Callable[[], None], count: int) -> float:
        self.slices.append((replay, count))
        before = self.spent
        for _ in range(min(count, 3)):
            replay()
        self.drift += self.drift_per_slice
        return (self.spent - before) / min(count, 3) * count * self.drift

    def light_load(self, seconds: float) -> None:
        pass

    def synchronize(self) -> None:
        pass


def measured(label: str, ratios: dict[str, list[float]], *, suite: str = "decode", us: float = 10.0) -> Case:
    """A case in which tilekit took `us` in every round and burst, and each peer this many times as long."""
    rounds = [us] * max(map(len, ratios.values()), default=3)
    results = [Result(OURS, error=0.001, rounds=rounds, bursts=rounds[:1], sm_mhz=1500.0, watts=690.0)]
    for name, values in ratios.items():
        theirs = [us * ratio for ratio in values]
        results.append(
            Result(name, error=0.001, rounds=theirs, bursts=theirs[:1], ratios=values, burst_ratios=values[:1])
        )
    case = Case(label, "bf16→bf16 k/k", 2 * 10**9, 10**7, 3, 0.5, results, suite=suite)
    for result in results:
        result.summarise(case.flops)
    return case


def peer(name: str, machine: SimulatedMachine, microseconds: float, family: str = "matmul") -> Entrant:
    """An entrant that computes right and takes this long."""

    def launch(a: Any, b: Any, *rest: Any) -> None:
        machine.spend(microseconds * 1e-6)
        if isinstance(rest[0], Groups):
            tilekit.grouped_matmul(a, b, out=rest[-1], **rest[0].keywords)
        else:
            rest[-1][...] = (a.astype(np.float32) @ b.astype(np.float32)).astype(rest[-1].dtype)

    return Entrant(name, launch, family)
