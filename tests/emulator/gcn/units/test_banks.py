"""Bank conflicts of LDS accesses: against layouts whose conflicts are published, and against a count lane by lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.emulator import LaunchError
from tilekit.emulator.gcn.banks import conflicts

LANES = np.arange(64)
BIT = [LANES >> n & 1 for n in range(6)]
PADDED = 0x420 * (2 * BIT[3] + BIT[1]) + 0x100 * BIT[2] + 0x80 * BIT[0] + 16 * (LANES // 16)
"""Rows of 128 bytes of a 16-bit operand, dealt out over padded kilobytes, as kernels for gfx950 lay them out."""


def test_a_padded_layout_that_kernels_use() -> None:
    """No conflict on gfx950; rows of 128 bytes without the padding have them."""
    assert conflicts(PADDED, 16, "gfx950").extra == 0
    plain = 128 * (LANES % 16) + 16 * (LANES // 16)
    assert conflicts(plain, 16, "gfx950").extra > 0


def test_sequential_accesses_are_free() -> None:
    """Lanes that follow each other do not conflict; of three words they may, where groups interleave."""
    for chip in ("gfx942", "gfx950"):
        for width in (1, 2, 4, 8, 16):
            for write in (False, True):
                assert conflicts(LANES * width, width, chip, write=write).extra == 0, (chip, width, write)


TOGETHER = {
    ("gfx942", 16, False): ("0-3 20-23", "4-7 16-19", "8-11 28-31", "12-15 24-27"),
    ("gfx950", 16, False): ("0-3 12-15 20-27", "4-11 16-19 28-31"),
    ("gfx942", 8, False): ("0-15", "16-31"),
    ("gfx950", 8, False): ("0-31",),
    ("gfx942", 4, False): ("0-31",),
    ("gfx950", 4, False): ("0-63",),
    ("gfx942", 16, True): ("0-7", "8-15", "16-23", "24-31"),
    ("gfx950", 8, True): ("0-15", "16-31"),
    ("gfx950", 12, False): ("0-3 20-23", "4-7 16-19", "8-11 28-31", "12-15 24-27"),
}
"""Lanes that are served together, of the first 32 (or all 64), as published."""
BANKS = {("gfx950", 16, False): 64, ("gfx950", 8, False): 64, ("gfx950", 4, False): 64}


def groups(text: tuple[str, ...]) -> list[list[int]]:
    """Lanes by group, for all 64."""
    found = []
    for part in text:
        ranges = [list(map(int, one.split("-"))) for one in part.split()]
        found.append([lane for low, high in ranges for lane in range(low, high + 1)])
    if sum(map(len, found)) == 32:
        found += [[lane + 32 for lane in group] for group in found]
    return found


@pytest.mark.parametrize("case", TOGETHER, ids=str)
def test_two_lanes_conflict_where_they_are_served_together(case: tuple[str, int, bool]) -> None:
    """Of any two lanes on one bank, exactly those of a group get into each other's way."""
    chip, width, write = case
    of = {lane: number for number, group in enumerate(groups(TOGETHER[case])) for lane in group}
    stride = 4 * BANKS.get(case, 32)
    for first in range(64):
        for second in range(first):
            addresses = np.full(64, -1)
            addresses[[first, second]] = 0, 4 * stride
            assert conflicts(addresses, width, chip, write=write).extra == (of[first] == of[second]), (first, second)


@pytest.mark.parametrize("seed", range(5))
def test_random_accesses(seed: int) -> None:
    """Passes are those of a count of distinct words bank by bank."""
    rng = np.random.default_rng(seed)
    for case, text in TOGETHER.items():
        chip, width, write = case
        addresses: Any = rng.integers(0, 512, 64) * width
        addresses[rng.random(64) < 0.2] = -1
        wanted = 0
        for group in groups(text):
            words = {(a + at) // 4 for a in addresses[group] if a >= 0 for at in range(0, max(width, 4), 4)}
            loads = [sum(word % BANKS.get(case, 32) == bank for word in words) for bank in range(64)]
            wanted += max(loads)
        assert conflicts(addresses, width, chip, write=write).needed == wanted, case


def test_a_word_that_lanes_share_is_read_once() -> None:
    """Lanes that read one word are served in one pass."""
    assert conflicts(np.zeros(64, np.int64), 4, "gfx942") == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((LANES, 4, "gfx94"), "use chip='gfx942'"),
        ((LANES, 5, "gfx942"), "1, 2, 4, 8, 12 or 16"),
        ((LANES[:32], 4, "gfx942"), "each of 64 lanes"),
    ],
)
def test_bad_questions(arguments: Any, message: str) -> None:
    """An unknown chip, width or number of lanes is refused with what is legal."""
    with pytest.raises(LaunchError, match=message):
        conflicts(*arguments)
