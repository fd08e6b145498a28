"""Time `tilekit.attention` beside cuDNN and, where it is installed, FlashAttention-3, in one process on one GPU.

Every contestant of a case has the same arrays, as many sets as make 256 MB, and a CUDA graph of one pass over them.
Contestants take turns; the figure is the median replay. ``python -m benchmarks.attention_h200 --out FILE``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import chosen

try:
    import fa3
except ImportError:
    fa3 = None

CASES = [
    (batch, length, heads, kv_heads, elements, causal)
    for elements, heads, kv_heads, shapes in (
        (128, 16, 16, ((16, 1024), (4, 4096), (1, 16384))),
        (64, 32, 32, ((16, 1024), (4, 4096), (1, 16384))),
        (128, 32, 8, ((2, 8192),)),
    )
    for batch, length in shapes
    for causal in (False, True)
]
"""Batch, positions, heads, heads of keys, elements, causal."""

SET_BYTES = 256 << 20


def arrays(case: tuple[Any, ...], seed: int) -> tuple[Any, ...]:
    """One set of standard normal operands and an output."""
    batch, length, heads, kv_heads, elements, _ = case
    torch.manual_seed(seed)
    q = torch.randn(batch, length, heads, elements, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, length, kv_heads, elements, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return q, k, v, torch.empty_like(q)


def ours(sets: list[Any], causal: bool) -> Callable[[], None]:
    """Launches of this package's kernel, one a set."""
    plans = []
    for q, k, v, out in sets:
        arguments = AttentionArguments.parse(q, k, v, causal=causal, out=out)
        plans.append(chosen(arguments, None).plan(arguments))

    def launch() -> None:
        for plan in plans:
            plan()

    return launch


def cudnn(sets: list[Any], causal: bool) -> Callable[[], None]:
    """Torch's SDPA pinned to cuDNN."""

    def launch() -> None:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            for q, k, v, _ in sets:
                heads = (x.transpose(1, 2) for x in (q, k, v))
                torch.nn.functional.scaled_dot_product_attention(
                    *heads, is_causal=causal, enable_gqa=q.shape[2] != k.shape[2]
                )

    return launch


def flash(sets: list[Any], causal: bool) -> Callable[[], None]:
    """FlashAttention-3 with its own heuristics."""

    def launch() -> None:
        for q, k, v, out in sets:
            fa3.attention(q, k, v, causal, out=out)

    return launch


def graphed(launch: Callable[[], None]) -> Any:
    """A CUDA graph of the launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph


def timed(graphs: dict[str, Any], sets: int, *, rounds: int, seconds: float) -> dict[str, float]:
    """Microseconds of one launch each, in turns."""
    found: dict[str, list[float]] = {name: [] for name in graphs}
    names = list(graphs)
    begin = time.time()
    while time.time() - begin < 0.25:
        graphs[names[0]].replay()
        torch.cuda.synchronize()
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            graphs[name].replay()
            pairs, spent = [], 0.0
            while spent < seconds:
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                graphs[name].replay()
                last.record()
                last.synchronize()
                spent += first.elapsed_time(last) / 1e3
                pairs.append(first.elapsed_time(last) * 1e3 / sets)
            found[name].append(statistics.median(pairs))
    return {name: statistics.median(each) for name, each in found.items()}


def main() -> None:
    """Run the cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="")
    parser.add_argument("--cases", default="", help="numbers of cases, by commas")
    parser.add_argument("--seconds", type=float, default=0.04)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    chosen = [int(one) for one in options.cases.split(",")] if options.cases else range(len(CASES))
    results = []
    for number in chosen:
        case = CASES[number]
        batch, length, heads, kv_heads, elements, causal = case
        size = 2 * batch * length * elements * 2 * (heads + kv_heads)
        sets = [arrays(case, seed) for seed in range(max(1, min(64, -(-SET_BYTES // size))))]
        launches = {"cudnn": cudnn(sets, causal), "ours": ours(sets, causal)}
        if fa3 is not None:
            launches["fa3"] = flash(sets, causal)
        graphs = {}
        for name, launch in launches.items():
            try:
                graphs[name] = graphed(launch)
            except Exception as error:  # a contestant that cannot is left out
                print(name, type(error).__name__, str(error)[:200])
        times = timed(graphs, len(sets), rounds=options.rounds, seconds=options.seconds)
        flops = 4.0 * batch * length * length * heads * elements * (0.5 if causal else 1.0)
        line = f"b{batch} s{length} h{heads}/{kv_heads} d{elements} {'causal' if causal else 'full':6}"
        for name, value in sorted(times.items(), key=lambda item: item[1]):
            rates = f"{flops / value / 1e6:5.0f} TF {times['cudnn'] / value:.3f}"
            line += f"\n    {name:60} {value:9.1f} us {rates}"
        print(line, flush=True)
        results.append({"case": case, "us": times})
    if options.out:
        with open(options.out, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main()
