"""A machine whose device time is arithmetic, so that the harness itself can be held to exact figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilekit.bench import contest
from tilekit.dtypes import DType


class SimulatedMachine:
    """Computes with NumPy; device time is what each launch says it costs, times a drift that grows with every slice."""

    library, device, uuid = "simulated 1.0", "Simulated GPU", "GPU-0"
    capability = (9, 0)
    l2_bytes = 1 << 20

    def __init__(self) -> None:
        self.drift = 1.0
        self.drift_per_slice = 0.0
        self.spent = 0.0
        self.slices: list[tuple[Callable[[], None], int]] = []
        self.capturing = False

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

    def relative_error(self, a: Any, b: Any, out: Any) -> float:
        expected = a.astype(np.float32) @ b.astype(np.float32)
        return float(np.linalg.norm(out.astype(np.float32) - expected) / np.linalg.norm(expected))

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


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    """A simulated machine, with the harness's idle time taken out."""
    monkeypatch.setattr(contest.time, "sleep", lambda seconds: None)
    return SimulatedMachine()
