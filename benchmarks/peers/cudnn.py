"""cuDNN's convolutions and attention through torch.

Convolutions are channels last, with the algorithm that `cudnn.benchmark` finds quickest. What is fused takes its fused
graph, `cudnn_convolution_relu` and `cudnn_convolution_add_relu`, and gradients `convolution_backward`; attention is
torch's, held to cuDNN. These return new tensors, which are kept as long as a case lasts, so that each operand set has
its own as tilekit's has, and copied only for the check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tilekit.bench.attention import Masked
from tilekit.bench.conv2d import Filtered, images
from tilekit.bench.conv2d_gradients import Gradient
from tilekit.bench.entrants import Entrant
from tilekit.bench.machine import Machine
from tilekit.errors import ArgumentError

_results: dict[int, torch.Tensor] = {}
"""Of fused convolutions and of attention, by the address of the output that they belong to."""


def launch(x: torch.Tensor, w: torch.Tensor, filtered: Filtered, out: torch.Tensor) -> None:
    """Enqueue the convolution into `out`; the first call of a shape measures the algorithms."""
    how, groups = filtered.how, filtered.how["groups"]
    torch.ops.aten.cudnn_convolution.out(
        images(x), images(w), how["padding"], how["stride"], how["dilation"], groups, True, False, True, out=images(out)
    )


def launch_fused(x: torch.Tensor, w: torch.Tensor, filtered: Filtered, out: torch.Tensor) -> None:
    """Enqueue the convolution with bias and relu, with a residual where there is one."""
    fused, how = filtered.fused, filtered.how
    if fused.activation != "relu" or fused.bias is None:
        legal = "relu behind a bias, which torch has calls for"
        raise ArgumentError.of("activation", fused.activation, legal=legal, code="TK-BENCH-001")
    rest = fused.bias, how["stride"], how["padding"], how["dilation"], how["groups"]
    if filtered.residual is None:
        found = torch.ops.aten.cudnn_convolution_relu(images(x), images(w), *rest)
    else:
        added = images(filtered.residual)
        found = torch.ops.aten.cudnn_convolution_add_relu(images(x), images(w), added, 1.0, *rest)
    _results[out.data_ptr()] = found


def launch_gradient(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, gradient: Gradient, out: torch.Tensor) -> None:
    """Enqueue the gradient of images or of filters."""
    how, of_images = gradient.how, gradient.of == "images"
    rest = how["stride"], how["padding"], how["dilation"], False, (0, 0), how["groups"]
    found = torch.ops.aten.convolution_backward(
        images(dy), images(x), images(w), None, *rest, (of_images, not of_images, False)
    )
    _results[out.data_ptr()] = found[0 if of_images else 1]


def collect(*operands: Any) -> None:
    """Copy the latest result to the output."""
    images(operands[-1]).copy_(_results[operands[-1].data_ptr()])


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masked: Masked, out: torch.Tensor) -> None:
    """Enqueue the attention; its causal mask begins at the first key, tilekit's ends at the last."""
    if masked.window is not None or masked.softcap is not None:
        legal = "neither window nor soft cap, which torch has no argument for"
        raise ArgumentError.of("masked", masked, legal=legal, code="TK-BENCH-001")
    if masked.causal and q.shape[1] != k.shape[1]:
        legal = "as many keys as queries where it is causal"
        raise ArgumentError.of("k", tuple(k.shape), legal=legal, code="TK-BENCH-001")
    heads = (each.transpose(1, 2) for each in (q, k, v))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        found = torch.nn.functional.scaled_dot_product_attention(
            *heads, is_causal=masked.causal, enable_gqa=q.shape[2] != k.shape[2]
        )
    _results[out.data_ptr()] = found


def collect_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masked: Masked, out: torch.Tensor) -> None:
    """Copy the latest result to `out`."""
    out.copy_(_results[out.data_ptr()].transpose(1, 2))


def prepare(machine: Machine, sets: Sequence[tuple[Any, ...]]) -> None:
    """Forget the results of the case before; let the calls measure the algorithms, as the plain one is told to."""
    _results.clear()
    torch.backends.cudnn.benchmark = True


ENTRANTS = [
    Entrant("cuDNN", launch, "conv2d"),
    Entrant("cuDNN", launch_fused, "fused_conv2d", prepare=prepare, collect=collect),
    Entrant("cuDNN", attend, "attention", prepare=prepare, collect=collect_heads),
    Entrant("cuDNN", launch_gradient, "conv2d_gradient", prepare=prepare, collect=collect),
]
ABOUT = {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
