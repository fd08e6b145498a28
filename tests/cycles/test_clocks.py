"""Clocks of short loops, reasoned by hand from the figures of gfx950: 4 an issue, 32 a branch that is taken."""

from __future__ import annotations

from itertools import pairwise

import pytest
from loops import loop, product, replayed, vector

from tilekit.cycles import FIGURES, Machine
from tilekit.cycles.machine import PEAK

CHAINED = "v_mfma_f32_16x16x32_bf16 v[{0}:{1}], v[{2}:{3}], v[4:7], 0"


def test_independent_products_run_back_to_back():
    """Eight MFMAs of 16 clocks: the last is issued at 112, the branch at 116, and the next turn begins at 148."""
    report = replayed(loop(*(product(n) for n in range(8))))
    assert report.clocks == 116 + 32
    assert report.busy == (8 * 16 / 148,)
    assert report.flop == 8 * 2 * 16 * 16 * 32
    assert report.peak_share == pytest.approx(8 * 16384 / 148 / 4096)


def test_one_accumulator_is_as_quick_as_many():
    """An MFMA that adds to the last one's result, in the same registers, does not wait for it."""
    assert replayed(loop(*[product(0)] * 8)).clocks == 148


def test_a_result_that_is_a_factor_is_waited_for():
    """Each MFMA multiplies the last one's result: 16 clocks of passes and 20 to be read, so 36 from one to the next."""
    places = [0, 8, 12, 16, 20, 24, 28, 32, 36]
    turn = [CHAINED.format(at, at + 3, was, was + 3) for was, at in pairwise(places)]
    report = replayed(loop(*turn))
    assert report.clocks == 7 * 36 + 4 + 32  # the first multiplies nothing that is waited for
    assert report.idle_by_cause().keys() == {"MFMA result", "branch"}
    assert report.idle_by_cause()["MFMA result"] == 7 * 20


@pytest.mark.parametrize(("chip", "clocks"), [("gfx942", 16 + 16), ("gfx950", 16 + 20)])
def test_vector_instructions_wait_for_a_result(chip: str, clocks: int):
    """A VALU instruction that reads an MFMA's result is issued when LLVM's wait states are over."""
    turn = ["v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]", "v_add_f32_e32 v8, v0, v0"]
    assert replayed(loop(*turn), chip=chip).clocks == clocks + 4 + 32


def test_a_shifted_accumulator_is_waited_for():
    """Results that are added to in other registers than they were written in must be there."""
    turn = [
        "v_mfma_f32_16x16x32_bf16 v[0:3], v[8:11], v[12:15], v[0:3]",
        "v_mfma_f32_16x16x32_bf16 v[2:5], v[8:11], v[12:15], v[2:5]",
    ]
    report = replayed(loop(*turn))
    assert report.clocks > replayed(loop(product(0), product(1))).clocks
    assert "MFMA result" in report.idle_by_cause()


@pytest.mark.parametrize(("count", "gap"), [(0, 16), (1, 16), (2, 16), (3, 20), (4, 24)])
def test_the_shadow_of_an_mfma_holds_two_vector_instructions(count: int, gap: int):
    """16 clocks, less 8 in which the factors are read: two VALU instructions are free, each further one costs 4."""
    turn = [line for n in range(8) for line in (product(n), *(vector(k) for k in range(count)))]
    last = 4 * count + 8 if count else 4
    assert replayed(loop(*turn)).clocks == 7 * gap + last + 32


