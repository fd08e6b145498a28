"""Attention of packed sequences to run: each of its own length, behind each other in arrays without a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tilekit.bench.accuracy import Accuracy
from tilekit.bench.attention import AttentionOperands, AttentionWorkload
from tilekit.errors import ArgumentError

__all__ = ["PackedAttentionWorkload"]

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class PackedAttentionWorkload(AttentionWorkload):
    """Sequences of `lengths` queries, and as many keys: `queries` and `keys` are those of all."""

    lengths: tuple[int, ...] = ()

    @classmethod
    def of(cls, lengths: tuple[int, ...], like: AttentionWorkload) -> PackedAttentionWorkload:
        """Sequences of some lengths, with heads, types and masks as of another workload.

        Raises
        ------
        ArgumentError
            ``TK-BENCH-001`` for lengths that are none.
        """
        if not lengths or min(lengths) < 0 or not sum(lengths):
            raise ArgumentError.of(
                "--lengths", ",".join(map(str, lengths)), legal="whole numbers from 0 on, not all of them 0",
                nearest="128,1,300", code="TK-BENCH-001",
            )  # fmt: skip
        return like.turned_into(cls, batch=1, queries=sum(lengths), keys=sum(lengths), lengths=lengths)

    @property
    def sequences(self) -> list[AttentionWorkload]:
        """Each that is not empty, as it would be alone."""
        return [self.turned_into(AttentionWorkload, queries=length, keys=length) for length in self.lengths if length]

    @property
    def label(self) -> str:
        """The lengths, and what a shape has beside its extents."""
        alike = replace(self.sequences[0], queries=1, keys=1).label.split(" ", 1)[1]
        return f"{'+'.join(map(str, self.lengths))} {alike}"

    @property
    def flops(self) -> int:
        """Of all sequences."""
        return sum(one.flops for one in self.sequences)

    @property
    def score_bytes(self) -> int:
        """Of one head of the longest sequence."""
        return max(one.score_bytes for one in self.sequences)

    @property
    def out_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of the result: positions, heads, elements."""
        return super(PackedAttentionWorkload, self).out_shape[1:]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        """Of queries, keys and values."""
        return tuple(shape[1:] for shape in super(PackedAttentionWorkload, self).shapes)

    def call(self, operands: AttentionOperands) -> tuple[Any, Any, dict[str, Any]]:
        """What `tilekit.attention` is called with."""
        q, k, options = super(PackedAttentionWorkload, self).call(operands)
        return q, k, {**options, "lengths": self.starts}

    @property
    def starts(self) -> _Array:
        """Where sequences begin, and where the last ends."""
        return np.cumsum([0, *self.lengths]).astype(np.int32)

    def accuracy(self, operands: AttentionOperands, out: _Array) -> Accuracy:
        """Compare each sequence with float64; the relative error is the largest of a sequence's."""
        found = []
        places = [place for place in pairwise(self.starts) if place[0] < place[1]]
        for one, (first, end) in zip(self.sequences, places, strict=True):
            own = AttentionOperands(*(array[None, first:end] for array in (operands.q, operands.k, operands.v)))
            found.append(one.accuracy(own, out[None, first:end]))
        return Accuracy.worst_of(found)
