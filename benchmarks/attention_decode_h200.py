"""Time decoding with `tilekit.attention` beside FlashAttention-3's split-KV, in one process on one GPU.

As `benchmarks.attention_h200`: the same arrays, sets of 256 MB or more, a CUDA graph each, in turns.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.attention_h200 import fa3, graphed, timed
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import chosen

CASES = (
    (4, 16384, 32, 8, 128),
    (1, 131072, 32, 8, 128),
    (16, 8192, 32, 8, 128),
    (64, 4096, 32, 8, 128),
    (64, 4096, 8, 1, 128),
    (8, 32768, 64, 8, 128),
    (1, 16384, 8, 1, 128),
    (32, 4096, 32, 8, 64),
)
"""Batch, keys, heads, heads of keys, elements."""


def main() -> None:
    """Run the cases and print a table."""
    for batch, keys, heads, kv_heads, elements in CASES:
        size = 4 * batch * keys * kv_heads * elements
        sets: list[Any] = []
        for seed in range(max(1, -(-(256 << 20) // size))):
            torch.manual_seed(seed)
            q = torch.randn(batch, 1, heads, elements, device="cuda", dtype=torch.bfloat16)
            shape = batch, keys, kv_heads, elements
            k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            sets.append((q, k, v, torch.empty_like(q)))
        plans = []
        for q, k, v, out in sets:
            arguments = AttentionArguments.parse(q, k, v, out=out)
            plans.append(chosen(arguments, None).plan(arguments))

        def ours(plans: list[Any] = plans) -> None:
            for plan in plans:
                plan()

        graphs = {"ours": graphed(ours)}
        if fa3 is not None:

            def theirs(sets: list[Any] = sets) -> None:
                for q, k, v, _ in sets:
                    fa3.attention(q, k, v, False, num_splits=0)

            graphs["fa3"] = graphed(theirs)
        times = timed(graphs, len(sets), rounds=3, seconds=0.03)
        line = f"b{batch} k{keys} h{heads}/{kv_heads} d{elements}:"
        for name, value in times.items():
            line += f"  {name} {value:.1f} us {size / value / 1e3:.0f} GB/s"
        print(line + (f"  ratio {times['fa3'] / times['ours']:.3f}" if "fa3" in times else ""), flush=True)


if __name__ == "__main__":
    main()