def test_a_large_mfma_hides_six_vector_instructions():
    """32 clocks of 32x32x16 less 8: six VALU instructions, or three transcendental ones; a packed one does not fit."""
    big = "v_mfma_f32_32x32x16_bf16 a[{0}:{1}], v[0:3], v[4:7], a[{0}:{1}]"
    products = [big.format(16 * n, 16 * n + 15) for n in range(4)]

    def clocks(extra: list[str]) -> float:
        return replayed(loop(*(line for one in products for line in (one, *extra)))).clocks

    bare = 3 * 32
    assert clocks([vector(n) for n in range(6)]) == bare + 8 + 24 + 32
    assert clocks(["v_exp_f32_e32 v100, v90"] * 3) == bare + 8 + 20 + 32
    assert clocks([vector(n) for n in range(7)]) > clocks([vector(n) for n in range(6)]) + 12
    assert clocks(["v_pk_mul_f32 v[100:101], v[90:91], v[92:93]"]) == 3 * (32 + 12 + 4) + 32 + 12 + 4 + 32


def test_a_wait_for_lds():
    """A read of an idle LDS: 56 clocks, and 8 on the bus for 1024 bytes; the MFMA behind the wait comes 4 later."""
    report = replayed(loop("ds_read_b128 v[100:103], v90", "s_waitcnt lgkmcnt(0)", product(0)))
    assert report.clocks == 56 + 8 + 4 + 4 + 32
    assert report.idle_by_cause()["lgkmcnt"] == 60
    waits = [(lost.cause, lost.text, lost.clocks) for lost in report.waits]
    assert waits == [("lgkmcnt", "s_waitcnt lgkmcnt(0)", 60), ("branch", "s_cbranch_scc1 turn", 28)]


def test_a_wait_that_leaves_some_outstanding():
    """lgkmcnt(1) waits for the first of two reads, which come in order: 8 clocks sooner than for both."""
    reads = ["ds_read_b128 v[100:103], v90", "ds_read_b128 v[104:107], v90"]
    both, first = (replayed(loop(*reads, f"s_waitcnt lgkmcnt({left})", product(0))).clocks for left in (0, 1))
    assert both - first == 8


def test_a_wait_for_a_load():
    """A load has its latency, and nothing more where nothing else is loaded."""
    load = "buffer_load_dwordx4 v[100:103], v90, s[0:3], 0 offen"
    report = replayed(loop(load, "s_waitcnt vmcnt(0)"), load_latency=500)
    assert report.clocks == 500 + 4 + 32
    assert [(lost.cause, lost.clocks) for lost in report.waits] == [("vmcnt", 496), ("branch", 28)]


def test_a_wait_that_leaves_loads_outstanding():
    """vmcnt(1) waits for the first of two loads, which was issued 4 clocks sooner than the second."""
    loads = ["buffer_load_dword v100, v90, s[0:3], 0 offen"] * 2
    both, first = (replayed(loop(*loads, f"s_waitcnt vmcnt({left})", product(0))).clocks for left in (0, 1))
    assert both - first == 4


def test_what_loads_write_to_lds_takes_its_time():
    """Loads to LDS write it beside the reads, which come out later than beside loads to registers."""
    reads = ["ds_read_b128 v[100:103], v90"] * 64
    to_lds, to_registers = ("v91, s[0:3], 0 offen lds", "v[104:107], v91, s[0:3], 0 offen")
    clocks = [
        replayed(loop(*[f"buffer_load_dwordx4 {where}"] * 12, *reads), waves=4, simds=4, load_latency=100).clocks
        for where in (to_lds, to_registers)
    ]
    assert 100 <= clocks[0] - clocks[1] <= 4 * 12 * 4  # 48 loads of 1 KB, at 256 bytes a clock


def test_ports_are_shared_by_waves():
    """Two waves of scalar instructions take turns at one port; so do loads and reads of LDS, at another."""
    assert replayed(loop(*["s_mov_b32 s1, 0"] * 64), waves=2).clocks == pytest.approx(2 * 64 * 4, rel=0.1)
    turn = ["buffer_load_dword v100, v90, s[0:3], 0 offen", "ds_read_b32 v101, v90"] * 32
    report = replayed(loop(*turn), waves=2, load_latency=100)
    assert report.clocks == pytest.approx(2 * 64 * 4, rel=0.1)
    one = replayed(loop(*turn), load_latency=100)
    assert one.clocks == pytest.approx(64 * 4 + 32, rel=0.02)


