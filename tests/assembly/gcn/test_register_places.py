"""Places of registers: alignment, sharing, limits, what is reported, and an independent check of all of it."""

from __future__ import annotations

import random

import pytest

from tests.assembly.gcn.notation import read
from tests.assembly.gcn.random_kernels import RandomKernel
from tests.assembly.gcn.verification import verify
from tilekit.assembly.errors import RegisterError
from tilekit.assembly.gcn.allocation import Allocation, allocate
from tilekit.assembly.gcn.code import Branch, Code, Instruction, Label, Part, Virtual
from tilekit.assembly.gcn.flow import blocks_of
from tilekit.assembly.gcn.liveness import live_ranges
from tilekit.assembly.gcn.register_file import accumulator_file, most_vectors, waves_with
from tilekit.errors import ArgumentError


def places(text: str) -> dict[str, int]:
    """Where each register of a kernel is."""
    code, registers = read(text)
    allocation = allocate(code)
    assert verify(code, allocation) == []
    return {name: allocation.places[register] for name, register in registers.items()}


def tile_kernel(*tiles: int, file: str = "vector", at_once: bool = True) -> Code:
    """Tiles of so many words, all held at once, or one after the other."""
    registers = [Virtual(f"tile{n}", file, words) for n, words in enumerate(tiles)]  # type: ignore[arg-type]
    parts = [Part(r, 0, r.words) for r in registers]
    writes = [Instruction("v_write {0}", (p,), (), (p,), role="load") for p in parts]
    reads = [Instruction("v_read {0}", (p,), (p,), (), role="store") for p in parts]
    items = [*writes, *reads] if at_once else [i for pair in zip(writes, reads, strict=True) for i in pair]
    return Code([*items, Instruction("s_endpgm")])


def test_a_result_takes_the_place_of_an_operand_that_ends_there() -> None:
    """One register is enough for a chain of single words."""
    assert places("""
        a = vector
        b = vector
        c = vector
        v_mov_b32_e32 a, 0
        v_add_u32_e32 b, 1, a
        v_add_u32_e32 c, 1, b
        global_store_dword c, c, off
        s_endpgm
    """) == {"a": 0, "b": 0, "c": 0}


def test_tuples_begin_where_instructions_can_name_them() -> None:
    """VGPR tuples at even indices, scalar pairs at even ones, wider scalars at multiples of four."""
    assert places("""
        arguments = scalar 2 @0
        one = scalar
        four = scalar 4
        two = scalar 2
        tid = vector @0
        x = vector
        t = vector 3
        s_mov_b32 one, 0
        s_load_dwordx4 four, arguments, 0x0
        s_load_dwordx2 two, arguments, 0x10
        v_mov_b32_e32 x, one
        global_load_dwordx3 t, x, four[0:2]
        global_store_dwordx3 x, t, two
        global_store_dword x, tid, four[2:4]
        s_endpgm
    """) == {"arguments": 0, "one": 2, "four": 4, "two": 8, "tid": 0, "x": 1, "t": 2}


def test_a_fixed_register_keeps_its_place_free_until_it_ends() -> None:
    """What comes before the last read of a register that the hardware fills goes elsewhere, and may follow it there."""
    assert places("""
        x = vector
        tid = vector @0
        y = vector
        v_mov_b32_e32 x, 0
        global_store_dword x, tid, off
        v_mov_b32_e32 y, 0
        global_store_dword x, y, off
        s_endpgm
    """) == {"x": 1, "tid": 0, "y": 0}


def test_a_short_value_goes_into_a_hole() -> None:
    """A place is free between two stretches of the register that has it."""
    assert places("""
        x = vector 2
        y = vector 2
        global_load_dwordx2 x, off
        global_store_dwordx2 x, off
        global_load_dwordx2 y, off
        global_store_dwordx2 y, off
        global_load_dwordx2 x, off
        global_store_dwordx2 x, off
        s_endpgm
    """) == {"x": 0, "y": 0}


def test_counts_are_what_the_descriptor_wants() -> None:
    """accum_offset is a multiple of 4, next_free_vgpr counts the gap below it, and fixed registers count."""
    code, _ = read("""
        groups = scalar @5
        v = vector 5
        a = accumulator 16
        v_set v
        v_mfma +a, v[0:2], v[2:4]
        global_store v, a
        s_endpgm
    """)
    allocation = allocate(code)
    assert (allocation.vgprs, allocation.agprs, allocation.sgprs) == (5, 16, 0)
    assert (allocation.accum_offset, allocation.next_free_vgpr, allocation.next_free_sgpr) == (8, 24, 1)
    assert allocation.waves_per_simd == 8
    only, _ = read("groups = scalar @5\ns_cmp_lt_u32 groups, 4\ns_endpgm")
    allocation = allocate(only)
    assert (allocation.sgprs, allocation.next_free_vgpr, allocation.accum_offset) == (6, 1, 4)


