"""Attention over caches to run: keys and values of which every batch entry has its own number in use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilekit.bench.accuracy import Accuracy
from tilekit.bench.attention import AttentionOperands, AttentionWorkload
from tilekit.errors import ArgumentError

__all__ = ["CachedAttentionWorkload"]

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class CachedAttentionWorkload(AttentionWorkload):
    """As many batch entries as `key_lengths`, in a cache with room for the longest, or in blocks of `page` keys."""

    key_lengths: tuple[int, ...] = ()
    page: int = 0

    @classmethod
    def of(cls, key_lengths: tuple[int, ...], page: int, like: AttentionWorkload) -> CachedAttentionWorkload:
        """Entries of so many keys each, with queries, heads, types and masks as of another workload.

        Raises
        ------
        ArgumentError
            ``TK-BENCH-001`` for lengths that are none, ``TK-ATT-007`` for blocks that cannot be.
        """
        if not key_lengths or min(key_lengths) < 0 or not max(key_lengths):
            raise ArgumentError.of(
                "--key-lengths", ",".join(map(str, key_lengths)), legal="whole numbers from 0 on, not all of them 0",
                nearest="300,1,50", code="TK-BENCH-001",
            )  # fmt: skip
        if page < 0:
            raise ArgumentError.of(
                "--page", page, legal="a multiple of 8 keys, or 0 without blocks", nearest=0, code="TK-BENCH-001"
            )
        own = {"batch": len(key_lengths), "keys": max(key_lengths), "key_lengths": key_lengths, "page": page}
        return like.turned_into(cls, **own)

    @property
    def entries(self) -> list[AttentionWorkload]:
        """Each that has keys, as it would be alone."""
        return [self.turned_into(AttentionWorkload, batch=1, keys=length) for length in self.key_lengths if length]

    @property
    def label(self) -> str:
        """The shape, and how many keys are in use."""
        blocks = f" in blocks of {self.page}" if self.page else ""
        return f"{super(CachedAttentionWorkload, self).label} keys {'+'.join(map(str, self.key_lengths))}{blocks}"

    @property
    def flops(self) -> int:
        """Of the keys in use."""
        return sum(one.flops for one in self.entries)

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """Of queries, and of the cache's keys and values."""
        queries, keys, values = super(CachedAttentionWorkload, self).shapes
        if not self.page:
            return queries, keys, values
        blocks = self.batch * self._columns, self.page
        return queries, (*blocks, *keys[2:]), (*blocks, *values[2:])

    @property
    def _columns(self) -> int:
        """Blocks that an entry may have."""
        return -(-self.keys // self.page)

    @property
    def table(self) -> _Array:
        """Which block has which keys of an entry: any order, the same at each call."""
        blocks = np.random.default_rng(0).permutation(self.batch * self._columns)
        return blocks.reshape(self.batch, self._columns).astype(np.int32)

    def operands(self, seed: int, place: Callable[[_Array], Any] = lambda stored: stored) -> AttentionOperands:
        """Return standard normal operands; what is not in use is no number."""
        held = super(CachedAttentionWorkload, self).operands(seed)
        for cache in (held.k, held.v):
            for entry, length in enumerate(self.key_lengths):
                for first, rows in self._rows(cache, entry):
                    rows[max(0, length - first) :] = np.nan
        return AttentionOperands(place(held.q), place(held.k), place(held.v))

    def call(self, operands: AttentionOperands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.attention` is called with."""
        q, k, options = super(CachedAttentionWorkload, self).call(operands)
        options["key_lengths"] = np.array(self.key_lengths, np.int32)
        return q, k, {**options, "block_table": self.table} if self.page else options

    def accuracy(self, operands: AttentionOperands, out: _Array) -> Accuracy:
        """Compare each entry with float64 of its own keys; what sees none must be 0."""
        found, alone = [], iter(self.entries)
        for entry, length in enumerate(self.key_lengths):
            if not length:
                worst = float(np.abs(out[entry].astype(np.float64)).max())
                found.append(Accuracy(worst, worst, np.inf if worst else 0.0))
                continue
            k, v = (
                np.concatenate([rows for _, rows in self._rows(cache, entry)])[None, :length]
                for cache in (operands.k, operands.v)
            )
            own = AttentionOperands(operands.q[entry : entry + 1], k, v)
            found.append(next(alone).accuracy(own, out[entry : entry + 1]))
        return Accuracy.worst_of(found)

    def _rows(self, cache: _Array, entry: int) -> list[tuple[int, _Array]]:
        """An entry's rows of a cache, in the order of its keys: the number of the first, and they themselves."""
        if not self.page:
            return [(0, cache[entry])]
        return [(column * self.page, cache[block]) for column, block in enumerate(self.table[entry])]
