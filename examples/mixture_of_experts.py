"""A mixture of experts: each token through the experts that a router chose for it, two launches for all of them.

Tokens are sorted by expert, so that those of an expert are rows behind each other; `tilekit.grouped_matmul` multiplies
every group of rows with its own matrix. Where the groups end is data, which stays on the GPU: the host
does not wait for it.

    python examples/mixture_of_experts.py
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilekit

TOKENS, EXPERTS, CHOSEN = 192, 6, 2
WIDTH, HIDDEN = 128, 256
BF16 = ml_dtypes.bfloat16

Array = np.ndarray[Any, Any]


def experts(tokens: Array, router: Array, up: Array, down: Array) -> Array:
    """Return the weighted sum of what each token's experts make of it.

    Parameters
    ----------
    tokens
        (TOKENS, WIDTH), bf16.
    router
        (WIDTH, EXPERTS), f32.
    up, down
        (EXPERTS, WIDTH, HIDDEN) and (EXPERTS, HIDDEN, WIDTH), bf16.
    """
    scores = tokens.astype(np.float32) @ router
    chosen = np.argsort(-scores, axis=1)[:, :CHOSEN]
    weights = np.take_along_axis(scores, chosen, axis=1)
    weights = np.exp(weights) / np.exp(weights).sum(axis=1, keepdims=True)

    # Row i of `routed` is a copy of token `source[i]`; those of an expert lie behind each other.
    order = np.argsort(chosen.reshape(-1), kind="stable")
    source = order // CHOSEN
    routed = np.ascontiguousarray(tokens[source])
    ends = np.cumsum(np.bincount(chosen.reshape(-1), minlength=EXPERTS)).astype(np.int32)

    hidden = tilekit.grouped_matmul(routed, up, ends, activation="silu")
    made = tilekit.grouped_matmul(hidden, down, ends, out_dtype="f32")

    result = np.zeros(tokens.shape, np.float32)
    np.add.at(result, source, made * weights.reshape(-1)[order, None])
    return result


def expected(tokens: Array, router: Array, up: Array, down: Array) -> Array:
    """The same, token by token in float64; the hidden layer is rounded to bf16 as between the launches."""
    result = np.zeros(tokens.shape)
    for row, token in enumerate(tokens.astype(np.float64)):
        scores = (tokens[row].astype(np.float32) @ router).astype(np.float64)
        best = np.argsort(-scores)[:CHOSEN]
        weights = np.exp(scores[best]) / np.exp(scores[best]).sum()
        for expert, weight in zip(best, weights, strict=True):
            hidden = token @ up[expert].astype(np.float64)
            hidden = (hidden / (1 + np.exp(-hidden))).astype(BF16).astype(np.float64)
            result[row] += weight * (hidden @ down[expert].astype(np.float64))
    return result


def main() -> None:
    """Route random tokens, and compare every element with float64."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return (random.standard_normal(shape) / np.sqrt(shape[-2])).astype(BF16)

    tokens = random.standard_normal((TOKENS, WIDTH)).astype(BF16)
    router = random.standard_normal((WIDTH, EXPERTS)).astype(np.float32) / np.sqrt(WIDTH, dtype=np.float32)
    layers = normal(EXPERTS, WIDTH, HIDDEN), normal(EXPERTS, HIDDEN, WIDTH)
    found, right = experts(tokens, router, *layers), expected(tokens, router, *layers)
    error = float(np.linalg.norm(found - right) / np.linalg.norm(right))
    assert error < 5e-3, error
    rows = TOKENS * CHOSEN
    print(f"{rows} rows for {EXPERTS} experts in 2 launches, relative error {error:.1e}: right")


if __name__ == "__main__":
    main()
