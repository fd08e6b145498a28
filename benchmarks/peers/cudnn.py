"""cuDNN's convolutions through torch, channels last, with the algorithm that `cudnn.benchmark` finds quickest."""

from __future__ import annotations

import torch

from tilekit.bench.conv2d import Filtered, images
from tilekit.bench.entrants import Entrant
from tilekit.errors import ArgumentError


def launch(x: torch.Tensor, w: torch.Tensor, filtered: Filtered, out: torch.Tensor) -> None:
    """Enqueue the convolution into `out`; the first call of a shape measures the algorithms."""
    if filtered.fused.bias is not None or filtered.fused.activation is not None:
        # cudnn_convolution_relu and cudnn_convolution_add_relu return new tensors, and their overloads for an output
        # copy from these (native_functions.yaml: autogen): the copy would be timed with it. Without a bias they fill
        # one with zeros (ConvShared.cpp), which would be timed too.
        legal = "None: torch has no call that fuses it and writes where it is told"
        raise ArgumentError.of("activation", filtered.fused.activation, legal=legal, code="TK-BENCH-001")
    how, groups = filtered.how, filtered.how["groups"]
    torch.ops.aten.cudnn_convolution.out(
        images(x), images(w), how["padding"], how["stride"], how["dilation"], groups, True, False, True, out=images(out)
    )


ENTRANTS = [Entrant("cuDNN", launch, "conv2d")]
ABOUT = {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
