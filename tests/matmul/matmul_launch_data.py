"""What a launch's arrays hold: small integers, or values that tell their place; and what must come out, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.matmul.matmul_data import coded, picking
from tests.matmul.matmul_reference import activate
from tilekit import MatmulSpec
from tilekit.dtypes import DType

Array = NDArray[Any]

KINDS = ("integers", "coded_a", "coded_b", "coded_residual")
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

    def tells(shape: tuple[int, ...], dtype: DType) -> Array:
        return coded(shape, dtype, spec.out_dtype, rng, positive=f.activation is not None)

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
    elif kind == "coded_a":
        a, b = tells(a_shape, spec.a_dtype), picking(b_shape, -1, spec.b_dtype, rng)
    elif kind == "coded_b":
        a, b = picking(a_shape, -2, spec.a_dtype, rng), tells(b_shape, spec.b_dtype)
    else:
        assert f.residual is not None
        a, b = np.zeros(a_shape), np.zeros(b_shape)
        residual = tells(out_shape, f.residual)
    a, b = a.astype(a_type), b.astype(b_type)
    bias = bias.astype(f.bias.numpy) if bias is not None and f.bias is not None else None
    residual = residual.astype(f.residual.numpy) if residual is not None and f.residual is not None else None
    x = np.matmul(a.astype(np.float64), b.astype(np.float64)) * scale
    for term, factor in ((bias, 1.0), (residual, beta)):
        if term is not None:
            x = x + factor * term.astype(np.float64)
    expected = _rounded(activate(x, f.activation), spec.out_dtype)
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