def test_loads_in_flight_are_limited():
    """44 loads of 1 KB at once: in the long run as many a latency."""
    loads = ["buffer_load_dwordx4 v[100:103], v90, s[0:3], 0 offen"] * 64
    report = replayed(loop(*loads), load_latency=4000)
    assert report.clocks == pytest.approx(64 / 44 * 4000, rel=0.02)
    assert report.waits[0].cause == "loads in flight"


def test_the_vector_l1_takes_16_clocks_for_a_wide_load():
    """Loads of 16 bytes a lane follow each other in 16 clocks, of 8 as well, of 4 in 4."""
    for width, clocks in (("dwordx4", 16), ("dwordx2", 16), ("dword", 4)):
        size = {"dwordx4": 4, "dwordx2": 2, "dword": 1}[width]
        target = f"v[100:{99 + size}]" if size > 1 else "v100"
        report = replayed(loop(*[f"buffer_load_{width} {target}, v90, s[0:3], 0 offen"] * 400), load_flight=1000000)
        assert report.clocks == pytest.approx(400 * clocks, rel=0.02)


def test_two_waves_share_a_matrix_core():
    """Each of two waves leaves the core idle while it branches; the other's MFMAs are there then."""
    text = loop(*(product(n) for n in range(8)))
    report = replayed(text, waves=2)
    assert report.clocks == 2 * 128
    assert report.utilisation == 1


def test_two_waves_take_turns_at_barriers():
    """Ping-pong: one wave multiplies while the other, a barrier behind, reads; the core is idle at the changes only."""
    before = ["v_readfirstlane_b32 s5, v0", "s_cmp_eq_u32 s5, 0", "s_cbranch_scc1 together", "s_barrier", "together:"]
    reads = [f"ds_read_b128 v[{100 + 4 * n}:{103 + 4 * n}], v90" for n in range(8)]
    turn = [*reads, "s_waitcnt lgkmcnt(0)", "s_barrier", *(product(n) for n in range(16)), "s_barrier"]
    apart = replayed(loop(*turn, before=before), waves=2)
    level = replayed(loop(*turn), waves=2)
    assert apart.clocks == pytest.approx(2 * 256, abs=24)
    assert level.clocks > apart.clocks + 80
    assert apart.utilisation > 0.95


def test_barriers_wait_for_the_slowest():
    """A wave with nothing to do waits at the barrier for one that has; who waits is said."""
    before = ["v_readfirstlane_b32 s5, v0", "s_cmp_eq_u32 s5, 0", "s_cbranch_scc1 other"]
    other = ["other:", "again:", *(product(n) for n in range(16)), "s_barrier", "s_cbranch_scc1 again", "s_endpgm"]
    text = loop(product(0), "s_barrier", before=before) + "\n" + "\n".join(other)
    report = replayed(text, waves=2, simds=4)
    assert set(report.loops) == {"turn", "again"}
    assert report.clocks == 15 * 16 + 4 + 8 + 32  # the last MFMA, the barrier behind it, its release, a branch
    assert "barrier" in {lost.cause for lost in report.waits}


def test_priority_decides_who_goes_first():
    """Of two waves that want the vector port all the time, the one of higher priority loses nothing."""
    before = ["v_readfirstlane_b32 s5, v0", "s_cmp_eq_u32 s5, 0", "s_cbranch_scc1 turn", "s_setprio 3"]
    text = loop(*(vector(n) for n in range(64)), before=before)
    equal = replayed(loop(*(vector(n) for n in range(64))), waves=2)
    report = replayed(text, waves=2)
    assert equal.clocks == pytest.approx(2 * 64 * 4, rel=0.1)
    rows = [line for line in report.schedule.splitlines() if "wave" in line]
    assert rows[1].count(".") < rows[0].count(".")


