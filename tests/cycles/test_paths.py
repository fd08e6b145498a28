"""Which loop a wave runs, and what of it: labels, branches by the wave's number, loops within loops, bad input."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from loops import loop, product, replayed

from tilekit.cycles import replay_loop
from tilekit.errors import ArgumentError

CORPUS = Path(__file__).parents[1] / "emulator" / "gcn" / "corpus" / "asm"
TWO = "\n".join(
    ["start:", "first:", product(0), "s_cbranch_scc1 first", "second:", *(product(n) for n in range(4)),
     "s_cbranch_scc1 second", "s_endpgm"]
)  # fmt: skip


def _refused(code: str, *words: str, **options: object) -> str:
    with pytest.raises(ArgumentError) as caught:
        replayed(**options)  # type: ignore[arg-type]
    assert caught.value.code == code
    for word in words:
        assert word in caught.value.message
    return caught.value.message


def test_a_wave_stops_at_the_first_loop_with_mfmas():
    """Without a label it is the first loop that the wave comes to."""
    assert replayed(TWO).loops == ("first",)


def test_a_label_or_a_line_chooses_the_loop():
    """A later loop is chosen by its label, or by the line of its first instruction."""
    assert replayed(TWO, loop="second").loops == ("second",)
    assert replayed(TWO, loop="6").loops == ("second",)
    assert replayed(TWO, loop="second").instructions == 5


def test_the_inner_loop_is_the_one():
    """Of two loops with MFMAs, one in the other, the inner one is replayed."""
    text = loop(product(0), "inner:", product(1), "s_cbranch_scc1 inner")
    assert replayed(text).loops == ("inner",)


def test_waves_take_their_own_branches():
    """A branch by the wave's number leads waves to different copies of the loop, as AITER's do."""
    before = ["v_lshrrev_b32_e32 v1, 6, v0", "v_readfirstlane_b32 s5, v1", "s_cmp_lt_u32 s5, 2", "s_cbranch_scc1 turn"]
    other = ["copy:", product(0), product(1), "s_cbranch_scc1 copy", "s_endpgm"]
    text = loop(product(0), before=[*before, "s_branch copy"]) + "\n" + "\n".join(other)
    assert replayed(text, waves=4).loops == ("turn", "turn", "copy", "copy")


@pytest.mark.parametrize(
    "test",
    [
        ["v_lshrrev_b32_e32 v1, 6, v0", "v_and_b32_e32 v1, 1, v1", "v_cmp_eq_u32_e32 vcc, 1, v1",
         "s_cbranch_vccz turn"],
        ["v_bfe_u32 v1, v0, 6, 1", "v_readfirstlane_b32 s5, v1", "s_cmp_eq_u32 s5, 1", "s_cbranch_scc0 turn"],
        ["v_bfe_u32 v1, v0, 6, 1", "v_readfirstlane_b32 s5, v1", "s_cmp_eq_u32 s5, 1",
         "s_cselect_b64 s[6:7], -1, 0", "s_cmp_lg_u64 s[6:7], 0", "s_cbranch_scc0 turn"],
        ["v_cmp_gt_u32_e64 s[6:7], 64, v0", "s_and_saveexec_b64 s[8:9], s[6:7]", "s_cbranch_execnz turn"],
        ["v_readfirstlane_b32 s5, v0", "s_lshr_b32 s5, s5, 6", "s_bfe_u32 s5, s5, 0x10000", "s_cbranch_scc0 turn"],
        ["v_readfirstlane_b32 s5, v0", "s_add_u32 s5, s5, 0xffffffc0", "s_cbranch_scc0 turn"],
        ["v_readfirstlane_b32 s5, v0", "s_mov_b32 s6, 0x40", "s_cmp_ge_i32 s5, s6", "s_cselect_b32 s7, 1, 0",
         "s_cmpk_eq_i32 s7, 0x0", "s_cbranch_scc1 turn"],
    ],
)  # fmt: skip
def test_branches_are_decided_from_the_text(test: list[str]):
    """Vector and scalar tests of the thread's number: wave 0 goes to one loop, wave 1 to the other, and no remark."""
    other = ["copy:", product(0), "s_cbranch_scc1 copy", "s_endpgm"]
    text = loop(product(0), before=[*test, "s_branch copy"]) + "\n" + "\n".join(other)
    report = replayed(text, waves=2)
    assert report.loops == ("turn", "copy")
    assert not report.remarks


