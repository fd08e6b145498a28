"""Epilogues at random: functions of an element and of operands of every place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilekit.epilogue import language
from tilekit.epilogue.python import EpilogueCall, epilogue

EXACT: tuple[Callable[..., Any], ...] = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: np.maximum(x, y),
    lambda x, y: language.minimum(x, y),
    lambda x, y: np.where(x > y, x, -y),
    lambda x, y: np.where((x <= y) & (x != 0) | (y == 1), abs(x), y * 2),
    lambda x, y: 3 - x,
)
"""Of whole numbers, whole numbers."""

SMOOTH: tuple[Callable[..., Any], ...] = (
    *EXACT[:5],
    lambda x, y: language.tanh(x),
    lambda x, y: language.sigmoid(x) * y,
    lambda x, y: language.exp(language.minimum(x, 2.0)),
    lambda x, y: language.sqrt(abs(x)) - y,
    lambda x, y: x / (1 + abs(y)),
    lambda x, y: language.gelu(x),
    lambda x, y: language.gelu(x, approximate="none"),
    lambda x, y: language.silu(x),
    lambda x, y: language.log(1 + x * x),
    lambda x, y: language.rsqrt(2 + y * y),
    lambda x, y: (1 + abs(x)) ** 1.5,
    lambda x, y: language.relu(x) + language.erf(y),
)


def tree(
    seed: int, operations: tuple[Callable[..., Any], ...], *, m: int, n: int, batches: int = 0, most: float = 64
) -> EpilogueCall:
    """A function of five to ten operations, with operands of small whole numbers."""
    rng = np.random.default_rng(seed)
    shapes: list[tuple[int, ...]] = [(m, n), (n,), (m, 1), (1, n), (1,)]
    if batches:
        shapes += [(batches, m, n), (batches, 1, n), (batches, m, 1)]
    places = [shapes[place] for place in rng.integers(len(shapes), size=rng.integers(1, 5))]
    types = rng.choice(np.array(["f4", "f2"]), size=len(places))
    operands: list[Any] = [rng.integers(-3, 4, shape).astype(kind) for shape, kind in zip(places, types, strict=True)]
    operands.append(float(rng.integers(-3, 4)))
    picks = [
        (operations[rng.integers(len(operations))], int(rng.integers(1 << 16)), int(rng.integers(1 << 16)))
        for _ in range(rng.integers(5, 10))
    ]

    def function(x, a=0.0, b=0.0, c=0.0, d=0.0, e=0.0):  # type: ignore[no-untyped-def]
        values = [x, a, b, c, d, e][: len(operands) + 1]
        for operation, first, second in picks:
            found = operation(values[first % len(values)], values[second % len(values)])
            values.append(language.clip(found, -most, most))
        return values[-1] + x

    return epilogue(function)(*operands)
