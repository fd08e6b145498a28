"""A linear layer in MXFP8, MXFP4 and NVFP4: what a scale for every few numbers costs and keeps.

Weights are quantised, and their scales laid out as the tensor core reads them, once; tokens at each call. Of two layers
behind each other the first one's result leaves its kernel in the format of the second one's tokens, with its scales.

    python examples/scaled_linear.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilekit

TOKENS, INPUTS, OUTPUTS = 96, 256, 192

Array = np.ndarray[Any, Any]


class ScaledLinear:
    """y = x W^T + bias with both operands in a block-scaled format, for chips whose tensor cores take scales."""

    def __init__(self, weights: Array, bias: Array, to: str) -> None:
        self.to, self.bias = to, bias
        self.weights, scales, self.scale = tilekit.quantise(weights, to)
        self.scales = tilekit.lay_out_scales(scales)

    def __call__(self, tokens: Array) -> Array:
        """Multiply in the format, add the bias, and return f32."""
        values, scales, scale = tilekit.quantise(tokens, self.to)
        y: Array = self.of_quantised(values, scales, scale, out_dtype="f32")
        return y

    def of_quantised(self, values: Array, scales: Array, scale: float = 1.0, **how: Any) -> Any:
        """The same of tokens that are in the format; `how` as `tilekit.scaled_matmul` takes it."""
        factor = scale * self.scale
        return tilekit.scaled_matmul(values, self.weights.T, scales, self.scales, scale=factor, bias=self.bias, **how)


def main() -> None:
    """Compare the formats where some inputs are far larger than the rest."""
    random = np.random.default_rng(0)
    tokens, weights = random.standard_normal((TOKENS, INPUTS)), random.standard_normal((OUTPUTS, INPUTS))
    tokens[:, ::64] *= 100
    bias = random.standard_normal(OUTPUTS).astype(np.float32)
    expected = tokens @ weights.T + bias
    errors = {}
    for to in ("mxfp8", "nvfp4", "mxfp4"):
        y = ScaledLinear(weights.astype(np.float32), bias, to)(tokens.astype(np.float32))
        errors[to] = float(np.linalg.norm(y - expected) / np.linalg.norm(expected))
    print(", ".join(f"{to} {error:.1%}" for to, error in errors.items()))
    assert errors["mxfp8"] < 0.06 < errors["nvfp4"] < errors["mxfp4"] < 0.25

    further = random.standard_normal((INPUTS, OUTPUTS))
    first = ScaledLinear(weights.astype(np.float32), bias, "mxfp8")
    second = ScaledLinear(further.astype(np.float32), np.zeros(INPUTS, np.float32), "mxfp8")
    values, scales, _ = tilekit.quantise(tokens.astype(np.float32), "mxfp8")
    hidden = first.of_quantised(values, scales, activation="relu", out_dtype="mxfp8", scale_layout="128x4")
    y = second.of_quantised(*hidden, out_dtype="f32")
    exact = np.maximum(expected, 0) @ further.T
    error = float(np.linalg.norm(y - exact) / np.linalg.norm(exact))
    print(f"two layers in mxfp8, nothing in between that is not: {error:.1%}")
    assert error < 0.1


if __name__ == "__main__":
    main()
