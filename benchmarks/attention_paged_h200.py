"""Time decoding from a paged cache beside the same keys in one array, and FlashAttention-3's split-KV of the latter.

As `benchmarks.attention_decode_h200`; blocks of a sequence lie anywhere. FlashAttention-3 is asked with a length a
sequence, whose schedule is made ahead.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from benchmarks.attention_h200 import fa3, graphed, timed
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import chosen

CASES = ((4, 16384, 32, 8, 128), (64, 4096, 32, 8, 128))
"""Batch, keys, heads, heads of keys, elements."""

PAGES = (16, 64, 128, 256)


def planned(q: Any, k: Any, v: Any, **more: Any) -> Any:
    """A prepared launch."""
    arguments = AttentionArguments.parse(q, k, v, **more)
    return chosen(arguments, None).plan(arguments)


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
            if fa3 is not None:
                metadata = fa3.decode_metadata(batch, 1, keys, heads, kv_heads, elements, lengths)

                def theirs(sets: list[Any] = sets, lengths: Any = lengths, metadata: Any = metadata) -> None:
                    for q, k, v, _ in sets:
                        fa3.decode(q, k, v, lengths, scheduler_metadata=metadata)

                graphs["fa3"] = graphed(theirs)
            times = timed(graphs, len(sets), rounds=3, seconds=0.03)
            line = f"b{batch} k{keys - cut} h{heads}/{kv_heads} d{elements} us:"
            print(line + "".join(f"  {name} {value:.1f}" for name, value in times.items()), flush=True)


if __name__ == "__main__":
    main()
