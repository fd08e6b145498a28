"""An expert layer with scales of blocks, as DeepSeek has: dispatch, gate and up, silu and product, down, combine.

Weights are e4m3 with a scale for 128x128 elements, activations with one for 1x128, made for each layer's input. Rows of
an expert lie behind each other, and their scales along K, so `tilekit.grouped_matmul` takes both as they are: what a
tensor core adds are 128 products, and the rest is f32.

    python examples/deepseek_experts.py
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilekit

TOKENS, EXPERTS, CHOSEN = 96, 4, 2
WIDTH, HIDDEN, BLOCK = 384, 256, 128
E4M3 = ml_dtypes.float8_e4m3fn
LARGEST = 448.0

Array = np.ndarray[Any, Any]


def quantise_rows(rows: Array) -> tuple[Array, Array]:
    """Return e4m3 elements and scales of 1x128 of them; rows of scales lie behind each other, as a ring is filled."""
    blocks = rows.astype(np.float32).reshape(*rows.shape[:-1], -1, BLOCK)
    scales = np.maximum(abs(blocks).max(-1), 1e-12) / LARGEST
    small = (blocks / scales[..., None]).reshape(rows.shape).astype(E4M3)
    padded = np.zeros((scales.shape[-1], -(-len(rows) // 4) * 4), np.float32)  # lines of whole 16 bytes
    padded[:, : len(rows)] = scales.T
    return small, padded.T[: len(rows)]


def quantise_blocks(weights: Array) -> tuple[Array, Array]:
    """Return e4m3 elements of (EXPERTS, N, K) and scales of 128x128 of them."""
    experts, n, k = weights.shape
    blocks = weights.astype(np.float32).reshape(experts, n // BLOCK, BLOCK, k // BLOCK, BLOCK)
    scales = np.maximum(abs(blocks).max((2, 4)), 1e-12) / LARGEST
    return (blocks / scales[:, :, None, :, None]).reshape(weights.shape).astype(E4M3), scales.astype(np.float32)


def product(rows: Array, weights: tuple[Array, Array], ends: Array, out_dtype: str) -> Array:
    """Return the rows of each expert times its weights, both with their scales."""
    small, scales = quantise_rows(rows)
    made: Array = tilekit.grouped_matmul(
        small, weights[0].transpose(0, 2, 1), ends, scale_a=scales, scale_b=weights[1], out_dtype=out_dtype
    )
    return made


def experts(tokens: Array, chosen: Array, shares: Array, gate_up: Any, down: Any) -> Array:
    """Return the sum of what each token's experts make of it, by their shares."""
    order = np.argsort(chosen.reshape(-1), kind="stable")
    source = order // CHOSEN
    ends = np.cumsum(np.bincount(chosen.reshape(-1), minlength=EXPERTS)).astype(np.int32)
    both = product(tokens[source], gate_up, ends, "f32")
    gate, up = both[:, :HIDDEN], both[:, HIDDEN:]
    made = product(gate / (1 + np.exp(-gate)) * up, down, ends, "f32")
    result = np.zeros(tokens.shape, np.float32)
    np.add.at(result, source, made * shares.reshape(-1)[order, None])
    return result


def expected(tokens: Array, chosen: Array, shares: Array, gate_up: Array, down: Array) -> Array:
    """The same in float64, token by token, with the weights before they were quantised."""
    result = np.zeros(tokens.shape)
    for row, token in enumerate(tokens.astype(np.float64)):
        for expert, share in zip(chosen[row], shares[row], strict=True):
            gate, up = np.split(gate_up[expert].astype(np.float64) @ token, 2)
            result[row] += share * (down[expert].astype(np.float64) @ (gate / (1 + np.exp(-gate)) * up))
    return result


def main() -> None:
    """Send random tokens to random experts, and compare with float64: what is left is what quantising costs."""
    random = np.random.default_rng(0)
    tokens = random.standard_normal((TOKENS, WIDTH)).astype(np.float32)
    gate_up = (random.standard_normal((EXPERTS, 2 * HIDDEN, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
    down = (random.standard_normal((EXPERTS, WIDTH, HIDDEN)) / np.sqrt(HIDDEN)).astype(np.float32)
    scores = random.standard_normal((TOKENS, EXPERTS))
    scores[:, 2] = -9.0  # an expert that no token asks for
    chosen = np.argsort(-scores, axis=1)[:, :CHOSEN]
    shares = np.full((TOKENS, CHOSEN), 1 / CHOSEN)
    found = experts(tokens, chosen, shares, quantise_blocks(gate_up), quantise_blocks(down))
    right = expected(tokens, chosen, shares, gate_up, down)
    error = float(np.linalg.norm(found - right) / np.linalg.norm(right))
    assert error < 0.08, error
    print(f"{TOKENS * CHOSEN} rows for {EXPERTS} experts in 2 launches, relative error {error:.1e}: right")


if __name__ == "__main__":
    main()
