"""What a launch's arrays hold: small integers, or values that tell their place; and what must come out, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilekit import MatmulSpec
from tilekit.dtypes import DType, as_dtype

Array = NDArray[Any]

KINDS = ("integers", "coded a", "coded b", "coded residual")
"""Small integers; or one operand whose values tell their place, of which the others pick one for each output."""


@dataclass(frozen=True)
class Inputs:
    """Host arrays of a problem, C-ordered, its numbers, and the result."""

    a: Array
    b: Array
    bias: Array | None
    residual: Array | None
    scale: float
    beta: float
    expected: Array


def inputs_of(
    spec: MatmulSpec, m: int, n: int, k: int, batches: tuple[int | None, int | None], kind: str, seed: int
) -> Inputs:
    """The inputs of one problem; `batches` of A and of B, None without that dimension."""
    rng = np.random.default_rng((KINDS.index(kind), seed, m, n, k))
    f = spec.functions
    a_shape, b_shape = (tuple(x for x in (batches[i], *s) if x is not None) for i, s in enumerate(((m, k), (k, n))))
    given = [x for x in batches if x is not None]
    out_shape = (max(given), m, n) if given else (m, n)
    a_type, b_type = spec.a_dtype.numpy, spec.b_dtype.numpy
    bias: Array | None = np.zeros(n) if f.bias else None
    residual: Array | None = np.zeros(out_shape) if f.residual else None
    scale = beta = 1.0
    if kind == "integers":
        # Sums stay below 2^11, where f16 and f32 know every integer, and a half of every one.
        most = max(1, min(3, int((1024 / max(k, 1)) ** 0.5)))
        a, b = (rng.integers(-most, most, s, np.int8, endpoint=True) for s in (a_shape, b_shape))
        scale = float(rng.choice([-0.5, 0.5, 2.0])) if f.scale else 1.0
        beta = float(rng.choice([-1.0, 0.5, 2.0]))
        if bias is not None:
            bias = rng.integers(-8, 9, n)
        if residual is not None:
            residual = rng.integers(-16, 17, out_shape)
    elif kind == "coded a":
        a, b = _coded(rng, a_shape, spec.a_dtype, spec), _picking(rng, b_shape, axis=-2)
    elif kind == "coded b":
        a, b = _picking(rng, a_shape, axis=-1), _coded(rng, b_shape, spec.b_dtype, spec)
    else:
        assert f.residual is not None
        a, b = np.zeros(a_shape), np.zeros(b_shape)
        residual = _coded(rng, out_shape, f.residual, spec)
    a, b = a.astype(a_type), b.astype(b_type)
    bias = bias.astype(f.bias.numpy) if bias is not None and f.bias is not None else None
    residual = residual.astype(f.residual.numpy) if residual is not None and f.residual is not None else None
    x = np.matmul(a.astype(np.float64), b.astype(np.float64)) * scale
    for term, factor in ((bias, 1.0), (residual, beta)):
        if term is not None:
            x = x + factor * term.astype(np.float64)
    expected = _rounded(_activate(x, f.activation), spec.out_dtype)
    return Inputs(a, b, bias, residual, scale, beta, expected)


def kinds_of(spec: MatmulSpec) -> tuple[str, ...]:
    """The kinds of inputs that a spec has."""
    return KINDS if spec.functions.residual is not None else KINDS[:-1]


def wrong(out: Array, expected: Array, activation: str | None) -> str:
    """What differs between a result and what must come out; empty if nothing does.

    Bit for bit, but for the two activations that the kernel approximates.
    """
    found, right = out.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        if activation in ("gelu", "silu"):
            same = np.abs(found - right) <= 2**-6 * np.abs(right) + 2**-10
        else:
            same = found == right
    if same.all():
        return ""
    places = np.argwhere(~same)
    first = tuple(int(x) for x in places[0])
    return f"{len(places)} of {same.size} elements are wrong, first at {first}: {found[first]} for {right[first]}"


def _rounded(x: Array, dtype: DType) -> Array:
    """The nearest values of a type; 8-bit ones have no infinity to give for what is too large."""
    if dtype.bits == 8:
        largest = float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]
        x = np.clip(x, -largest, largest)
    return x.astype(np.float32).astype(dtype.numpy)


@cache
def _table(a: DType, out: DType, positive: bool) -> Array:
    """Values of one type that the output's type has too, each once; without 0."""
    narrow = a if a.bits <= 16 else out if out.bits <= 16 else as_dtype("bf16")
    every = np.arange(1 << narrow.bits, dtype=np.dtype(f"u{narrow.bytes}")).view(narrow.numpy)
    with np.errstate(all="ignore"):
        values = every.astype(np.float64)
        there = values.astype(np.float32).astype(out.numpy).astype(np.float64)
        here = values.astype(np.float32).astype(a.numpy).astype(np.float64)
    # Below the smallest normal number of f16 the tensor core would have to keep what few formats have.
    kept = np.isfinite(values) & (there == values) & (here == values) & (np.abs(values) >= 2.0**-14)
    kept &= np.abs(values) < 2.0**15
    return np.unique(values[kept & (values > 0) if positive else kept])


def _coded(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, spec: MatmulSpec) -> Array:
    """Along each axis the type's values take their turns, by a step of the axis's own."""
    table = rng.permutation(_table(dtype, spec.out_dtype, spec.functions.activation is not None))
    place = np.zeros(shape, np.int64)
    for axis, extent in enumerate(shape):
        first = 1 if axis == len(shape) - 1 else int(rng.integers(2, len(table)))
        step = next(s for s in range(first, 2 * len(table)) if gcd(s, len(table)) == 1)
        place += (np.arange(extent) * step).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return table[place % len(table)]


def _picking(rng: np.random.Generator, shape: tuple[int, ...], *, axis: int) -> Array:
    """A single 1 along `axis` (K), at a place that walks over all of them as the other index grows."""
    lines, k = shape[-3 - axis], shape[axis]
    array = np.zeros(shape)
    if k == 0:
        return array
    step = next(s for s in range(int(rng.integers(1, k + 1)), 2 * k + 2) if gcd(s, k) == 1)
    for matrix in array.reshape(-1, *shape[-2:]):
        places = (np.arange(lines) * step + int(rng.integers(k))) % k
        if axis == -2:
            matrix[places, np.arange(lines)] = 1
        else:
            matrix[np.arange(lines), places] = 1
    return array


def _activate(x: Array, activation: str | None) -> Array:
    y = x
    match activation:
        case "relu":
            y = np.maximum(x, 0)
        case "gelu":
            y = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        case "silu":
            y = x / (1 + np.exp(-x))
    return y
