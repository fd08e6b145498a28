"""A torch linear layer on tilekit, with bias and gelu fused into the epilogue, in eager mode and compiled.

With CUDA tensors the layer is one kernel in the current stream; without a GPU, CPU tensors go through the emulator.
"""

from __future__ import annotations

import torch

import tilekit.torch


class GeluLinear(torch.nn.Module):
    """``gelu(x @ weight.T + bias)`` for inference; the gelu is the tanh form."""

    def __init__(self, inputs: int, outputs: int, *, device: str) -> None:
        super().__init__()
        options = {"dtype": torch.bfloat16, "device": device, "requires_grad": False}
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs, **options) / inputs**0.5, requires_grad=False)
        self.bias = torch.nn.Parameter(torch.randn(outputs, **options), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs) to (..., outputs). The weight is read where it lies, as the transposed operand."""
        return tilekit.torch.linear(x, self.weight, self.bias, "gelu")


def main() -> None:
    """Run a layer and compare it with torch."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = GeluLinear(256, 512, device=device)
    x = torch.randn(2, 100, 256, dtype=torch.bfloat16, device=device)
    with torch.inference_mode():
        y = layer(x)
        # One graph, whichever backend makes code of it; this one needs no C++ compiler.
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), y)
        expected = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
        expected = torch.nn.functional.gelu(expected, approximate="tanh")
    torch.testing.assert_close(y.double(), expected, rtol=2**-8, atol=2**-8)
    print(f"{tuple(y.shape)} {y.dtype} on {y.device.type}, right; compiled, the same")


if __name__ == "__main__":
    main()
