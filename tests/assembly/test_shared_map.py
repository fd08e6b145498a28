"""The shared-memory map: alignment, no overlap, and the lines that tell the emulator."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.assembly.errors import TraceError
from tilekit.assembly.shared import BASE_ALIGNMENT, SharedMemory
from tilekit.emulator.core.symbols import SymbolMap

ARRAYS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(1, 9), st.sampled_from([1 << bit for bit in range(11)])),
    min_size=1,
    max_size=12,
)


def filled(wanted: list[tuple[int, int, int]]) -> SharedMemory:
    """A map with one array for each (size, count, alignment)."""
    memory = SharedMemory()
    for index, (size, count, alignment) in enumerate(wanted):
        memory.allocate(f"a{index}", size=size, count=count, alignment=alignment, kind="tile")
    return memory


@given(ARRAYS)
def test_elements_are_aligned_and_disjoint(wanted: list[tuple[int, int, int]]) -> None:
    """Every element of every array is aligned as asked, overlaps no other, and lies inside the total size."""
    memory = filled(wanted)
    taken: list[tuple[int, int]] = []
    for array, (size, count, alignment) in zip(memory.arrays, wanted, strict=True):
        for element in range(count):
            start = array.offset + element * array.stride
            assert start % alignment == 0
            taken.append((start, start + size))
    taken.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))
    assert taken[-1][1] <= memory.size


@given(ARRAYS)
def test_no_gap_is_larger_than_alignment_needs(wanted: list[tuple[int, int, int]]) -> None:
    """An array begins less than its alignment behind the one before it: budgets are not wasted."""
    memory = filled(wanted)
    end = 0
    for array, (_, _, alignment) in zip(memory.arrays, wanted, strict=True):
        assert 0 <= array.offset - end < alignment
        end = array.offset + array.size
    assert end == memory.size


@given(ARRAYS)
def test_annotations_tell_the_emulator_everything(wanted: list[tuple[int, int, int]]) -> None:
    """The emulator reads back from the text, byte for byte, which array and element lies where."""
    memory = filled(wanted)
    symbols = SymbolMap.parse("\n".join(f"//@{note}" for note in memory.annotations()))
    for array in memory.arrays:
        for element in range(array.count):
            start = array.offset + element * array.stride
            expected = array.name if array.count == 1 else f"{array.name}[{element}]"
            assert symbols.name(start) == expected


def test_barriers_say_who_arrives_and_who_waits() -> None:
    """A barrier's line names the roles on both sides."""
    memory = SharedMemory()
    memory.allocate("full", size=8, count=2, alignment=8, kind="mbarrier", arrive=("load", "aux"), wait=("mma",))
    assert memory.annotations() == [
        "shared full offset=0 size=16 stride=8 count=2 kind=mbarrier arrive=load,aux wait=mma"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "taken", "size": 8}, "'taken' is declared twice"),
        ({"name": "a", "size": 0}, "size=0"),
        ({"name": "a", "size": 8, "count": -1}, "count=-1"),
        ({"name": "a", "size": 8, "alignment": 24}, "nearest: 32"),
        ({"name": "a", "size": 8, "alignment": 4096}, f"nearest: {BASE_ALIGNMENT}"),
        ({"name": "a", "size": 8, "count": "inputs"}, "count='inputs'"),
        ({"name": ["a"], "size": 8}, "a name that is text"),
        ({"name": "a", "size": 8, "alignment": 16.0}, "alignment=16.0"),
        ({"name": "a", "size": 8, "kind": "barrier"}, "mbarrier, tile, scratch"),
    ],
)
def test_illegal_arrays_are_refused(options: dict[str, object], message: str) -> None:
    """A name used twice, an empty array, an odd alignment and an unknown kind are errors that name the array."""
    memory = SharedMemory()
    memory.allocate("taken", size=16)
    with pytest.raises(TraceError, match="TK-SHARED-001") as caught:
        memory.allocate(**options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert str(options["name"]) in str(caught.value)
    assert memory.size == 16
