"""tilekit's convolutions by a warp's matrix instruction beside cuDNN's, on whatever GPU is here.

    python -m benchmarks.warp_conv2d                                  # every layer of the suite conv2d
    python -m benchmarks.warp_conv2d --shape "32x56x56x64 64x3x3 p1" --json layers.json

Text for sm_80 runs on every later GPU; cuDNN takes what it has for that GPU. Beside both stands the product of the same
M, N and K by the same text, whose A lies in memory: what it takes less is what it costs to look for pixels. Contestants
take turns in rounds, and the median round counts; each result is checked against cuDNN's before it is timed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.warp_matrix import milliseconds


def contestants(layer: Any, target: str) -> tuple[dict[str, Callable[[], None]], str]:
    """What computes a layer, checked, and the config that was picked."""
    import torch

    import tilekit
    from benchmarks.peers import cudnn
    from tilekit.bench.conv2d import Filtered, images
    from tilekit.bench.workload import Fused

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    x, w = normal(*layer.x), normal(*layer.w)
    out, expected = (torch.empty(layer.out_shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    peer = partial(cudnn.launch, x, w, Filtered(layer.how, Fused(None, None)), expected)
    peer()
    kernel: Any = tilekit.conv2d_kernel_for(images(x), images(w), target=target, **layer.how)
    plan = kernel.bind(images(x), images(w), images(out), **layer.how)
    out.fill_(math.nan)
    plan()
    terms = math.prod(layer.w[1:])
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=0.05 * terms**0.5)
    found: dict[str, Callable[[], None]] = {"tilekit": plan, "cuDNN": peer}
    if layer.groups == 1:
        a, b = normal(layer.m, terms), normal(layer.n, terms)
        flat = out.view(layer.m, layer.n)
        found["product"] = tilekit.kernel_for(a, b.T, target=target).bind(a, b.T, flat)
    return found, str(kernel.config)


def main(
    shape: Annotated[str, typer.Option(help="'NxHxWxC KxRxS s2 p1', several with commas; default: the suite.")] = "",
    target: Annotated[str, typer.Option(help="Chip that the text is for.")] = "sm_80",
    json_path: Annotated[Path | None, typer.Option("--json", help="Where to write what was measured.")] = None,
) -> None:
    """Time them, and print a table."""
    import torch

    from tilekit.bench.conv2d import ConvWorkload
    from tilekit.bench.layers import LAYERS

    torch.backends.cudnn.benchmark = True
    results, ratios, costs = [], [], []
    for layer in [ConvWorkload.parse(one) for one in shape.split(",")] if shape else LAYERS:
        ways, config = contestants(layer, target)
        times = milliseconds(ways)
        ratios.append(times["cuDNN"] / times["tilekit"])
        pace = layer.flops / 1e9
        line = f"{layer.label:>36}  {pace / times['tilekit']:6.0f} TFLOP/s  cuDNN {pace / times['cuDNN']:6.0f}"
        line += f"  ratio {ratios[-1]:.2f}"
        if "product" in times:
            costs.append(times["tilekit"] / times["product"])
            line += f"  of the product's time {costs[-1]:.2f}"
        print(f"{line}  ({config})", flush=True)
        results.append({"layer": layer.label, "picked": config, "milliseconds": times})
    print(f"beside cuDNN: geometric mean {statistics.geometric_mean(ratios):.3f}, worst {min(ratios):.3f}")
    if costs:
        print(f"of the product's time: geometric mean {statistics.geometric_mean(costs):.3f}, worst {max(costs):.3f}")
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    typer.run(main)
