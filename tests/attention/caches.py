"""Generated caches of keys and values: what is not in use is no number, and blocks lie where a table says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.attention.cases import TYPES, Entry


@dataclass(frozen=True)
class CacheCase:
    """Lengths of batch entries and extents of a call; blocks of `page` keys, or 0 for a padded cache."""

    lengths: tuple[int, ...]
    page: int
    queries: int
    heads: int
    kv_heads: int
    elements: int
    dtype: str = "bf16"
    options: dict[str, Any] = field(default_factory=dict)

    def call(self, seed: int = 0) -> tuple[dict[str, Any], list[Entry]]:
        """The call's arrays by name, and each entry's queries, keys and values as they would lie alone."""
        random = np.random.default_rng(seed)
        batch, kind = len(self.lengths), TYPES[self.dtype]

        def normal(*shape: int) -> Any:
            return random.standard_normal(shape, dtype=np.float32).astype(kind)

        lengths = np.array(self.lengths, np.int32)
        given: dict[str, Any] = {"q": normal(batch, self.queries, self.heads, self.elements), "key_lengths": lengths}
        alone = [
            (q, *(normal(n, self.kv_heads, self.elements) for _ in "kv"))
            for q, n in zip(given["q"], lengths, strict=True)
        ]
        if not self.page:
            for place, name in enumerate("kv", 1):
                given[name] = np.full((batch, max(self.lengths) + 5, self.kv_heads, self.elements), np.nan, kind)
                for entry, (n, one) in enumerate(zip(self.lengths, alone, strict=True)):
                    given[name][entry, :n] = one[place]
            return given, alone
        columns = max(1, -(-max(self.lengths) // self.page))
        blocks = batch * columns + 3
        table = random.permutation(blocks)[: batch * columns].reshape(batch, columns).astype(np.int32)
        for place, name in enumerate("kv", 1):
            given[name] = np.full((blocks, self.page, self.kv_heads, self.elements), np.nan, kind)
            for entry, (n, one) in enumerate(zip(self.lengths, alone, strict=True)):
                for first in range(0, n, self.page):
                    part = one[place][first : first + self.page]
                    given[name][table[entry, first // self.page], : len(part)] = part
        for entry, n in enumerate(self.lengths):
            table[entry, -(-n // self.page) :] = -7
        return {**given, "block_table": table}, alone

    def outputs(self) -> tuple[Any, Any]:
        """Poisoned ones."""
        batch = len(self.lengths)
        out = np.full((batch, self.queries, self.heads, self.elements), np.nan, TYPES[self.dtype])
        return out, np.full((batch, self.heads, self.queries), np.nan, np.float32)

    def split(self, out: Any, lse: Any) -> list[tuple[Any, Any]]:
        """Each entry's part of the outputs."""
        return list(zip(out, lse, strict=True))


def generated_caches(count: int, *, seed: int, longest: int) -> list[CacheCase]:
    """Lengths, blocks, head dims, ratios of heads, masks and numbers of queries at random."""
    random = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        batch = int(random.integers(1, 5))
        lengths = [int(random.choice([0, 1, longest, *random.integers(1, longest, 4)])) for _ in range(batch)]
        page = int(random.choice([0, 8, 16, 32, 48, 64, 128, 256]))
        group, kv_heads = int(random.choice([1, 2, 4, 8])), int(random.choice([1, 2]))
        elements = int(random.choice([64, 96, 128, 128, 192, 256, 72]))
        options: dict[str, Any] = {}
        if random.random() < 0.5:
            options["causal"] = True
        elif random.random() < 0.3:
            options["window"] = (int(random.integers(0, longest)), 0)
        queries = int(random.choice([1, 1, 1, 3, 8, 70, 150]))
        dtype = str(random.choice(["bf16", "f16"]))
        cases.append(CacheCase(tuple(lengths), page, queries, group * kv_heads, kv_heads, elements, dtype, options))
    return cases
