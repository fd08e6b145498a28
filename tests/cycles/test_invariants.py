"""What holds for any loop: random ones, drawn afresh, are never faster than the machine, nor for more work."""

from __future__ import annotations

import os
import random
import sys

import pytest
from loops import loop, product, replayed, vector

from tilekit.errors import ArgumentError

SEED = int(os.environ.get("TILEKIT_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 30)


def _instruction(rng: random.Random) -> str:
    n = rng.randrange(16)
    return rng.choice(
        [
            product(n), product(n), product(n), vector(n), vector(n), "s_add_u32 s1, s1, 4", "s_nop 2",
            f"ds_read_b128 v[{100 + 4 * n}:{103 + 4 * n}], v90", f"ds_read_b64 v[{100 + 2 * n}:{101 + 2 * n}], v90",
            "ds_write_b128 v90, v[100:103]", "buffer_load_dwordx4 v251, s[8:11], 0 offen lds",
            "buffer_load_dword v100, v90, s[8:11], 0 offen", f"s_waitcnt vmcnt({rng.randrange(8)})",
            f"s_waitcnt lgkmcnt({rng.randrange(4)})", f"v_exp_f32_e32 v{100 + n}, v90",
            "v_pk_mul_f32 v[92:93], v[94:95], v[94:95]",
            f"v_mfma_f32_32x32x16_bf16 v[0:15], v[{16 + n}:{19 + n}], v[40:43], v[0:15]", "v_add_f32_e32 v50, v0, v1",
        ]
    )  # fmt: skip


def _turn(rng: random.Random) -> list[str]:
    return [_instruction(rng) for _ in range(rng.randrange(1, 60))]


@pytest.mark.parametrize("number", range(40))
def test_no_unit_does_more_than_it_can(number: int):
    """No matrix core is busy for more clocks than there are, no wave issues more than an instruction in four clocks."""
    rng = random.Random(SEED + number)
    turn = _turn(rng)
    waves = rng.randrange(1, 9)
    report = replayed(loop(*turn), waves=waves, simds=4)
    assert all(share <= 1 + 1e-9 for share in report.busy), SEED
    assert report.peak_share <= 1 + 1e-9
    assert report.clocks >= 4 * len(turn) + 32, SEED
    reads = sum(line.startswith("ds_read_b128") for line in turn)
    assert report.clocks >= 4 * reads * waves * (1 - 1e-9), SEED
    assert sum(lost.clocks for lost in report.idle) <= report.clocks * (1 + 1e-9) + 1


@pytest.mark.parametrize("number", range(30))
def test_one_wave_alone_is_monotone(number: int):
    """A wait removed, or loads that land sooner, never make a lone wave's turn longer.

    But for a little: a read of LDS that comes sooner may meet what a load writes there just then, and a load that
    starts sooner is one more of those that a later wait counts (6 % with seed 803614782).
    """
    rng = random.Random(SEED + 1000 + number)
    turn = _turn(rng)
    whole = replayed(loop(*turn)).clocks
    most = whole * 1.1 + 4
    assert replayed(loop(*turn), load_latency=500).clocks <= most, SEED
    waits = [place for place, line in enumerate(turn) if line.startswith("s_waitcnt")]
    for place in waits[:4]:
        assert replayed(loop(*turn[:place], *turn[place + 1 :])).clocks <= most, (SEED, place)


@pytest.mark.parametrize("number", range(30))
def test_another_wave_gives_no_wave_more(number: int):
    """With another wave on the SIMD no wave is faster than alone, and both together are at most twice as slow."""
    rng = random.Random(SEED + 2000 + number)
    text = loop(*_turn(rng))
    alone, both = replayed(text).clocks, replayed(text, waves=2).clocks
    assert alone * 0.99 - 1 <= both <= 2.1 * alone + 64, SEED


def test_the_same_text_gives_the_same_report():
    """Nothing depends on chance: two replays are equal to the last letter of the drawing."""
    text = loop(*_turn(random.Random(SEED)))
    assert replayed(text, waves=8, simds=4) == replayed(text, waves=8, simds=4)


def test_a_replayed_instruction_is_cheap():
    """A loop of 1,000 instructions on eight waves: some 60 calls of Python functions for each of them and each wave."""
    from tilekit.cycles.loop import replay_loop

    kinds = [product, vector, lambda n: f"ds_read_b128 v[{100 + 4 * (n % 16)}:{103 + 4 * (n % 16)}], v90"]
    text = loop(*(kinds[n % 3](n % 32) for n in range(1000)))
    replay_loop(text, chip="gfx950", waves=8)  # reads the text, which is kept
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        replay_loop(text, chip="gfx950", waves=8)
    finally:
        sys.setprofile(None)
    assert calls < 75 * 8 * 1000


@pytest.mark.parametrize("number", range(30))
def test_damaged_texts_are_refused_in_words(number: int):
    """A text with lines lost, doubled or cut either has a report or an error with a code."""
    rng = random.Random(SEED + 3000 + number)
    lines = loop(*_turn(rng)).split("\n")
    for _ in range(3):
        place = rng.randrange(len(lines))
        what = rng.randrange(3)
        if what == 0:
            del lines[place]
        elif what == 1:
            lines.insert(place, rng.choice(lines))
        else:
            lines[place] = lines[place][: rng.randrange(1 + len(lines[place]))]
    found = ""
    try:
        clocks = replayed("\n".join(lines), waves=2).clocks
    except ArgumentError as error:
        clocks, found = 0, error.code
    assert clocks > 0 or found.startswith("TK-CYCLES-"), SEED
