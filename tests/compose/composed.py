"""Arrays for composed kernels, and one way to run them on the emulator or a GPU and look at everything they wrote."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilekit.compose import ComposedKernel
from tilekit.kernels.plan import EmulatedPlan

Array = npt.NDArray[Any]

EXAMPLES = Path(__file__).parents[2] / "examples"
BF16 = np.dtype(ml_dtypes.bfloat16)
PADDING = 24
"""Elements between rows, at least: what lies there is poison, and no kernel may write it."""


def example(file: str, name: str) -> ComposedKernel:
    """The kernel called `name` of an example."""
    kernel: ComposedKernel = runpy.run_path(str(EXAMPLES / file))[name]
    return kernel


def padded(values: Array) -> Array:
    """The same values in rows of whole 16 bytes with poison behind each."""
    unit = 16 // values.itemsize
    columns = -(-(values.shape[-1] + PADDING) // unit) * unit
    whole = np.empty((*values.shape[:-1], columns), values.dtype)
    whole.view(np.uint8)[...] = 0x7F  # NaN in bf16, f16 and f32; 127 in int8
    part = whole[..., : values.shape[-1]]
    part[...] = values
    return part


def run(kernel: ComposedKernel, inputs: dict[str, Array], outputs: dict[str, Array], *, on: str, seed: int = 0) -> None:
    """Launch into poisoned `outputs`, twice; nothing beside them is written, and the second time nothing differs.

    On the emulator there must be no finding.
    """
    targets = {name: padded(np.full_like(values, 0)) for name, values in outputs.items()}
    launch = kernel.bind(**inputs, **targets, device="cuda" if on == "cuda" else None, seed=seed)
    results = []
    for _ in range(2):
        for target in targets.values():
            _whole(target).view(np.uint8)[...] = 0x7F
        launch()
        results.append({name: _whole(target).copy() for name, target in targets.items()})
        if isinstance(launch, EmulatedPlan):
            assert launch.report.clean, str(launch.report)
    for name, values in outputs.items():
        one, other = (result[name] for result in results)
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8), name)
        assert (one[..., values.shape[-1] :].view(np.uint8) == 0x7F).all(), f"{name}: written beside"
        values[...] = one[..., : values.shape[-1]]


def _whole(part: Array) -> Array:
    """The array that `padded` cut `part` from."""
    whole = part.base
    assert isinstance(whole, np.ndarray)
    return whole


def integers(rng: np.random.Generator, most: int, *shape: int, dtype: Any = BF16) -> Array:
    """Small integers."""
    return rng.integers(-most, most, shape, np.int8, endpoint=True).astype(dtype)


def coded(rng: np.random.Generator, *shape: int, values: Array) -> Array:
    """Values that tell places apart: a prime number of `values`, by steps of each axis's own."""
    prime = next(n for n in range(len(values), 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1)))
    place = np.zeros(shape, np.int64)
    for axis, step in enumerate(rng.choice(np.arange(2, prime - 1), len(shape), replace=False)):
        place += np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]) * int(step)
    return values[place % prime]


def picking(rng: np.random.Generator, rows: int, k: int) -> Array:
    """A single 1 in each row, at a k that walks over all of them."""
    array = np.zeros((rows, k), BF16)
    step = next(s for s in range(max(1, k // 3), 2 * k + 2) if np.gcd(s, k) == 1)
    array[np.arange(rows), (np.arange(rows) * step + int(rng.integers(k))) % k] = 1
    return array


def close(got: Array, exact: Array, magnitude: Array, relative: float) -> None:
    """Within rounding to the output's type, and of a sum in f32 of numbers of that magnitude."""
    worst = np.abs(got.astype(np.float64) - exact) - relative * np.abs(exact) - 2.0**-20 * magnitude
    assert (worst <= 0).all(), worst.max()
