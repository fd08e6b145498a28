"""Time attention of packed sequences beside FlashAttention-3's varlen call, and beside the same in a whole batch.

Each way has a CUDA graph of one pass over as many operand sets as exceed L2; graphs take turns, and the median replay
counts: ``FLASH_ATTENTION_3=fa3_sm90a.so python -m benchmarks.attention_packed_h200 [CASES] [CHANGES …]``. Changes of
the config that is picked, such as ``claims=False`` or ``warpgroups=3,keys=112``, are further ways where legal.
"""

from __future__ import annotations

import os
import sys
from ast import literal_eval
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import tilekit
from benchmarks.attention_paged_h200 import graph, planned, timed


def drawn(sequences: int, positions: int, seed: int) -> tuple[int, ...]:
    """Lengths of so many sequences that are log-uniform from 16 on, scaled to about so many positions in all."""
    raw = np.exp(np.random.default_rng(seed).uniform(np.log(16), np.log(8192), sequences))
    return tuple(int(max(1, length)) for length in raw * positions / raw.sum())


CASES = (
    ("16 of 1024", (1024,) * 16, 16, 16, 128),
    ("8 of 2048", (2048,) * 8, 32, 8, 128),
    ("4 of 4096", (4096,) * 4, 32, 32, 64),
    ("64 of 17 to 600", drawn(64, 16384, 1), 16, 16, 128),
    ("24 of any length", drawn(24, 32768, 2), 32, 8, 128),
    ("one of 16384 and 99 of 100", (*(100,) * 50, 16384, *(100,) * 49), 16, 16, 128),
)
"""A name, lengths, heads, heads of keys, elements."""


def changed(word: str, *given: Any, **call: Any) -> Any:
    """A prepared launch with a changed config; None where it is not legal."""
    changes = {name: literal_eval(value) for name, _, value in (one.partition("=") for one in word.split(","))}
    kernel = tilekit.attention_kernel_for(*given, **call)
    config = replace(kernel.config, **changes)
    return planned(*given, config=config, **call) if config.legal(kernel.target, kernel.spec) else None


def main() -> None:
    """Run the cases, full and causal, and print a table."""
    words = sys.argv[1:]
    count = int(words.pop(0)) if words and words[0].isdigit() else None
    for name, lengths, heads, kv_heads, elements in CASES[:count]:
        total, longest = sum(lengths), max(lengths)
        starts = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32, device="cuda")
        sets: list[Any] = []
        for seed in range(max(1, -(-(256 << 20) // (2 * total * (heads + kv_heads) * elements * 2)))):
            torch.manual_seed(seed)
            shapes = [(total, count, elements) for count in (heads, kv_heads, kv_heads)]
            q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
            sets.append((q, k, v, torch.empty_like(q)))
        for causal in (False, True):
            ways: dict[str, Any] = {
                "packed": [planned(*given, out=out, lengths=starts, causal=causal) for *given, out in sets]
            }
            for word in words:
                plans = [changed(word, *given, out=out, lengths=starts, causal=causal) for *given, out in sets]
                ways |= {word: plans} if all(plans) else {}
            if len(set(lengths)) == 1:
                shape = len(lengths), longest
                whole = [[x.view(*shape, *x.shape[1:]) for x in one] for one in sets]
                ways["whole"] = [planned(*given, out=out, causal=causal) for *given, out in whole]
            if "FLASH_ATTENTION_3" in os.environ:
                from benchmarks.peers.flash_attention import packed

                ways["fa3"] = [partial(packed, *one, starts, longest, causal) for one in sets]
            times = timed({way: graph(plans) for way, plans in ways.items()}, len(sets))
            pairs = sum((end - first) ** 2 for first, end in pairwise([0, *np.cumsum(lengths)]))
            flops = 4 * heads * elements * pairs / (2 if causal else 1)
            line = f"{name:<28} h{heads}/{kv_heads} d{elements}{' causal' if causal else '':<7} us:"
            line += "".join(f"  {way} {value:.1f}" for way, value in times.items())
            print(f"{line}  ({flops / times['packed'] / 1e6:.0f} TFLOP/s)", flush=True)


if __name__ == "__main__":
    main()
