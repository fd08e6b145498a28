"""Orders that the solver finds: as short as a bound by hand, never slower, and with the same results."""

from __future__ import annotations

import random

import numpy as np
import pytest
from loops import loop, product, vector

from tilekit.cycles import order
from tilekit.emulator import Device
from tilekit.errors import ArgumentError

READ = "ds_read_b128 v[{0}:{1}], v90"
LOAD = ("s_add_u32 m0, m0, 0x400", "buffer_load_dwordx4 v91, s[8:11], 0 offen lds")


@pytest.fixture
def solver() -> None:
    """The tests that solve need OR-tools."""
    pytest.importorskip("ortools")


@pytest.mark.usefixtures("solver")
def test_reads_and_loads_go_between_the_mfmas():
    """In a row, reads and loads hold up 32 MFMAs; woven in they cost nothing but the branch and the fences."""
    reads = [READ.format(100 + 4 * n, 103 + 4 * n) for n in range(8)]
    text = loop("s_waitcnt lgkmcnt(0)", "s_barrier", *reads, *LOAD * 4, *(product(n) for n in range(32)))
    found = order.best_order(text, chip="gfx950", load_latency=100)
    assert found.optimal
    assert found.found == 2 * 4 + 31 * 16 + 4 + 32
    assert found.after <= found.found + 8
    assert found.after < found.before - 100


@pytest.mark.usefixtures("solver")
def test_vector_instructions_fill_shadows():
    """16 VALU instructions behind 8 MFMAs of 16 clocks: two ahead of them, and two in each shadow but the last."""
    text = loop(*(product(n) for n in range(8)), *(vector(n) for n in range(16)))
    found = order.best_order(text, chip="gfx950")
    assert found.optimal
    assert found.after == 2 * 4 + 7 * 16 + 4 + 32
    assert found.before == 7 * 16 + 8 + 16 * 4 + 32


@pytest.mark.usefixtures("solver")
def test_what_is_best_stays():
    """An order that the model finds no quicker is not taken: the text comes back as it was."""
    text = loop(*(product(n) for n in range(8)))
    found = order.best_order(text, chip="gfx950")
    assert found.text == text
    assert found.before == found.after


@pytest.mark.usefixtures("solver")
@pytest.mark.parametrize("seed", range(6))
def test_random_orders_compute_the_same(seed: int):
    """The emulator gives the same numbers for a random turn and for the order that is found."""
    rng = random.Random(seed)
    registers = [f"v{n}" for n in range(2, 10)]
    names = ["v_add_u32_e32", "v_sub_u32_e32", "v_xor_b32_e32", "v_mul_lo_u32", "v_and_b32_e32"]
    turn = [f"{rng.choice(names)} {rng.choice(registers)}, {rng.choice(registers)}, {rng.choice(registers)}"
            for _ in range(24)]  # fmt: skip
    turn[8:8] = [
        f"v_mfma_i32_16x16x64_i8 v[20:23], v[{2 + 4 * (n % 2)}:{5 + 4 * (n % 2)}], v[4:7], v[20:23]" for n in range(3)
    ]
    turn[4:4] = ["ds_write_b32 v1, v3", "ds_read_b32 v30, v1", "ds_write_b32 v1, v5", "ds_read_b32 v31, v1"]
    turn += ["s_waitcnt lgkmcnt(0)", "s_nop 15", "v_add_u32_e32 v2, v2, v30", "v_add_u32_e32 v3, v3, v31",
             "v_add_u32_e32 v4, v4, v20"]  # fmt: skip
    text = _kernel(turn)
    found = order.best_order(text, loop="turn")
    assert found.after <= found.before
    assert sorted(found.text.split("\n")) == sorted(text.split("\n"))
    assert (_result(text) == _result(found.text)).all()


def _kernel(turn: list[str]) -> str:
    """A kernel that makes three turns and stores eight registers of each lane."""
    start = ["s_load_dwordx2 s[2:3], s[0:1], 0x0", "v_lshlrev_b32_e32 v1, 2, v0", "s_mov_b32 s4, 3"]
    start += [f"v_mul_u32_u24_e32 v{n}, {n}, v0" for n in range(2, 10)] + [
        f"v_mov_b32_e32 v{n}, 0" for n in range(20, 24)
    ]
    ending = ["s_sub_u32 s4, s4, 1", "s_cmp_lg_u32 s4, 0", "s_cbranch_scc1 turn", "s_waitcnt lgkmcnt(0)"]
    stores = [line for n in range(2, 10)
              for line in (f"global_store_dword v1, v{n}, s[2:3]", "v_add_u32_e32 v1, 0x100, v1")]  # fmt: skip
    fields = {"group_segment_fixed_size": 256, "kernarg_size": 8, "user_sgpr_kernarg_segment_ptr": 1,
              "user_sgpr_count": 2, "next_free_vgpr": 64, "next_free_sgpr": 16, "accum_offset": 64}  # fmt: skip
    head = ['.amdgcn_target "amdgcn-amd-amdhsa--gfx950"', ".text", "k:", *start]
    described = [".rodata", ".amdhsa_kernel k", *(f".amdhsa_{name} {value}" for name, value in fields.items())]
    return "\n".join([*head, "turn:", *turn, *ending, *stores, "s_endpgm", *described, ".end_amdhsa_kernel"])


def _result(text: str) -> np.ndarray:
    device = Device("gfx950", seed=0)
    out = device.buffer(np.zeros(8 * 64, np.uint32), "out")
    device.load(text)["k"].launch(grid=1, block=64, args=[out])
    return out.read()


@pytest.mark.usefixtures("solver")
def test_a_turn_that_cannot_be_ordered():
    """A branch within the turn is refused."""
    text = loop(product(0), "s_cbranch_scc0 rest", product(1), "rest:", product(2))
    with pytest.raises(ArgumentError, match="straight run") as caught:
        order.best_order(text, chip="gfx950")
    assert caught.value.code == "TK-CYCLES-008"


def test_without_or_tools(monkeypatch: pytest.MonkeyPatch):
    """Without OR-tools the error says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "ortools.sat.python", None)
    with pytest.raises(ArgumentError, match="schedule") as caught:
        order.best_order(loop(product(0)), chip="gfx950")
    assert caught.value.code == "TK-CYCLES-007"