def test_what_the_text_does_not_decide_is_said_and_can_be_chosen():
    """A branch by an argument goes on, with a remark; `taken` sends it the other way."""
    turn = ["s_cmp_lt_u32 s9, s10", "s_cbranch_scc1 rest", *(product(n) for n in range(8)), "rest:", product(8)]
    text = loop(*turn)
    whole, short = replayed(text), replayed(text, taken={"rest": True})
    assert len(whole.remarks) == 1
    assert "rest" in whole.remarks[0] or "go on" in whole.remarks[0]
    assert not short.remarks
    assert whole.clocks - short.clocks == 8 * 16 - 28  # eight MFMAs, and a branch that is not taken costs 28 less


def test_a_turn_goes_where_its_mfmas_are():
    """Where one way of an undecided branch comes by MFMAs and the other does not, the turn goes there."""
    turn = ["s_cbranch_scc1 products", "s_branch rest", "products:", product(0), product(1), "rest:", "s_nop 0"]
    report = replayed(loop(*turn))
    assert report.flop == 2 * 2 * 16 * 16 * 32
    assert not report.remarks


def test_a_way_that_leads_to_no_loop_is_given_up():
    """Where one choice ends the kernel by a later branch that the text decides, the other choice is made."""
    before = ["s_cbranch_scc1 far", "s_mov_b32 s1, 1", "s_branch meet", "far:", "s_mov_b32 s1, 0", "meet:",
              "s_cmp_eq_u32 s1, 1", "s_cbranch_scc1 done"]  # fmt: skip
    text = loop(product(0), before=before).replace("s_endpgm", "done:\ns_endpgm")
    assert replayed(text).loops == ("turn",)


def test_a_loop_within_goes_round_as_often_as_the_text_or_the_caller_says():
    """A count in the text is followed; one from data must be given."""
    counted = [
        "s_mov_b32 s1, 3",
        "inner:",
        "s_nop 0",
        "s_sub_u32 s1, s1, 1",
        "s_cmp_lg_u32 s1, 0",
        "s_cbranch_scc1 inner",
    ]
    assert replayed(loop(product(0), *counted)).instructions == 1 + 1 + 3 * 4 + 1
    spin = ["inner:", "ds_read_b32 v1, v2", "s_waitcnt lgkmcnt(0)", "s_cmp_lg_u32 s9, 0", "s_cbranch_scc1 inner"]
    text = loop(product(0), *spin)
    message = _refused("TK-CYCLES-004", "inner", text=text, loop="turn")
    assert "inner=1" in message
    once, thrice = (replayed(text, loop="turn", turns={"inner": n}).instructions for n in (1, 3))
    assert thrice - once == 2 * 4


def test_no_loop():
    """A text without a loop is refused, and so is one that never comes to it."""
    _refused("TK-CYCLES-002", "no loop", text=f"start:\n{product(0)}\ns_endpgm")
    _refused("TK-CYCLES-002", "no loop", text=f"{product(0)}", loop="turn")


def test_no_mfma():
    """A loop without MFMAs has clocks, and its matrix cores do nothing."""
    report = replayed(loop("global_load_dword v1, v2, s[0:1]", "s_waitcnt vmcnt(0)"))
    assert report.utilisation == report.peak_share == report.flop == 0
    assert report.clocks > 1000
    assert "no MFMA" in str(report)


