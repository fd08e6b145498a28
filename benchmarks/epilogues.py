"""Python epilogues against the built-in ones and torch's, on the GPU of this machine.

    python -m benchmarks.epilogues                                # every case and shape, eager torch beside
    python -m benchmarks.epilogues --case swiglu --shape 8192x8192x8192 --compiled --json epilogues.json
    python -m benchmarks.epilogues --case summed --shape 8192x8192x8192 --more 4    # what the picker likes less beside

Built-in epilogues move the same bytes: of SwiGLU a residual takes the gate's place, and row sums are what it lacks. The
cases ``relu`` and ``gelu`` compute the same function both ways; ``relu-summed`` adds row sums to a cheap one. What is
called ``same config`` is the built-in with the config of the other: totals want upright tiles. A contestant is one CUDA
graph of a few launches; contestants take turns in rounds, and the median round counts. Results are checked first.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import tilekit
from tilekit.bench.clocks import ClockSampler
from tilekit.bench.contest import hold
from tilekit.bench.machine import require_machine
from tilekit.epilogue import gelu, relu, row_sum, silu
from tilekit.kernels.matmul.picker import ranked
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.targets import SM_90A

LAUNCHES = 4
"""Launches in a graph, each with arrays of its own."""


@tilekit.epilogue
def swiglu(x, gate):  # type: ignore[no-untyped-def]
    """The gate of a gated MLP: its up-projection beside."""
    return silu(x) * gate


@tilekit.epilogue
def summed(x, bias, residual):  # type: ignore[no-untyped-def]
    """Bias, gelu, residual, and the sums of the rows."""
    y = gelu(x + bias) + residual
    return y, row_sum(y)


@tilekit.epilogue
def relu_bias(x, bias):  # type: ignore[no-untyped-def]
    """What ``bias=, activation="relu"`` does."""
    return relu(x + bias)


@tilekit.epilogue
def relu_summed(x, bias):  # type: ignore[no-untyped-def]
    """The same, and the sums of the rows."""
    y = relu(x + bias)
    return y, row_sum(y)


@tilekit.epilogue
def gelu_residual(x, bias, residual):  # type: ignore[no-untyped-def]
    """What ``bias=, residual=, activation="gelu"`` does."""
    return gelu(x + bias + residual)


@dataclass(frozen=True)
class Case:
    """One epilogue in every form.

    Attributes
    ----------
    written
        Of a bias and a matrix.
    built_in
        Keywords of `tilekit.matmul` that move the same bytes.
    torch
        What torch computes, of the product, a bias and a matrix.
    """

    written: Callable[[Any, Any], Any]
    built_in: Callable[[Any, Any], dict[str, Any]]
    torch: Callable[[Any, Any, Any, Any], Any]


def _gelu(torch: Any, x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


CASES = {
    "swiglu": Case(
        lambda bias, like: swiglu(like),
        lambda bias, like: {"activation": "silu", "residual": like},
        lambda torch, x, bias, like: torch.nn.functional.silu(x) * like,
    ),
    "summed": Case(
        summed,
        lambda bias, like: {"activation": "gelu", "bias": bias, "residual": like},
        lambda torch, x, bias, like: (y := _gelu(torch, x + bias) + like, y.float().sum(1)),
    ),
    "relu": Case(
        lambda bias, like: relu_bias(bias),
        lambda bias, like: {"activation": "relu", "bias": bias},
        lambda torch, x, bias, like: torch.relu(x + bias),
    ),
    "relu-summed": Case(
        lambda bias, like: relu_summed(bias),
        lambda bias, like: {"activation": "relu", "bias": bias},
        lambda torch, x, bias, like: (y := torch.relu(x + bias), y.float().sum(1)),
    ),
    "gelu": Case(
        gelu_residual,
        lambda bias, like: {"activation": "gelu", "bias": bias, "residual": like},
        lambda torch, x, bias, like: _gelu(torch, x + bias + like),
    ),
}


def others(written: Any, m: int, n: int, k: int, count: int) -> list[MatmulConfig]:
    """Of other tiles, schedules and clusters than a kernel's, so many that the model likes best."""
    kinds: dict[Any, MatmulConfig] = {}
    for config in (written.config, *(e.config for e in ranked(written.spec, SM_90A, m=m, n=n, k=k))):
        kinds.setdefault((config.tile, config.pingpong, config.cluster), cast(MatmulConfig, config))
    return list(kinds.values())[1 : count + 1]


