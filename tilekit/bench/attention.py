"""Attention to run: queries, keys and values of heads, and what float64 makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilekit.bench.workload import Accuracy
from tilekit.dtypes import BF16, F16, DType
from tilekit.errors import ArgumentError

__all__ = ["AttentionOperands", "AttentionWorkload"]

_Array = np.ndarray[Any, Any]

_TANH: Final = 2.0**-10
"""Error of a capped score over its cap: tanh to 11 bits, and the product around it."""

_MOST: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class AttentionOperands:
    """The arrays of one call."""

    q: Any
    k: Any
    v: Any


@dataclass(frozen=True, slots=True)
class AttentionWorkload:
    """Queries (B, Sq, H, D) that attend to keys and values (B, Sk, Hk, D).

    Attributes
    ----------
    batch, queries, keys, heads, kv_heads, head_dim : int
    dtype : DType
        bf16 or f16, of all arrays.
    causal, window, softcap
        As `tilekit.attention` takes them.
    """

    residual: ClassVar[bool] = False
    bias: ClassVar[bool] = False

    batch: int = 1
    queries: int = 256
    keys: int = 256
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 64
    dtype: DType = BF16
    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    softcap: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "queries", "keys", "heads", "kv_heads", "head_dim"):
            extent = getattr(self, name)
            if not 1 <= extent <= _MOST:
                raise ArgumentError.of(
                    f"--{name.replace('_', '-')}",
                    extent,
                    legal=f"a whole number from 1 on, {_MOST} at most",
                    nearest=min(max(extent, 1), _MOST),
                    code="TK-BENCH-001",
                )
        if self.dtype not in (BF16, F16):
            raise ArgumentError.of("--dtype", self.dtype.name, legal="bf16, f16", nearest="bf16", code="TK-ATT-001")

    @property
    def label(self) -> str:
        """Extents in a few words."""
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        return f"{self.batch}x{self.queries}x{self.keys}, {heads} heads of {self.head_dim}"

    @property
    def kind(self) -> str:
        """The type and what masks there are."""
        window = "" if self.window is None else f" window {self.window[0]},{self.window[1]}"
        cap = "" if self.softcap is None else f" softcap {self.softcap:g}"
        return f"{self.dtype}{' causal' if self.causal else ''}{window}{cap}"

    @property
    def flops(self) -> int:
        """Multiplications and additions of all scores, those that a mask hides too."""
        return 4 * self.batch * self.heads * self.queries * self.keys * self.head_dim

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result, and of one head's scores, which the check holds in float64."""
        heads = 2 * self.heads * self.queries + 2 * self.kv_heads * self.keys
        return self.dtype.bytes * self.batch * heads * self.head_dim + 2 * self.queries * self.keys

    @property
    def out_shape(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        return self.batch, self.queries, self.heads, self.head_dim

    @property
    def out_dtype(self) -> DType:
        """Of the result."""
        return self.dtype

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """Of queries, keys and values."""
        own = self.batch, self.keys, self.kv_heads, self.head_dim
        return self.out_shape, own, own

    @property
    def layouts(self) -> AttentionOperands:
        """Operands as they lie in memory that does not exist."""
        from tilekit.arrays import ArrayView

        def view(shape: tuple[int, int, int, int]) -> ArrayView:
            _, positions, heads, elements = shape
            strides = (positions * heads * elements, heads * elements, elements, 1)
            return ArrayView(0, shape, strides, self.dtype, "cpu", "numpy", None)

        return AttentionOperands(*map(view, self.shapes))

    def operands(self, seed: int, place: Callable[[_Array], Any] = lambda stored: stored) -> AttentionOperands:
        """Return standard normal operands."""
        random = np.random.default_rng(seed)
        normal = (random.standard_normal(shape, dtype=np.float32).astype(self.dtype.numpy) for shape in self.shapes)
        return AttentionOperands(*map(place, normal))

    def call(self, operands: AttentionOperands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.attention` is called with."""
        options = {"causal": self.causal, "window": self.window, "softcap": self.softcap}
        return operands.q, operands.k, {"v": operands.v, **options}

    def placed(self, out: Any) -> Any:
        """An output as a call takes it."""
        return out

    def accuracy(self, operands: AttentionOperands, out: _Array) -> Accuracy:
        """Compare an answer with float64, each element against what rounding of weights and result may cost it."""
        unit = self.dtype.epsilon
        spread = 0.0 if self.softcap is None else 2 * _TANH * self.softcap
        squares = total = largest = worst = 0.0
        seen = self._seen()
        for batch in range(self.batch):
            for head in range(self.heads):
                own = head * self.kv_heads // self.heads
                q = operands.q[batch, :, head].astype(np.float64)
                k, v = (one[batch, :, own].astype(np.float64) for one in (operands.k, operands.v))
                weights = self._weights(q @ k.T, seen)
                expected = weights @ v
                limit = (2 * unit + spread) * (weights @ np.abs(v)) + unit * np.abs(expected) + 1e-30
                difference = out[batch, :, head].astype(np.float64) - expected
                squares += float(np.sum(difference**2))
                total += float(np.sum(expected**2))
                largest = float(np.maximum(largest, np.max(np.abs(difference))))  # NaN stays
                worst = float(np.maximum(worst, np.max(np.abs(difference) / limit)))
        return Accuracy(relative=float(np.sqrt(squares / total if total else squares)), largest=largest, worst=worst)

    def _seen(self) -> _Array:
        """Which keys a query sees."""
        left, right = self.window or (None, None)
        if self.causal:
            right = 0 if right is None else min(0, right)
        apart = np.arange(self.keys)[None] - np.arange(self.queries)[:, None] - (self.keys - self.queries)
        seen: _Array = np.ones((self.queries, self.keys), bool)
        if right is not None:
            seen &= apart <= right
        if left is not None:
            seen &= apart >= -left
        return seen

    def _weights(self, products: _Array, seen: _Array) -> _Array:
        """The softmax of scores; a row that sees nothing is 0."""
        scores = products * self.head_dim**-0.5
        if self.softcap is not None:
            scores = self.softcap * np.tanh(scores / self.softcap)
        scores = np.where(seen, scores, -np.inf)
        most = scores.max(-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isinf(most), 0.0, most))
        sums = weights.sum(-1, keepdims=True)
        normal: _Array = weights / np.where(sums > 0, sums, 1.0)
        return normal