def test_an_unknown_label_has_a_nearest():
    """The message names the loops, and the nearest."""
    assert "'second'" in _refused("TK-CYCLES-003", "first, second", text=TWO, loop="secnd")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"chip": "gfx90a"}, "gfx942"), ({"chip": "gfx95"}, "gfx950"), ({"waves": 0}, "1 to 16"),
        ({"waves": 17}, "nearest legal: 16"), ({"workgroups": 33}, "1 to 32"),
        ({"workgroups": 9}, "at most 8"),
        ({"k_tiles": 0}, "1 to"), ({"load_latency": -5}, "nearest legal: 1"), ({"load_latncy": 5}, "'load_latency'"),
        ({"kernel": "stop"}, "a label of the text"), ({"turns": {"x": 0}}, "turns of x"), ({"lds_ways": 0}, "1 to 64"),
    ],
)  # fmt: skip
def test_arguments_that_are_not_legal(options: dict[str, object], word: str):
    """Each is named with what is legal and the nearest legal value."""
    _refused("TK-CYCLES-001", word, next(iter(options)).split("_")[0], text=TWO, **{"waves": 4, **options})


def test_texts_that_cannot_be_read():
    """Syntax, a branch to nowhere, and nothing at all."""
    _refused("TK-CYCLES-005", "line 2", text="start:\n  v_add_f32 v0, ]\n")
    _refused("TK-CYCLES-005", "elsewhere", text="start:\n  s_branch elsewhere\n")
    _refused("TK-CYCLES-005", "no instructions", text="")


def test_waves_that_never_meet():
    """A wave that waits at a barrier, which another does not have in its loop, is named."""
    before = ["v_readfirstlane_b32 s5, v0", "s_cmp_eq_u32 s5, 0", "s_cbranch_scc1 turn"]
    other = ["copy:", product(0), "s_cbranch_scc1 copy", "s_endpgm"]
    text = loop(product(0), "s_barrier", before=[*before, "s_branch copy"]) + "\n" + "\n".join(other)
    _refused("TK-CYCLES-006", "waves 0 wait", text=text, waves=2)


@pytest.mark.parametrize(
    "name", ["amd_matmul_bf16.gfx950", "attention.gfx950", "matmul_mxfp4.gfx950", "attention.gfx942"]
)
def test_what_triton_compiled(name: str):
    """Kernels of another compiler are replayed as they are: their loops have MFMAs, and lose clocks to waits."""
    with lzma.open(CORPUS / f"{name}.s.xz", "rt") as file:
        report = replay_loop(file.read())
    assert 0 < report.utilisation < 1
    assert report.idle_by_cause()
    assert report.chip == name.rpartition(".")[2]


def test_the_schedule_is_drawn():
    """A row for each wave and each matrix core, of the turn's length, with letters that the legend explains."""
    report = replayed(loop(*(product(n) for n in range(8)), "ds_read_b128 v[100:103], v90"), waves=2, simds=2)
    lines = report.schedule.splitlines()
    assert lines[0] == f"  one turn, {report.clocks:.0f} clocks; a column is 4 clocks"
    cores = [line for line in lines if line.startswith("  SIMD")]
    waves = [line.split(maxsplit=2)[2] for line in lines if line.startswith("    wave")]
    assert len(cores) == len(waves) == 2
    assert all(row.count("M") == 8 and row.count("r") == 1 and row.count("j") == 1 for row in waves)
    assert len(waves[0]) == report.clocks / 4
    assert cores[0].count("#") == 8 * 16 // 4


def test_facts_are_json():
    """The report's facts have everything, in types that JSON takes."""
    import json

    facts = json.loads(json.dumps(replayed(TWO).facts()))
    assert facts["loops"] == ["first"]
    assert facts["utilisation"] == pytest.approx(facts["busy"][0])
    assert {"cause", "line", "text", "clocks"} == facts["idle"][0].keys()


def test_labels_at_one_place_are_told_apart():
    """Of two branches to one place, that is taken which names the label; the other goes on."""
    inner = [
        "s_cmp_lt_u32 s9, s10",
        "s_cbranch_scc1 outer",
        product(0),
        "s_cmp_lt_u32 s11, s12",
        "s_cbranch_scc1 inner",
        *(product(n) for n in range(1, 8)),
        "inner:",
        "outer:",
        product(8),
    ]
    text = loop(*inner)
    whole, without, short = (replayed(text, taken=taken) for taken in ({}, {"outer": True}, {"inner": True}))
    assert (whole.flop, without.flop, short.flop) == tuple(n * whole.flop // 9 for n in (9, 1, 2))