def test_wait_states_take_their_time():
    """s_nop 3 is four issue slots, s_sleep 1 is 64 clocks."""
    plain = replayed(loop(product(0))).clocks
    assert replayed(loop(product(0), "s_nop 7")).clocks == plain + 32
    assert replayed(loop(product(0), "s_sleep 1")).clocks == plain + 64


def test_the_chips_differ():
    """gfx942's LDS gives half as much a clock, and its MFMAs of 16 bits do half as much."""
    reads = [f"ds_read_b128 v[{100 + 4 * (n % 16)}:{103 + 4 * (n % 16)}], v90" for n in range(64)]
    old, new = (replayed(loop(*reads), waves=4, simds=4, chip=chip).clocks for chip in ("gfx942", "gfx950"))
    assert old / new == pytest.approx(2, rel=0.05)
    small = loop(*["v_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], a[0:3]"] * 64)
    assert replayed(small, waves=4, simds=4, chip="gfx942").peak_share > 0.95
    assert 0.45 < replayed(small, waves=4, simds=4).peak_share < 0.5


def test_a_change_of_one_figure_is_felt():
    """Every figure of the model matters to some loop: none is there for show."""
    lds = "ds_read_b128 v[100:103], v90"
    load = "buffer_load_dwordx4 v[100:103], v90, s[0:3], 0 offen"
    narrow = "buffer_load_dword v100, v90, s[0:3], 0 offen"
    loops = {
        "simds": [product(0)], "issue": ["s_add_u32 s1, s1, 1"] * 9, "matrix_pass": [product(0)] * 9,
        "matrix_read": [product(0), vector(0)] * 4,
        "matrix_result": ["v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]", "v_add_f32_e32 v9, v0, v0"],
        "packed_after_matrix": [product(0), "v_pk_mul_f32 v[100:101], v[90:91], v[92:93]"],
        "vector": [vector(0)] * 9, "transcendental": ["v_exp_f32_e32 v100, v90"] * 9,
        "quarter_rate": ["v_mul_lo_u32 v100, v90, v91"] * 9, "lane_swap": ["v_permlane32_swap_b32 v100, v101"] * 9,
        "scalar_load": ["s_load_dword s0, s[2:3], 0x0", "s_waitcnt lgkmcnt(0)"], "branch": [product(0)],
        "barrier": ["s_barrier"], "lds_bytes": [lds] * 20, "lds_write_bytes": ["ds_write_b128 v90, v[100:103]"] * 20,
        "lds_bus": [lds] * 20, "lds_queue": [lds] * 20 + ["s_nop 15"] * 9,
        "lds_latency": [lds, "s_waitcnt lgkmcnt(0)"], "load_dword": [narrow] * 40, "load_wide": [load] * 40,
        "load_queue": [load] * 20 + ["s_nop 15"] * 40, "load_latency": [load, "s_waitcnt vmcnt(0)"],
        "load_flight": [load] * 60,
    }  # fmt: skip
    assert loops.keys() == {figure.name for figure in FIGURES}
    for figure in FIGURES:
        waves = 4 if figure.name in ("simds", "lds_bytes", "lds_write_bytes") else 1
        value = getattr(Machine.of("gfx950"), figure.name)
        changed = {"simds": 1, "lds_queue": 2, "load_queue": 2, "lds_bytes": value // 2}.get(figure.name, 2 * value)
        text = loop(*loops[figure.name])
        usual = replayed(text, waves=waves, simds=4).clocks
        other = replayed(text, waves=waves, **{"simds": 4, figure.name: changed}).clocks
        assert usual != other, figure.name


def test_every_figure_says_where_it_is_from():
    """Figures have a source for both chips; what is assumed names chips."""
    for figure in FIGURES:
        assert figure.source
        assert figure.what
        assert set(figure.assumed) <= {"gfx942", "gfx950"}
    assert PEAK["gfx950"][16] == 2 * PEAK["gfx942"][16]
