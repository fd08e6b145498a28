"""A layer of a transformer: attention with grouped heads, and a gated feed-forward, in six launches.

The norm's weights are multiplied into the next projection beforehand, so that a norm is one factor a row: `scale_a` of
that projection. Both sums with the stream are residuals, and the gate is a Python epilogue; heads are a reshape.

    python examples/transformer_layer.py
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilekit
from tilekit.epilogue import silu

BATCH, TOKENS, WIDTH, HIDDEN = 2, 40, 128, 192
HEADS, KEY_HEADS, HEAD = 4, 2, 64
BF16 = ml_dtypes.bfloat16

Array = np.ndarray[Any, Any]


@tilekit.epilogue
def gated(x, gate):  # type: ignore[no-untyped-def]
    """The way up, times a function of the gate."""
    return x * silu(gate)


def factors(x: Array) -> Array:
    """What RMS norm multiplies each row by."""
    wide = x.astype(np.float32)
    return (np.mean(wide * wide, axis=-1) + 1e-5) ** -0.5


def layer(x: Array, weights: dict[str, Array]) -> Array:
    """Return the stream (tokens of all sequences, WIDTH) behind a layer."""
    qkv = tilekit.matmul(x, weights["qkv"], scale_a=factors(x))
    heads = qkv.reshape(BATCH, TOKENS, HEADS + 2 * KEY_HEADS, HEAD)
    q, k, v = np.split(heads, (HEADS, HEADS + KEY_HEADS), axis=2)  # views: nothing is copied
    seen = tilekit.attention(q, k, v, causal=True)
    x = tilekit.matmul(seen.reshape(len(x), HEADS * HEAD), weights["out"], residual=x)
    norm = factors(x)
    gate = tilekit.matmul(x, weights["gate"], scale_a=norm)
    # The factor of a row goes into the input of the way up: an epilogue of one's own stands in the place of scales.
    up = tilekit.matmul((x * norm[:, None]).astype(BF16), weights["up"], epilogue=gated(gate))
    return tilekit.matmul(up, weights["down"], residual=x)


def reference(x: Array, weights: dict[str, Array]) -> Array:
    """The same in float64."""
    x, weights = x.astype(np.float64), {name: weight.astype(np.float64) for name, weight in weights.items()}
    normed = x * factors(x)[:, None]
    heads = (normed @ weights["qkv"]).reshape(BATCH, TOKENS, HEADS + 2 * KEY_HEADS, HEAD)
    q, k, v = np.split(heads.transpose(0, 2, 1, 3), (HEADS, HEADS + KEY_HEADS), axis=1)
    k, v = (np.repeat(one, HEADS // KEY_HEADS, axis=1) for one in (k, v))
    scores = q @ k.swapaxes(2, 3) / HEAD**0.5
    scores[..., np.triu(np.ones((TOKENS, TOKENS), bool), 1)] = -np.inf
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    x = x + (shares @ v).transpose(0, 2, 1, 3).reshape(len(x), HEADS * HEAD) @ weights["out"]
    normed = x * factors(x)[:, None]
    gate = normed @ weights["gate"]
    return x + (gate / (1 + np.exp(-gate)) * (normed @ weights["up"])) @ weights["down"]


def main() -> None:
    """Run the layer on the emulator and compare."""
    rng = np.random.default_rng(0)
    shapes = {
        "qkv": (WIDTH, (HEADS + 2 * KEY_HEADS) * HEAD),
        "out": (HEADS * HEAD, WIDTH),
        "gate": (WIDTH, HIDDEN),
        "up": (WIDTH, HIDDEN),
        "down": (HIDDEN, WIDTH),
    }
    weights = {name: (rng.standard_normal(s) / s[0] ** 0.5).astype(BF16) for name, s in shapes.items()}
    x = rng.standard_normal((BATCH * TOKENS, WIDTH)).astype(BF16)
    found, expected = layer(x, weights).astype(np.float64), reference(x, weights)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    verdict = "right" if error < 1e-2 else "wrong"
    print(f"{len(found)} tokens of {WIDTH}: relative error {error:.1e}, {verdict}")


if __name__ == "__main__":
    main()
