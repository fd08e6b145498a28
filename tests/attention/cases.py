"""Generated calls of attention, and what float64 makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


@dataclass(frozen=True)
class Case:
    """Extents and options of a call."""

    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    elements: int
    value_elements: int
    dtype: str = "bf16"
    options: dict[str, Any] = field(default_factory=dict)

    def arrays(self, seed: int = 0) -> tuple[Any, Any, Any]:
        """Standard normal operands."""
        random = np.random.default_rng(seed)

        def normal(*shape: int) -> Any:
            return random.standard_normal(shape, dtype=np.float32).astype(TYPES[self.dtype])

        return (
            normal(self.batch, self.queries, self.heads, self.elements),
            normal(self.batch, self.keys, self.kv_heads, self.elements),
            normal(self.batch, self.keys, self.kv_heads, self.value_elements),
        )


def generated(count: int, *, seed: int, longest: int) -> list[Case]:
    """Cases of every kind: head dims, ratios of heads, ragged lengths, masks, caps."""
    random = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        elements = int(random.choice([64, 128, 96, 192, 256, 8 * random.integers(1, 33)]))
        value = elements if random.random() < 0.8 else int(random.choice([64, 128, 8 * random.integers(1, 17)]))
        kv_heads = int(random.choice([1, 2, 3]))
        options: dict[str, Any] = {}
        if random.random() < 0.5:
            options["causal"] = True
        elif random.random() < 0.5:
            left, right = (int(n) for n in random.integers(0, longest, 2))
            options["window"] = [(left, right), (left, None), (None, right), (-3, left + 3)][random.integers(4)]
        if random.random() < 0.3:
            options["scale"] = float(random.choice([0.02, 0.5, 1.0]))
        if random.random() < 0.2:
            options["softcap"] = float(random.choice([5.0, 30.0]))
        lengths = [int(random.choice([1, 64, 128, random.integers(1, longest)])) for _ in range(2)]
        if random.random() < 0.4:
            lengths[1] = lengths[0]
        dtype = str(random.choice(["bf16", "f16"]))
        group = int(random.choice([1, 1, 2, 4]))
        batch = int(random.choice([1, 2]))
        cases.append(Case(batch, *lengths, group * kv_heads, kv_heads, elements, value, dtype, options))
    return cases


def expected(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    xp: Any = np,
) -> tuple[Any, Any]:
    """Output and logarithms of the sums, in float64; `xp` is the library of the arrays, NumPy or CuPy."""
    q, k, v = (x.astype(xp.float64) for x in (q, k, v))
    queries, heads, elements = q.shape[1:]
    keys, group = k.shape[1], heads // k.shape[2]
    k, v = xp.repeat(k, group, axis=2), xp.repeat(v, group, axis=2)
    scores = q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1) * (scale or elements**-0.5)
    if softcap is not None:
        scores = softcap * xp.tanh(scores / softcap)
    left, right = window or (None, None)
    if causal:
        right = 0 if right is None else min(0, right)
    apart = xp.arange(keys)[None] - xp.arange(queries)[:, None] - (keys - queries)
    seen = xp.ones((queries, keys), bool)
    if right is not None:
        seen &= apart <= right
    if left is not None:
        seen &= apart >= -left
    scores = xp.where(seen, scores, -xp.inf)
    most = scores.max(-1, keepdims=True, initial=-xp.inf) if xp is np else scores.max(-1, keepdims=True)
    most = xp.where(xp.isinf(most), 0.0, most)
    weights = xp.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    out = (weights / xp.where(total > 0, total, 1.0)) @ v.transpose(0, 2, 1, 3)
    logs = xp.where(total > 0, xp.log(xp.where(total > 0, total, 1.0)) + most, -xp.inf)
    return out.transpose(0, 2, 1, 3), logs[..., 0]


def worst(out: Any, reference: Any, v: Any, dtype: str, xp: Any = np) -> float:
    """The largest error of an element in units of what rounding weights and results may cost.

    Weights are rounded to the operands' type, results too: each costs half a unit in the last place of something no
    larger than the values of the head.
    """
    unit = 2.0 ** (-8 if dtype == "bf16" else -11)
    most = xp.abs(v.astype(xp.float64)).max() if v.size else 1.0
    return float(xp.abs(out.astype(xp.float64) - reference).max() / (unit * most)) if out.size else 0.0