@pytest.mark.parametrize(
    ("waves", "vectors"), [(1, 512), (2, 256), (3, 168), (4, 128), (5, 96), (6, 80), (7, 72), (8, 64)]
)
def test_waves_share_the_file(waves: int, vectors: int) -> None:
    """512 registers a lane in granules of 8."""
    assert most_vectors(waves) == vectors
    assert waves_with(vectors) == waves
    assert waves_with(vectors + 1) == waves - 1


def test_accumulators_are_in_agprs_where_these_are_more_room() -> None:
    """Only one wave on a SIMD has registers that VGPRs cannot name."""
    assert [accumulator_file(waves) for waves in (None, 1, 2, 8)] == ["vector", "accumulator", "vector", "vector"]


def test_exactly_what_there_is_fits() -> None:
    """256 VGPRs and 256 AGPRs at one wave, 168 at three, 102 SGPRs; one more does not."""
    assert allocate(tile_kernel(256)).vgprs == 256
    assert allocate(tile_kernel(128, 40), waves_per_simd=3).vgprs == 168
    assert allocate(tile_kernel(100, 2, file="scalar")).sgprs == 102
    assert allocate(tile_kernel(256, 256, at_once=False)).vgprs == 256
    both = Code([*tile_kernel(256).items[:-1], *tile_kernel(256, file="accumulator").items])
    assert allocate(both).next_free_vgpr == 512
    for code in (tile_kernel(256, 1), tile_kernel(256, 2, file="accumulator"), tile_kernel(100, 3, file="scalar")):
        with pytest.raises(RegisterError):
            allocate(code)


def test_too_many_name_file_place_and_holders() -> None:
    """The error has the peak, the line that asks for it, who holds what there largest first, and what would fit."""
    code, _ = read("""
        a = vector 64
        b = vector 16
        x = vector 2
        v_set a
        v_set b
        global_load_dwordx2 x, off
        v_mfma_f32_32x32x8_f16 +a, x, x
        global_store_dwordx2 x, b, off
        s_endpgm
    """)
    with pytest.raises(RegisterError) as raised:
        allocate(code, waves_per_simd=7)
    error = raised.value
    assert (error.code, error.file, error.needed, error.limit) == ("TK-REG-001", "vector", 82, 72)
    assert str(error) == (
        "82 VGPRs are needed at once, and with 7 waves a SIMD there are 72; nearest legal: 10 fewer at that place, "
        "for instance of the 64 that are accumulators, or waves_per_simd=5\n"
        "VGPRs: at most 82 at once at case.py:6 (Test.case) (global_load_dwordx2)\n"
        "    64  a\n"
        "    16  b\n"
        "     2  x [TK-REG-001]"
    )


def test_scalars_that_are_too_many_are_named() -> None:
    """The peak of scalars has nothing to do with waves."""
    with pytest.raises(
        RegisterError, match=r"^103 SGPRs are needed at once, and there are 102; nearest legal: 1 fewer"
    ):
        allocate(tile_kernel(100, 3, file="scalar"), waves_per_simd=2)


def test_vgprs_that_are_too_many_at_one_wave_point_to_agprs() -> None:
    """Where accumulators fill VGPRs and the AGPRs are free, the error says so."""
    code, _ = read("""
        a = vector 256
        x = vector 2
        v_set a
        global_load_dwordx2 x, off
        v_mfma_f32_32x32x8_f16 +a, x, x
        s_endpgm
    """)
    with pytest.raises(RegisterError, match="or accumulators in AGPRs"):
        allocate(code)


@pytest.mark.parametrize("waves", [0, 9, -1])
def test_waves_that_no_simd_holds_are_refused(waves: int) -> None:
    """1 to 8, with the nearest named."""
    with pytest.raises(ArgumentError, match=r"waves_per_simd: given .*legal: 1 to 8; nearest legal: [18]"):
        allocate(tile_kernel(4), waves_per_simd=waves)


def test_a_late_tile_finds_a_gap_that_small_values_would_fill() -> None:
    """If placing in order of begin leaves no run that is long enough, tiles are placed first."""
    singles = [Virtual(f"x{n}", "vector") for n in range(128)]
    odd, tile = singles[1::2], Virtual("tile", "vector", 64)
    parts = {r: Part(r, 0, r.words) for r in [*singles, tile]}
    items = [Instruction("v_set {0}", (parts[r],), (), (parts[r],)) for r in singles]
    items += [Instruction("v_use {0}", (parts[r],), (parts[r],)) for r in singles[::2]]
    items += [Instruction("v_set {0}", (parts[tile],), (), (parts[tile],))]
    items += [Instruction("v_use {0}", (parts[r],), (parts[r],)) for r in [*odd, tile]]
    code = Code([*items, Instruction("s_endpgm")])
    allocation = allocate(code, waves_per_simd=4)
    assert verify(code, allocation) == []
    assert allocation.vgprs == 128 == allocation.pressure["vector"].needed


