"""A turn of the loop as text of fixed width: a row for each wave, and one for each SIMD's matrix core."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from tilekit.cycles.machine import Machine
from tilekit.cycles.replay import Run, WavePath
from tilekit.cycles.steps import (
    BARRIER,
    BRANCH,
    LDS,
    LOAD,
    MATRIX,
    NOP,
    PRIORITY,
    SCALAR,
    SCALAR_LOAD,
    VECTOR,
    WAIT,
    Step,
)

__all__ = ["draw"]

_COLUMNS: Final = 96
_LETTERS: Final = {
    BARRIER: "|", LOAD: "g", LDS: "r", VECTOR: "v", MATRIX: "M", SCALAR_LOAD: "k", BRANCH: "j", SCALAR: "s",
    WAIT: "w", NOP: "n", PRIORITY: "p",
}  # fmt: skip
"""What a column shows, the rarer before the commoner where it holds several."""
_RANK: Final = {letter: rank for rank, letter in enumerate("|gtWrxvMkjswnp")}
_LEGEND: Final = (
    "  M MFMA, v VALU, x transcendental, r LDS read, W LDS write, g global load, t store, | barrier, w wait,\n"
    "  s scalar, j branch, n s_nop, p s_setprio, k scalar load, . nothing issued\n"
    "  the matrix core's row: # busy, + half busy, - a little"
)


def _letter(step: Step) -> str:
    name = step.instruction.name
    if step.kind == LDS and name.startswith("ds_write"):
        return "W"
    if step.kind == LOAD and "_store_" in name:
        return "t"
    if step.kind == VECTOR and name.startswith(("v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos")):
        return "x"
    return _LETTERS[step.kind]


def draw(m: Machine, replayed: Sequence[WavePath], made: Run, measured: int) -> str:
    """Draw the longest measured turn of the first wave that multiplies, and what the others do in its time."""
    chosen = next((n for n, wave in enumerate(replayed) if any(s.kind == MATRIX for s in wave.turn)), 0)
    turns = pairwise(made.starts[chosen][-1 - measured :])
    first, last = max(turns, key=lambda turn: turn[1] - turn[0])
    length = max(last - first, 1)
    clocks = -(-length // (_COLUMNS * m.issue)) * m.issue
    columns = -(-length // clocks)
    lines = [f"  one turn, {length} clocks; a column is {clocks} clocks"]
    for simd in sorted({wave.simd for wave in replayed}):
        core = [0] * columns
        rows = []
        for number, wave in enumerate(replayed):
            if wave.simd != simd:
                continue
            row = ["."] * columns
            for clock, step in _issued(wave, made.issued[number]):
                if step.kind == MATRIX:
                    _fill(core, clock - first, step.busy, clocks)
                column = (clock - first) // clocks
                if 0 <= column < columns:
                    letter = _letter(step)
                    if row[column] == "." or _RANK[letter] < _RANK[row[column]]:
                        row[column] = letter
            rows.append(f"    wave {number:<3}  {''.join(row)}")
        shares = (busy / clocks for busy in core)
        bar = "".join("#" if s >= 0.75 else "+" if s >= 0.4 else "-" if s > 0 else "." for s in shares)
        lines += [f"  SIMD {simd}      {bar}", *rows]
    return "\n".join([*lines, _LEGEND])


def _issued(wave: WavePath, clocks: Sequence[int]) -> list[tuple[int, Step]]:
    before = len(wave.before)
    return [(clock, wave.turn[(place - before) % len(wave.turn)])
            for place, clock in enumerate(clocks) if place >= before]  # fmt: skip


def _fill(core: list[int], start: int, busy: int, clocks: int) -> None:
    """Add the clocks of an MFMA to the columns that it lies in."""
    end = min(start + busy, len(core) * clocks)
    start = max(start, 0)
    while start < end:
        column = start // clocks
        piece = min(end, (column + 1) * clocks) - start
        core[column] += piece
        start += piece