def contestants(
    case: Case, torch: Any, m: int, n: int, k: int, *, compiled: bool, more: int = 0
) -> dict[str, Callable[[], None]]:
    """One pass of each over all sets of arrays, checked; `more`: with so many other configs besides."""
    sets = []
    for _ in range(LAUNCHES):
        a, b, like = (torch.randn(shape, device="cuda").bfloat16() / 4 for shape in ((m, k), (n, k), (m, n)))
        sets.append((a, b.t(), torch.randn(n, device="cuda").bfloat16(), like, torch.empty_like(like)))
    kernels: dict[str, list[Any]] = {"written": [], "built-in": [], "same config": []}
    for a, b, bias, like, out in sets:
        call, keywords = case.written(bias, like), case.built_in(bias, like)
        several = len(call.graph.order) > 1
        outs = (out, torch.empty(m, device="cuda")) if several else out
        written = tilekit.kernel_for(a, b, epilogue=call)
        kernels["written"].append(written.bind(a, b, outs, epilogue=call))
        for config in others(written, m, n, k, more):
            other = tilekit.kernel_for(a, b, epilogue=call, config=config)
            kernels.setdefault(str(config), []).append(other.bind(a, b, outs, epilogue=call))
        activation = keywords.pop("activation")
        for name, config in (("built-in", None), ("same config", written.config)):
            kernel = tilekit.kernel_for(a, b, activation=activation, config=config, **keywords)
            kernels[name].append(kernel.bind(a, b, torch.empty_like(out), **keywords))

    def plain(a: Any, b: Any, bias: Any, like: Any) -> Any:
        return case.torch(torch, a @ b, bias, like)

    fused = torch.compile(plain) if compiled else plain
    a, b, bias, like, _ = sets[0]
    found = kernels["written"][0]()
    wanted = case.torch(torch, a.float() @ b.float(), bias.float(), like.float())
    for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        error = float((one.float() - other.float()).norm() / other.float().norm())
        assert error < 1e-2, f"the result is {error:.1%} away from torch's"

    def each(work: list[Any]) -> Callable[[], None]:
        def launch() -> None:
            for one in work:
                one()

        return launch

    print(f"written: {written.config}; built-in: {tilekit.kernel_for(a, b, activation=activation, **keywords).config}")
    passes = {name: each(plans) for name, plans in kernels.items()}
    passes["torch.compile" if compiled else "torch"] = each([lambda s=s: fused(*s[:4]) for s in sets])
    for launch in passes.values():
        launch()
    torch.cuda.synchronize()
    return passes


def main(
    case: Annotated[list[str] | None, typer.Option(help=f"one of {', '.join(CASES)}")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="MxNxK")] = None,
    seconds: Annotated[float, typer.Option(help="for each case")] = 6.0,
    compiled: Annotated[bool, typer.Option(help="torch.compile instead of eager torch")] = False,
    more: Annotated[int, typer.Option(help="other configs, of those that the model likes best")] = 0,
    path: Annotated[Path | None, typer.Option("--json", help="where to keep the times")] = None,
) -> None:
    """Time each case on each shape; print microseconds a launch."""
    import torch

    machine = require_machine()
    records = []
    print(f"{'case':11} {'shape':18} {'contestant':14} {'us':>9} {'TFLOP/s':>8} {'to built-in':>11}")
    with ClockSampler(machine.uuid) as sampler:
        for size in shape or ["4096x4096x4096", "8192x8192x8192", "8192x28672x8192", "1024x8192x8192"]:
            m, n, k = (int(extent) for extent in size.split("x"))
            for name in case or list(CASES):
                passes = contestants(CASES[name], torch, m, n, k, compiled=compiled, more=more)
                timings = hold(machine, passes, LAUNCHES, seconds, sampler, with_bursts=False)
                base = statistics.median(timings["built-in"].rounds)
                for who, timing in timings.items():
                    us = statistics.median(timing.rounds)
                    print(f"{name:11} {size:18} {who:14} {us:9.1f} {2e-6 * m * n * k / us:8.0f} {us / base:11.3f}")
                    records.append({"case": name, "shape": size, "contestant": who, "us": us, "mhz": timing.sm_mhz})
    if path is not None:
        path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
