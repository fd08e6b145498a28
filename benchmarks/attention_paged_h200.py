"""Time decoding from a paged cache beside the same keys in one array, blocks of a sequence lying anywhere.

Each way has a CUDA graph of one pass over as many operand sets as exceed L2; graphs take turns, and the median replay
counts: ``python -m benchmarks.attention_paged_h200``.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import chosen

CASES = ((4, 16384, 32, 8, 128), (64, 4096, 32, 8, 128))
"""Batch, keys, heads, heads of keys, elements."""

PAGES = (16, 64, 128, 256)

ROUNDS, SECONDS = 3, 0.03
"""Turns of each way, and how long one is."""


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


def timed(graphs: dict[str, Any], sets: int) -> dict[str, float]:
    """Microseconds of one launch each, in turns."""
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            graph.replay()
            replays, spent = [], 0.0
            while spent < SECONDS:
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                graph.replay()
                last.record()
                last.synchronize()
                spent += first.elapsed_time(last) / 1e3
                replays.append(first.elapsed_time(last) * 1e3 / sets)
            found[name].append(statistics.median(replays))
    return {name: statistics.median(each) for name, each in found.items()}


def planned(q: Any, k: Any, v: Any, **more: Any) -> Any:
    """A prepared launch."""
    arguments = AttentionArguments.parse(q, k, v, **more)
    return chosen(arguments, arguments.config).plan(arguments)


def graph(plans: list[Any]) -> Any:
    """One pass over all sets."""

    def launch() -> None:
        for plan in plans:
            plan()

    return graphed(launch)


def main() -> None:
    """Run the cases and print a table."""
    for batch, keys, heads, kv_heads, elements in CASES[: int(sys.argv[1]) if len(sys.argv) > 1 else None]:
        size = 4 * batch * keys * kv_heads * elements
        sets: list[Any] = []
        for seed in range(max(1, -(-(256 << 20) // size))):
            torch.manual_seed(seed)
            q = torch.randn(batch, 1, heads, elements, device="cuda", dtype=torch.bfloat16)
            shape = batch, keys, kv_heads, elements
            k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            sets.append((q, k, v, torch.empty_like(q)))
        for cut in (0, 77):
            lengths = torch.full((batch,), keys - cut, device="cuda", dtype=torch.int32)
            graphs: dict[str, Any] = {"contiguous": graph([planned(q, k, v, out=out) for q, k, v, out in sets])}
            lengthy = [planned(q, k, v, out=out, key_lengths=lengths) for q, k, v, out in sets]
            graphs["lengths"] = graph(lengthy)
            for page in PAGES:
                blocks = batch * keys // page
                table = torch.randperm(blocks, device="cuda").to(torch.int32).view(batch, -1)
                paged = [
                    planned(
                        q,
                        *(x.view(blocks, page, kv_heads, elements) for x in (k, v)),
                        out=out,
                        key_lengths=lengths,
                        block_table=table,
                    )
                    for q, k, v, out in sets
                ]
                graphs[f"page{page}"] = graph(paged)
            times = timed(graphs, len(sets))
            line = f"b{batch} k{keys - cut} h{heads}/{kv_heads} d{elements} us:"
            print(line + "".join(f"  {name} {value:.1f}" for name, value in times.items()), flush=True)


if __name__ == "__main__":
    main()
