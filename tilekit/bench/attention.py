"""Attention to run: queries, keys and values of heads, and what float64 makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

import numpy as np

from tilekit.bench.accuracy import Accuracy
from tilekit.bench.views import layout
from tilekit.bench.workload import checked_rows, require_extent
from tilekit.dtypes import BF16, F16, DType
from tilekit.errors import ArgumentError

if TYPE_CHECKING:
    from tilekit.bench.machine import Machine
    from tilekit.kernels.attention.spec import AttentionSpec
    from tilekit.kernels.matmul.spec import Accumulation
    from tilekit.targets import ChipName

__all__ = ["AttentionOperands", "AttentionWorkload", "Masked"]

_Array = np.ndarray[Any, Any]

_Kind = TypeVar("_Kind", bound="AttentionWorkload")

_TANH: Final = 2.0**-10
"""Error of a capped score over its cap: tanh to 11 bits, and the product around it."""

_SHAPE: Final = re.compile(
    r"(\d{1,9})x(\d{1,10})(?:x(\d{1,10}))? h(\d{1,9})(?:/(\d{1,9}))? d(\d{1,9})(?:/(\d{1,9}))?"
    r"( causal)?(?: w(-?\d{1,9})?,(-?\d{1,9})?)?(?: c(\d{1,6}(?:\.\d{1,6})?))?"
)
_LEGAL: Final = (
    "BxQ or BxQxK (batch, queries, keys), then hH or hH/G (heads, heads of keys) and dD or dD/V (head dim, that of "
    "values); after these causal, wL,R (window) and cN (soft cap)"
)


@dataclass(frozen=True, slots=True)
class Masked:
    """Which keys a query sees, and what bounds scores, as `tilekit.attention` takes them."""

    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    softcap: float | None = None

    @property
    def keywords(self) -> dict[str, Any]:
        """By name."""
        return {"causal": self.causal, "window": self.window, "softcap": self.softcap}


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
    value_dim : int or None
        Elements of a head of values; None for as many as of keys.
    dtype : DType
        bf16 or f16, of all arrays.
    causal, window, softcap
        As `tilekit.attention` takes them.
    """

    residual: ClassVar[bool] = False
    bias: ClassVar[bool] = False
    family: ClassVar[str] = "attention"
    read: ClassVar[float] = 1.0
    accumulation: ClassVar[Accumulation] = "fast"

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
    value_dim: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "queries", "keys", "heads", "kv_heads", "head_dim", "value_dim"):
            extent = getattr(self, name)
            if extent is not None:
                require_extent(f"--{name.replace('_', '-')}", extent)
        if self.dtype not in (BF16, F16):
            raise ArgumentError.of("--dtype", self.dtype.name, legal="bf16, f16", nearest="bf16", code="TK-ATT-001")
        self.spec  # noqa: B018  refuses what `tilekit.attention` does, with its words

    @classmethod
    def parse(cls, shape: str, like: Self | None = None) -> Self:
        """Read ``4x4096 h32/8 d128 causal``; the type is taken from ``like``."""
        found = _SHAPE.fullmatch(shape)
        if found is None:
            raise ArgumentError.of(
                "shape", shape, legal=_LEGAL, nearest="4x4096 h32/8 d128 causal", code="TK-BENCH-001"
            )
        batch, queries, keys, heads, kv_heads, head_dim, value_dim, causal, left, right, cap = found.groups()
        first, last = (None if one is None else int(one) for one in (left, right))
        return replace(
            cls() if like is None else like,
            batch=int(batch),
            queries=int(queries),
            keys=int(keys or queries),
            heads=int(heads),
            kv_heads=int(kv_heads or heads),
            head_dim=int(head_dim),
            causal=causal is not None,
            window=(first, last) if " w" in shape else None,
            softcap=None if cap is None else float(cap),
            value_dim=None if value_dim is None else int(value_dim),
        )

    def turned_into(self, kind: type[_Kind], **others: Any) -> _Kind:
        """The same attention as another kind of workload, with other values of some fields."""
        own = {field.name: getattr(self, field.name) for field in fields(AttentionWorkload)}
        return kind(**own | others)

    @property
    def label(self) -> str:
        """The shape as :meth:`parse` reads it."""
        keys = "" if self.keys == self.queries else f"x{self.keys}"
        shared = "" if self.heads == self.kv_heads else f"/{self.kv_heads}"
        values = "" if self._values == self.head_dim else f"/{self._values}"
        words = [f"{self.batch}x{self.queries}{keys}", f"h{self.heads}{shared}", f"d{self.head_dim}{values}"]
        words += ["causal"] if self.causal else []
        if self.window is not None:
            words.append("w" + ",".join("" if bound is None else str(bound) for bound in self.window))
        return " ".join([*words, *([] if self.softcap is None else [f"c{self.softcap:g}"])])

    @property
    def kind(self) -> str:
        """The type."""
        return self.dtype.name

    @property
    def masked(self) -> Masked:
        """Which keys are seen, and what bounds scores."""
        return Masked(self.causal, self.window, self.softcap)

    @property
    def bits(self) -> int:
        """Of an element."""
        return self.dtype.bits

    @property
    def flops(self) -> int:
        """Multiplications and additions of the scores that are seen, and of their weights with the values."""
        return 2 * self.batch * self.heads * self._pairs * (self.head_dim + self._values)

    @property
    def _values(self) -> int:
        """Elements of a head of values."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def _pairs(self) -> int:
        """Of a query and a key that it sees, in a head."""
        least, most = self._bounds
        place = np.arange(self.queries, dtype=np.int64) + (self.keys - self.queries)
        first = np.zeros_like(place) if least is None else np.maximum(place + least, 0)
        last = np.full_like(place, self.keys - 1) if most is None else np.minimum(place + most, self.keys - 1)
        return int(np.maximum(last - first + 1, 0).sum())

    @property
    def _bounds(self) -> tuple[int | None, int | None]:
        """Of the distance from the diagonal to a key that is seen."""
        left, right = self.window or (None, None)
        if self.causal:
            right = 0 if right is None else min(0, right)
        return None if left is None else -left, right

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result, each counted once."""
        heads = self.heads * self.queries + self.kv_heads * self.keys
        return self.dtype.bytes * self.batch * heads * (self.head_dim + self._values)

    @property
    def score_bytes(self) -> int:
        """Bytes of one head's scores in the operands' type: :meth:`accuracy` holds them in float64."""
        return self.dtype.bytes * self.queries * self.keys

    @property
    def error_limit(self) -> float:
        """Largest relative (Frobenius) error of a right answer."""
        return self.dtype.epsilon + (0.0 if self.softcap is None else _TANH * self.softcap)

    @property
    def out_shape(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        return self.batch, self.queries, self.heads, self._values

    @property
    def out_dtype(self) -> DType:
        """Of the result."""
        return self.dtype

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """Of queries, keys and values."""
        own = self.batch, self.keys, self.kv_heads
        return (self.batch, self.queries, self.heads, self.head_dim), (*own, self.head_dim), (*own, self._values)

    @property
    def layouts(self) -> AttentionOperands:
        """Operands as they lie in memory that does not exist."""
        return AttentionOperands(*(layout(number, shape, self.dtype) for number, shape in enumerate(self.shapes)))

    @property
    def spec(self) -> AttentionSpec:
        """What computes it on the default chip."""
        from tilekit.targets import DEFAULT

        return self.spec_on(DEFAULT.name)

    def spec_on(self, target: ChipName) -> AttentionSpec:
        """What computes it on a chip."""
        from tilekit.kernels.attention.arguments import AttentionArguments

        q, k, options = self.call(self.layouts)
        out = layout(len(self.shapes), self.out_shape, self.dtype)
        return AttentionArguments.parse(q, k, **options, out=out, target=target).spec

    def operands(self, seed: int, place: Callable[[_Array], Any] = lambda stored: stored) -> AttentionOperands:
        """Return standard normal operands."""
        random = np.random.default_rng(seed)
        normal = (random.standard_normal(shape, dtype=np.float32).astype(self.dtype.numpy) for shape in self.shapes)
        return AttentionOperands(*map(place, normal))

    def call(self, operands: AttentionOperands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.attention` is called with."""
        return operands.q, operands.k, {"v": operands.v, **self.masked.keywords}

    def placed(self, out: Any) -> Any:
        """An output as a call takes it."""
        return out

    def operand_set(self, machine: Machine, seeds: Iterator[int]) -> tuple[Any, ...]:
        """Return standard normal operands on a machine: ``(q, k, v, masked, out)``."""
        arrays = [machine.normal(shape, self.dtype, next(seeds)) for shape in self.shapes]
        return *arrays, self.masked, machine.empty(self.out_shape, self.dtype)

    def pieces(self, operands: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
        """Return the products of all scores: (batch, head of keys, head of its group, ...)."""
        q, k, _, _, out = operands
        return [(self._grouped(q), self._shared(k).swapaxes(-1, -2), self._grouped(out))]

    def finished(self, machine: Machine, operands: Sequence[Any], product: Any) -> Any:
        """Return what becomes of scores: the mean of values, with their softmax as weights."""
        rows = np.arange(self.queries)[checked_rows(self.queries)]
        unseen = machine.upload(np.where(self._seen(rows), 0.0, -np.inf).astype(np.float32))
        return machine.product(
            machine.softmax(product * self.head_dim**-0.5, unseen, self.softcap), self._shared(operands[2])
        )

    def _grouped(self, array: Any) -> Any:
        """An array of heads of queries with the heads of a group behind those that they share."""
        heads = array.reshape(self.batch, self.queries, self.kv_heads, self.heads // self.kv_heads, -1)
        return heads.swapaxes(1, 2).swapaxes(2, 3)

    def _shared(self, array: Any) -> Any:
        """An array of heads of keys, each for all heads of its group."""
        return array.swapaxes(1, 2)[:, :, None]

    def kernel(self, target: ChipName, config: Any) -> Any:
        """The kernel that computes it with a config."""
        import tilekit

        return tilekit.compile(self.spec_on(target), target=target, config=config)

    def bind(self, kernel: Any, operands: Sequence[Any]) -> Any:
        """Prepare a launch of its kernel on one operand set."""
        q, k, v, masked, out = operands
        return kernel.bind(q, k, v, out=out, **masked.keywords)

    def accuracy(self, operands: AttentionOperands, out: _Array) -> Accuracy:
        """Compare an answer with float64, each element against what rounding of weights and result may cost it."""
        unit = self.dtype.epsilon
        spread = 0.0 if self.softcap is None else 2 * _TANH * self.softcap
        squares = total = largest = worst = 0.0
        seen = self._seen(np.arange(self.queries))
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

    def _seen(self, rows: _Array) -> _Array:
        """Which keys some queries see."""
        least, most = self._bounds
        apart = np.arange(self.keys)[None] - rows[:, None] - (self.keys - self.queries)
        seen: _Array = np.ones(apart.shape, bool)
        if most is not None:
            seen &= apart <= most
        if least is not None:
            seen &= apart >= least
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
