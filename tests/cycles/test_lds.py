"""Bank conflicts: layouts that are published to have none, and strides that are known to have some."""

from __future__ import annotations

import pytest

from tilekit.cycles.lds import conflicts
from tilekit.errors import ArgumentError

CHIPS = ("gfx942", "gfx950")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("write", [False, True])
def test_lanes_in_a_row_have_none(chip: str, size: int, write: bool):
    """Consecutive addresses use each bank once."""
    assert conflicts([size * lane for lane in range(64)], size, chip, write=write) == 0


@pytest.mark.parametrize("chip", CHIPS)
def test_one_address_for_all_has_none(chip: str):
    """Lanes that read the same word share it."""
    assert conflicts([128] * 64, 4, chip) == 0


@pytest.mark.parametrize(("chip", "groups"), [("gfx942", 2), ("gfx950", 1)])
def test_one_bank_for_all(chip: str, groups: int):
    """64 words of one bank: every group of lanes takes as many passes as it has lanes."""
    banks = {"gfx942": 32, "gfx950": 64}[chip]
    assert conflicts([4 * banks * lane for lane in range(64)], 4, chip) == groups * (64 // groups - 1)


def test_writes_of_eight_bytes_see_32_banks():
    """On gfx950 two halves of 16 lanes, 128 bytes apart, meet in the banks of a write; in a read, 256 bytes apart."""
    addresses = [8 * (lane % 8) + 128 * (lane // 8) for lane in range(64)]
    assert conflicts(addresses, 8, "gfx950", write=True) == 4
    assert conflicts(addresses, 8, "gfx950") == 2


def test_the_padded_layout_of_aiter_has_none():
    """Rows of 32 bytes' padding, as AITER's bf16 matmul reads them on gfx950; without the padding there are some."""

    def addresses(row: int) -> list[int]:
        return [
            row * (2 * (lane >> 3 & 1) + (lane >> 1 & 1))
            + 0x100 * (lane >> 2 & 1)
            + 0x80 * (lane & 1)
            + 16 * (lane // 16)
            for lane in range(64)
        ]

    assert conflicts(addresses(0x420), 16, "gfx950") == 0
    assert conflicts(addresses(0x400), 16, "gfx950") > 0


def test_rows_of_a_power_of_two_conflict():
    """16 rows of 128 bytes, a row a lane: the lanes of a group read the same banks."""
    addresses = [128 * (lane % 16) + 16 * (lane // 16) for lane in range(64)]
    assert conflicts(addresses, 16, "gfx942") >= 4
    swizzled = [128 * (lane % 16) + 16 * ((lane // 16) ^ (lane % 8)) for lane in range(64)]
    assert conflicts(swizzled, 16, "gfx942") < conflicts(addresses, 16, "gfx942")


@pytest.mark.parametrize(
    ("addresses", "size", "chip", "word"),
    [([0] * 64, 5, "gfx950", "nearest legal: 4"), ([0] * 63, 4, "gfx950", "64"), ([0] * 64, 4, "gfx90a", "gfx942")],
)
def test_what_is_not_legal(addresses: list[int], size: int, chip: str, word: str):
    """Width, number of lanes and chip are checked."""
    with pytest.raises(ArgumentError, match=word) as caught:
        conflicts(addresses, size, chip)
    assert caught.value.code == "TK-CYCLES-001"