def test_the_report_has_the_peaks_and_what_is_held() -> None:
    """Counts, and of each file its peak with its holders and roles: what `.explain()` shows."""
    code = tile_kernel(8, 4)
    assert allocate(code).report() == (
        "12 VGPRs, 0 AGPRs, 0 SGPRs: 8 waves a SIMD\n"
        "VGPRs: at most 12 at once (v_write)\n"
        "     8  tile0 of load\n"
        "     4  tile1 of load\n"
        "  by role: load 12, store 12"
    )


@pytest.mark.parametrize("first", range(0, 500, 50))
def test_random_kernels_keep_every_value(first: int) -> None:
    """In five hundred kernels with loops, parted lanes, tiles and pairs, no value is overwritten before it is read."""
    for seed in range(first, first + 50):
        kernel = RandomKernel(seed, 25 + seed % 40, nesting=0.1 + seed % 4 / 10)
        assert verify(kernel.code, allocate(kernel.code)) == [], seed


@pytest.mark.parametrize("seed", range(40))
def test_random_ways_keep_every_value(seed: int) -> None:
    """So it is in code whose branches go anywhere, into the middle of parted lanes, too."""
    code = tangle(random.Random(seed))
    assert verify(code, allocate(code)) == []


def tangle(draw: random.Random) -> Code:
    """Instructions on a few registers, with labels and branches wherever the dice put them."""
    vectors = [Virtual(f"v{n}", "vector", draw.choice((1, 1, 2, 3, 4))) for n in range(24)]
    scalars = [Virtual(f"s{n}", "scalar", draw.choice((1, 2, 4))) for n in range(12)]
    code, labels = Code(), [f"L{n}" for n in range(draw.randrange(1, 8))]

    def some(registers: list[Virtual]) -> Part:
        register = draw.choice(registers)
        if draw.random() < 0.5:
            return Part(register, 0, register.words)
        return Part(register, draw.randrange(register.words), 1)

    for _ in range(draw.randrange(20, 120)):
        writes = (some(vectors),) if draw.random() < 0.7 else (some(scalars),)
        reads = tuple(some(draw.choice((vectors, vectors, scalars))) for _ in range(draw.randrange(3)))
        change = draw.random() < 0.2
        code.items.append(
            Instruction(
                "x", (), reads, writes, frozenset({"exec"} if change else ()), partial=draw.random() < 0.5,
                lanes=draw.choice(("any", "fewer", "more")),
            )
        )  # fmt: skip
    for label in labels:
        code.items.insert(draw.randrange(len(code.items)), Label(label))
        for _ in range(2):
            branch = Branch(label, draw.choice((None, "scc0", "execz", "scc1")))
            code.items.insert(draw.randrange(len(code.items)), branch)
    code.items.append(Instruction("s_endpgm"))
    return code


def test_the_check_notices_two_registers_in_one_place() -> None:
    """A register that is put where another one is alive is named; one that is put where none is, is not."""
    draw = random.Random(7)
    wrong = 0
    for seed in range(140):
        code = RandomKernel(seed, 30).code
        allocation = allocate(code)
        ranges = live_ranges(code, blocks_of(code))
        # Words of tiles, and lanes of what is written where lanes have parted, need not be held at once.
        writes = [(i.partial, part.register) for i in code.items if isinstance(i, Instruction) for part in i.writes]
        whole = {register for _, register in writes} - {register for partial, register in writes if partial}
        for _ in range(6):
            a, b = draw.sample([r for r in allocation.places if r.file == "vector" and r.fixed is None], 2)
            moved = {**allocation.places, a: allocation.places[b] // 2 * 2}
            broken = Allocation(moved, 256, allocation.agprs, allocation.sgprs, allocation.pressure)
            rivals = [
                other
                for other, place in moved.items()
                if other is not a and other.file == "vector" and meet(ranges[a], ranges[other])
                and moved[a] < place + other.words and place < moved[a] + a.words
            ]  # fmt: skip
            problems = verify(code, broken)
            if not rivals:
                assert problems == [], seed
            elif a in whole and all(register.words == 1 for register in (a, *rivals)):
                assert problems, (seed, a.name)
                wrong += 1
    assert wrong > 80


def meet(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> bool:
    """Whether two ranges have a slot in common."""
    return any(a <= d and c <= b for a, b in first for c, d in second)
