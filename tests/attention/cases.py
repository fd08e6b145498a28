"""Generated calls of attention, and what float64 makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}

Entry: TypeAlias = tuple[Any, Any, Any]
"""Queries, keys and values of one batch entry or sequence: (position, head, element)."""


class Called(Protocol):
    """A case of whichever kind of call."""

    @property
    def dtype(self) -> str:
        """A key of `TYPES`."""

    @property
    def options(self) -> dict[str, Any]:
        """The call's options beside its arrays."""

    def call(self, seed: int = 0) -> tuple[dict[str, Any], list[Entry]]:
        """The call's arrays by name, and each entry's queries, keys and values as they would lie alone."""

    def outputs(self) -> tuple[Any, Any]:
        """Poisoned ones, and of logarithms."""

    def split(self, out: Any, lse: Any) -> list[tuple[Any, Any]]:
        """Each entry's part of the outputs."""


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

    def call(self, seed: int = 0) -> tuple[dict[str, Any], list[Entry]]:
        """The call's arrays by name, and those of each entry of the batch."""
        arrays = self.arrays(seed)
        return dict(zip("qkv", arrays, strict=True)), list(zip(*arrays, strict=True))

    def outputs(self) -> tuple[Any, Any]:
        """Poisoned ones."""
        out = np.full((self.batch, self.queries, self.heads, self.value_elements), np.nan, TYPES[self.dtype])
        return out, np.full((self.batch, self.heads, self.queries), np.nan, np.float32)

    def split(self, out: Any, lse: Any) -> list[tuple[Any, Any]]:
        """Each entry's part of the outputs."""
        return list(zip(out, lse, strict=True))


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


def largest_errors(case: Called, alone: list[Entry], out: Any, lse: Any) -> tuple[float, float]:
    """The largest errors of output, in units of rounding, and of logarithms; infinite for what is no number."""
    most, wrong = 0.0, 0.0
    for (q, k, v), (own, sums) in zip(alone, case.split(out, lse), strict=True):
        reference, logs = expected(q[None], k[None], v[None], **case.options)
        finite = np.isfinite(logs[0])
        if np.isnan(own.astype(np.float32)).any() or (np.isneginf(sums) == finite).any() or np.isnan(sums).any():
            return np.inf, np.inf
        most = max(most, worst(own[None], reference, v, case.dtype))
        wrong = max(wrong, float(np.abs(sums[finite] - logs[0][finite]).max(initial=0.0)))
    return most, wrong


def worst(out: Any, reference: Any, v: Any, dtype: str, xp: Any = np) -> float:
    """The largest error of an element in units of what rounding weights and results may cost.

    Weights are rounded to the operands' type, results too: each costs half a unit in the last place of something no
    larger than the values of the head.
    """
    unit = 2.0 ** (-8 if dtype == "bf16" else -11)
    most = xp.abs(v.astype(xp.float64)).max() if v.size else 1.0
    return float(xp.abs(out.astype(xp.float64) - reference).max() / (unit * most)) if out.size else 0.0
