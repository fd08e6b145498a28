"""Generated batches of packed sequences: each of its own length, behind each other without a gap."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from tests.attention.cases import TYPES, Entry


@dataclass(frozen=True)
class PackedCase:
    """Queries and keys of each sequence, and extents of a call."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    heads: int
    kv_heads: int
    elements: int
    value_elements: int
    dtype: str = "bf16"
    options: dict[str, Any] = field(default_factory=dict)

    def call(self, seed: int = 0) -> tuple[dict[str, Any], list[Entry]]:
        """The call's arrays by name, and each sequence's queries, keys and values."""
        random = np.random.default_rng(seed)
        kind = TYPES[self.dtype]
        starts, ends = (np.cumsum([0, *lengths]).astype(np.int32) for lengths in (self.queries, self.keys))
        of_keys = ends[-1], self.kv_heads
        shapes = {"q": (starts[-1], self.heads, self.elements)}
        shapes |= {"k": (*of_keys, self.elements), "v": (*of_keys, self.value_elements)}
        given: dict[str, Any] = {
            name: random.standard_normal(shape, dtype=np.float32).astype(kind) for name, shape in shapes.items()
        }
        alone = [
            (given["q"][slice(*rows)], given["k"][slice(*own)], given["v"][slice(*own)])
            for rows, own in zip(pairwise(starts), pairwise(ends), strict=True)
        ]
        given["lengths"] = starts if self.queries == self.keys else (starts, ends)
        return given, alone

    def outputs(self) -> tuple[Any, Any]:
        """Poisoned ones."""
        positions = sum(self.queries)
        out = np.full((positions, self.heads, self.value_elements), np.nan, TYPES[self.dtype])
        return out, np.full((self.heads, positions), np.nan, np.float32)

    def split(self, out: Any, lse: Any) -> list[tuple[Any, Any]]:
        """Each sequence's part of the outputs."""
        starts = np.cumsum([0, *self.queries])
        return [(out[first:end], lse[:, first:end]) for first, end in pairwise(starts)]


def generated_packed(count: int, *, seed: int, longest: int) -> list[PackedCase]:
    """Lengths, empty ones among them, head dims, ratios of heads and masks at random."""
    random = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        sequences = int(random.integers(1, 7))

        def lengths(sequences: int = sequences) -> tuple[int, ...]:
            choices = [0, 1, 64, 128, *random.integers(1, longest, 4)]
            return tuple(int(random.choice(choices)) for _ in range(sequences))

        queries = lengths()
        keys = queries if random.random() < 0.5 else lengths()
        if not sum(queries):
            queries = (*queries[:-1], 1)
            keys = (*keys[:-1], max(1, keys[-1]))
        elements = int(random.choice([64, 96, 128, 128, 192, 256, 72]))
        value = elements if random.random() < 0.8 else int(random.choice([64, 128, 40]))
        group, kv_heads = int(random.choice([1, 2, 4])), int(random.choice([1, 2]))
        options: dict[str, Any] = {}
        if random.random() < 0.5:
            options["causal"] = True
        elif random.random() < 0.4:
            options["window"] = (int(random.integers(0, longest)), int(random.integers(0, 40)))
        if random.random() < 0.15:
            options["softcap"] = 20.0
        dtype = str(random.choice(["bf16", "f16"]))
        cases.append(PackedCase(queries, keys, group * kv_heads, kv_heads, elements, value, dtype, options))
    return cases
