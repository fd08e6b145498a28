"""A payload of one's own: a factor for each row of A and 64 elements of K, in a kernel that is otherwise tilekit's.

    python examples/row_factors.py

Factors come into the stages beside A and B, or threads read those of a k-block while the one before is multiplied, as
they must in the pairs of CTAs that Blackwell's instructions may span.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilekit
import tilekit.compose as tk

BLOCK = 64  # elements of K that share a factor: those of a stage, 128 bytes of bf16


class RowFactors:
    """The factors of a thread's rows, k-block by k-block."""

    k_block, registers = BLOCK, 0

    def __init__(self, w: tk.Writer, layout: tk.AccumulatorLayout, staged: Mapping[str, Any]) -> None:
        self.layout = layout
        self.staged = tk.StagedValues(staged["factor"]) if staged else None
        self.ahead = None if staged else tk.Ahead(w, "factor", block=BLOCK, grouped=False)

    def bind(self, w: tk.Writer, group: tk.Warpgroup) -> None:
        """Find this thread's first row."""
        within, (corner, _) = self.layout.fragment.row(group.thread), self.layout.corner(w, group.thread)
        self.row = within + corner + group.part * self.layout.tile_rows

    def turn(self, w: tk.Writer, tile: tk.Tile) -> None:
        """Turn to an output tile."""
        if self.staged is not None:
            self.staged.turn(w, tile)
        if self.ahead is not None:
            self.ahead.turn(w, tile, tile.row + self.row, self.layout.rows_of_a_thread)

    def take(self, w: tk.Writer, stage: tk.Stage) -> None:
        """Read what the next k-block's stage holds."""
        if self.staged is not None:
            self.values = self.staged.take(w, stage, self.row, self.layout.rows_of_a_thread)

    def advance(self, w: tk.Writer) -> None:
        """Turn to the next k-block's, where they were read ahead."""
        if self.ahead is not None:
            self.values = self.ahead.take(w)

    def factors(self, w: tk.Writer, block: int) -> Callable[[int, int], tuple[tk.Value, ...]]:
        """Of four sums: two columns of a row, then of the row eight below."""

        def four(fragment: int, eight: int) -> tuple[tk.Value, ...]:
            first = 2 * (block * self.layout.fragments + fragment)
            upper, lower = self.values[first : first + 2]
            return upper, upper, lower, lower

        return four


def load(w: tk.Writer, tile: tk.ValueTile) -> tk.ValueLoader:
    """TMA brings a stage's factors: those of a k-block lie behind each other."""
    return tk.ValueLoader(w, tile, block=BLOCK, first=lambda tile: tile.row, batched=False)


def tiles(rows: int, columns: int) -> list[tk.ValueTile]:
    """A stage has a factor for each row of a CTA's tile."""
    return [tk.ValueTile("factor", rows, along_k=False)]


DECLARED = {"inputs": (tk.Input("factor", tk.F32, "jm"),), "blocks": (tk.Blocks("j", "k", BLOCK),)}
PAYLOADS = {
    "staged": tk.OwnPayload(**DECLARED, factors=RowFactors, tiles=tiles, loader=load),
    "ahead": tk.OwnPayload(**DECLARED, factors=RowFactors),
}

if __name__ == "__main__":
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, shape).astype(tk.BF16.numpy) for shape in ((200, 320), (320, 136)))
    factor = 2.0 ** random.integers(-1, 2, (5, 200)).astype(np.float32)
    expected = (a.astype("f4") * factor.repeat(BLOCK, axis=0).T) @ b.astype("f4")
    for chip in ("sm_90a", "sm_100a"):
        for way, payload in PAYLOADS.items():
            own = tk.OwnComponents(payload=payload)
            result = tilekit.matmul(a, b, components=own, arrays={"factor": factor}, out_dtype=tk.F32, target=chip)
            print(chip, way, "exact" if (result == expected).all() else "wrong")
