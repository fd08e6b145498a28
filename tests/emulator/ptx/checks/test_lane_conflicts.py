"""Which lanes of a warp conflict: `lane_order` against sets of lanes, byte by byte."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from tilekit.emulator.core.checks.lane_order import COLLECTIVE, Lanes, conflicts, uniform

Owners = dict[int, set[int]]


def draw(rng: np.random.Generator) -> tuple[Lanes, Owners]:
    """An access by some lanes, and who touches each byte."""
    active = rng.random(32) < rng.choice([0.05, 0.5, 1])
    active[rng.integers(32)] = True
    lanes = np.flatnonzero(active).tolist()
    mask = None if active.all() else active.tobytes()
    first, width = 4 * int(rng.integers(4)), int(rng.choice([1, 2, 4]))
    owners: Owners = defaultdict(set)
    kind = rng.integers(3)
    if kind == 0:
        for byte in range(width):
            owners[first + byte] |= set(lanes)
        return uniform(first, width, mask), owners
    if kind == 1:
        offsets = [width * index for index in range(len(lanes))]
        relative = None
    else:
        offsets = (width * rng.integers(0, 6, len(lanes))).tolist()
        relative = np.array(offsets, np.int64).tobytes()
    for lane, offset in zip(lanes, offsets, strict=True):
        for byte in range(width):
            owners[first + offset + byte].add(lane)
    return (first, relative, width, mask), owners


@pytest.mark.parametrize("seed", range(60))
def test_conflicts_are_of_different_lanes(seed: int) -> None:
    """A write conflicts unless the same lanes touched the byte, a read where a lane reads what only others wrote."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        (earlier, before), (later, after) = draw(rng), draw(rng)
        for reads, writes in ((False, False), (False, True), (True, True)):
            expected = set()
            for byte in before.keys() & after.keys():
                if after[byte] - before[byte] if not writes else before[byte] != after[byte]:
                    expected.add(byte)
            found = conflicts(earlier, later, reads, writes)
            if earlier == later:
                assert found == ()
                continue
            assert sorted(byte for byte, _, _ in found) == sorted(expected)
            for byte, first, second in found:
                assert first in before[byte], byte
                assert second in after[byte], byte
                assert first != second, byte


def test_the_same_lanes_do_not_conflict() -> None:
    """Two lanes that stored one value to one place may both store again, and both read, in another access."""
    both = np.isin(np.arange(32), [3, 9]).tobytes()
    word, half = uniform(64, 4, both), uniform(64, 2, both)
    for writes in (False, True):
        assert conflicts(word, half, False, writes) == ()
        assert len(conflicts(word, uniform(64, 2, None), False, writes)) == 2


def test_rows_of_a_collective_access() -> None:
    """No lane is known of what a matrix instruction reads or writes as one: it conflicts with every lane's access."""
    rows = (0, np.array([0, 16], np.int64).tobytes(), 16, COLLECTIVE)
    one = uniform(20, 2, np.isin(np.arange(32), [5]).tobytes())
    assert conflicts(rows, one, True, True) == ((20, -1, 5), (21, -1, 5))
    assert conflicts(one, rows, False, False) == ((20, 5, -1), (21, 5, -1))
    assert conflicts(rows, (16, rows[1], 16, COLLECTIVE), False, True) == ()
