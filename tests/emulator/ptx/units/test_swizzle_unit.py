"""Swizzles against their definition: which address bits are XORed into which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.emulator.ptx.memory.swizzle import PERIOD, SPAN, Swizzle, chunk_places, chunk_size, swizzled

# mode -> pairs (target bit, source bit): the target bit is inverted where the source bit is set.
BITS: dict[Swizzle | None, list[tuple[int, int]]] = {
    None: [],
    "32B": [(4, 7)],
    "64B": [(4, 7), (5, 8)],
    "128B": [(4, 7), (5, 8), (6, 9)],
    "128B_atom_32B": [(5, 7), (6, 8)],
    "128B_atom_32B_flip_8B": [(5, 7), (6, 8), (3, 7)],
    "128B_atom_64B": [(6, 7)],
}
MODES = list(BITS)


@pytest.mark.parametrize("mode", MODES)
@given(address=st.integers(0, 2**28))
def test_bits(mode: Swizzle | None, address: int) -> None:
    """Each mode inverts exactly its bits, is its own inverse, and repeats after the period."""
    expected = address
    for target, source in BITS[mode]:
        expected ^= (address >> source & 1) << target
    assert swizzled(address, mode) == expected
    assert swizzled(expected, mode) == address
    assert swizzled(address + PERIOD, mode) == expected + PERIOD
    assert expected // SPAN[mode] == address // SPAN[mode]
    assert int(swizzled(np.array([address]), mode)[0]) == expected


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode])
@given(phase=st.integers(0, 7), rows=st.integers(1, 40), data=st.data())
def test_chunk_places(mode: Swizzle, phase: int, rows: int, data: st.DataObject) -> None:
    """Chunk j of row r lies where the swizzle of its address says, and a full image maps onto itself."""
    size, span = chunk_size(mode), SPAN[mode]
    row_chunks = data.draw(st.integers(1, span // size))
    places = chunk_places(mode, 128 * phase, rows, row_chunks)
    assert not places.flags.writeable
    for r in range(rows):
        for j in range(row_chunks):
            address = swizzled(128 * phase + r * span + j * size, mode)
            assert places[r * row_chunks + j] * size == address - 128 * phase
    full = chunk_places(mode, 128 * phase, rows, span // size)
    np.testing.assert_array_equal(full[full], np.arange(full.size))
