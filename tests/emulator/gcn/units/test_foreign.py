"""What foreign kernels need: guesses of compare-and-swap loops, flat addresses, addresses that wrap, wait states."""

from __future__ import annotations

import numpy as np
import pytest
from programs import program, run

from tilekit.emulator import EmulatorError
from tilekit.emulator.core.errors import RaceError
from tilekit.emulator.gcn.errors import GcnSyntaxError
from tilekit.emulator.gcn.lint import lint

SWAP = """
    v_mov_b32_e32 v9, 0
    {load}
    s_waitcnt vmcnt(0) lgkmcnt(0)
    {copy}
    s_mov_b64 s[6:7], 0
.Lagain:
    v_add_u32_e32 v4, 1, v5
    global_atomic_cmpswap v4, v9, v[4:5], s[2:3] sc0
    s_waitcnt vmcnt(0)
    v_cmp_eq_u32_e32 vcc, v4, {compared}
    s_or_b64 s[6:7], vcc, s[6:7]
    v_mov_b32_e32 v5, v4
    s_andn2_b64 exec, exec, s[6:7]
    s_cbranch_execnz .Lagain
"""


@pytest.mark.parametrize(
    ("load", "copy"),
    [("global_load_dword v5, v9, s[2:3]", ""), ("global_load_dword v6, v9, s[2:3]", "v_mov_b32_e32 v5, v6"),
     ("s_load_dword s8, s[2:3], 0x0", "v_mov_b32_e32 v5, s8")],
)  # fmt: skip
def test_a_loop_of_compare_and_swap_may_begin_with_any_guess(load: str, copy: str) -> None:
    """An ordinary load gives the first value to compare with, and every lane's increment counts."""
    memory = np.zeros(1, np.uint32)
    report = run(SWAP.format(load=load, copy=copy, compared="v5"), memory, block=256)
    assert report.clean
    assert memory[0] == 256


def test_a_load_whose_value_is_not_compared_is_no_guess() -> None:
    """The same load besides atomics, its value put to another use, is a race."""
    body = SWAP.format(load="global_load_dword v7, v9, s[2:3]", copy="v_mov_b32_e32 v5, 0", compared="v5")
    with pytest.raises(RaceError):
        run(body + "\n global_store_dword v9, v7, s[2:3] offset:4\n", np.zeros(2, np.uint32), block=256)


FLAT = """
    v_lshlrev_b32_e32 v1, 2, v0
    s_mov_b64 s[6:7], src_shared_base
    v_mov_b32_e32 v3, s7
    v_mov_b32_e32 v2, v1
    flat_store_dword v[2:3], v0
    s_mov_b64 s[6:7], src_private_base
    v_mov_b32_e32 v5, s7
    v_mov_b32_e32 v4, 8
    v_add_u32_e32 v6, 100, v0
    flat_store_dword v[4:5], v6
    s_waitcnt vmcnt(0) lgkmcnt(0)
    v_and_b32_e32 v7, 1, v0
    v_cmp_eq_u32_e32 vcc, 1, v7
    s_nop 1
    v_cndmask_b32_e32 v2, v2, v4, vcc
    v_cndmask_b32_e32 v3, v3, v5, vcc
    flat_load_dword v8, v[2:3]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    global_store_dword v1, v8, s[2:3]
"""


def test_flat_addresses_are_of_lds_scratch_or_global_memory() -> None:
    """Lanes of one instruction may be in different spaces."""
    memory = np.zeros(64, np.uint32)
    assert run(FLAT, memory, lds=256, scratch=16).clean
    lane = np.arange(64)
    np.testing.assert_array_equal(memory, np.where(lane % 2, lane + 100, lane))


def test_addresses_of_lds_wrap() -> None:
    """A register below zero and an offset are an address, as compilers make them."""
    body = """
    v_lshlrev_b32_e32 v1, 2, v0
    ds_write_b32 v1, v0
    v_sub_u32_e32 v2, 0, v1
    s_waitcnt lgkmcnt(0)
    ds_read_b32 v3, v2 offset:252
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v3, s[2:3]
    """
    memory = np.zeros(64, np.uint32)
    assert run(body, memory, lds=256).clean
    np.testing.assert_array_equal(memory, np.arange(64)[::-1])


@pytest.mark.parametrize(
    ("first", "second", "chip", "needed"),
    [
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]", "global_store_dword v20, v0, s[2:3]", "gfx950", 18),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]", "global_store_dword v20, v0, s[2:3]", "gfx942", 18),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]", "v_mov_b32_e32 v20, v0", "gfx950", 19),
        ("v_mfma_f64_4x4x4_4b_f64 v[0:1], v[8:9], v[10:11], v[0:1]", "v_mov_b32_e32 v20, v0", "gfx942", 6),
        ("v_mfma_f64_4x4x4_4b_f64 v[0:1], v[8:9], v[10:11], v[0:1]", "ds_write_b32 v20, v0", "gfx942", 9),
        ("v_dot4_i32_i8 v0, v1, v2, v3", "v_dot2_f32_f16 v4, v0, v5, v6", "gfx942", 3),
        ("v_dot4_i32_i8 v0, v1, v2, v3", "v_dot4_i32_i8 v4, v0, v5, v6", "gfx942", 3),
        ("v_dot4_i32_i8 v0, v1, v2, v3", "v_dot4_i32_i8 v4, v5, v6, v0", "gfx942", 0),
        ("v_cmp_ne_u32_e64 s[8:9], 0, v1", "v_writelane_b32 v2, 5, s8", "gfx942", 4),
        ("v_cmp_ne_u32_e64 s[8:9], 0, v1", "v_writelane_b32 v2, s8, 3", "gfx942", 2),
    ],
)  # fmt: skip
def test_wait_states(first: str, second: str, chip: str, needed: int) -> None:
    """As many wait states as LLVM leaves between two instructions, and one fewer is remarked on."""
    for between in (needed, needed - 1):
        nops = "\n".join(["s_nop 0"] * between)
        found = lint(program(f"{first}\n{nops}\n{second}", chip))
        assert bool(found) == (between < needed and needed > 0), (between, found)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("v_add_f32_e32 v1, v2, s3", "operand 3 is s3, and must be a vector register"),
        ("v_add_f32_e64 v1, s2, s3", "more than one scalar"),
        ("v_add_f32_e64 v1, v2, 0x1234", "cannot be the literal"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], a[0:3]", "must be in the file of the result"),
        ("v_mfma_f32_16x16x16_f16 v[1:4], v[6:7], v[6:7], v[1:4]", "does not begin at an even register"),
        ("global_load_dword v1, v2, off", "takes 2 registers"),
        ("global_load_dword v1, v2, s[4:5] offset:4096", "offset must be -4096 to 4095"),
        ("ds_read_b64 v[2:3], v1 offset:65536", "offset must be 0 to 65535"),
        ("buffer_load_dword v1, v2, s[4:7], 0 offen idxen", "takes 2 registers"),
        ("s_load_dwordx4 s[6:9], s[0:1], 0x0", "multiple of 4"),
        ("v_mov_b32_dpp v1, v2 row_shr:16 row_mask:0xf bank_mask:0xf", "row_shr must be 1 to 15"),
        ("v_mov_b32_e32 v1, v256", "the last is v255"),
        ("v_cvt_f32_f16_e64 v1, v2 mul:3", "mul:2, mul:4 or div:2"),
    ],
)
def test_operands_that_an_instruction_does_not_take(line: str, says: str) -> None:
    """Each is refused when the text is loaded, executed or not, and the message says what is legal."""
    with pytest.raises(GcnSyntaxError, match=says):
        run(f"s_endpgm\n{line}", np.zeros(1, np.uint32))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("accum_offset 256", "accum_offset 6"), "multiple of 4"),
        (("float_denorm_mode_32 3", "float_denorm_mode_32 4"), "legal: 0 to 3"),
        ((".amdhsa_next_free_sgpr 100\n", ""), "has no .amdhsa_next_free_sgpr"),
        ((".amdhsa_kernarg_size 8", ".amdhsa_kernarg_sise 8"), "no field of a kernel descriptor"),
        ((".amdhsa_kernarg_size 8", ".amdhsa_kernarg_size 8\n.amdhsa_kernarg_size 8"), "given twice"),
    ],
)
def test_descriptors_that_the_assembler_refuses(change: tuple[str, str], says: str) -> None:
    """A field that is unknown, missing, given twice or out of range."""
    text = program("s_nop 0", "gfx942").replace(*change)
    found = lint(text)
    assert found
    assert says in found[0].message


SUMS = np.random.default_rng(5).integers(0, 1 << 32, (3, 64), dtype=np.uint64).astype(np.uint32)


def _parts(words: np.ndarray, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(words).view(dtype).reshape(len(words), -1).astype(np.int64)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("v_sad_u16 v4, v1, v2, v3", lambda a, b, c: abs(_parts(a, "u2") - _parts(b, "u2")).sum(1) + c),
        ("v_sad_hi_u8 v4, v1, v2, v3", lambda a, b, c: (abs(_parts(a, "u1") - _parts(b, "u1")).sum(1) << 16) + c),
        ("v_msad_u8 v4, v1, v2, v3", lambda a, b, c: np.where(
            _parts(b, "u1") == 0, 0, abs(_parts(a, "u1") - _parts(b, "u1"))).sum(1) + c),
        ("v_dot2_i32_i16 v4, v1, v2, v3", lambda a, b, c: (_parts(a, "i2") * _parts(b, "i2")).sum(1) + c),
        ("v_dot4_u32_u8 v4, v1, v2, v3", lambda a, b, c: (_parts(a, "u1") * _parts(b, "u1")).sum(1) + c),
        ("v_cvt_pk_u16_u32 v4, v1, v2", lambda a, b, c: (
            np.minimum(a, 65535) | np.minimum(b, 65535).astype(np.int64) << 16)),
        ("v_lerp_u8 v4, v1, v2, v3", lambda a, b, c: (
            (_parts(a, "u1") + _parts(b, "u1") + (_parts(c, "u1") & 1) >> 1) << np.array([0, 8, 16, 24])).sum(1)),
    ],
)  # fmt: skip
def test_sums_over_parts_of_words(line: str, expected: object) -> None:
    """Dot products, differences and packing, against NumPy over views of the bytes."""
    memory = np.concatenate([SUMS, np.zeros((1, 64), np.uint32)])
    body = f"""
    v_lshlrev_b32_e32 v10, 2, v0
    global_load_dword v1, v10, s[2:3]
    global_load_dword v2, v10, s[2:3] offset:256
    global_load_dword v3, v10, s[2:3] offset:512
    s_waitcnt vmcnt(0)
    {line}
    s_nop 2
    global_store_dword v10, v4, s[2:3] offset:768
    """
    assert run(body, memory).clean
    wide = [row.astype(np.int64) for row in SUMS]
    want = expected(SUMS[0], SUMS[1], wide[2] if "lerp" not in line else SUMS[2])  # type: ignore[operator]
    np.testing.assert_array_equal(memory[3], (np.asarray(want).astype(np.int64) & 0xFFFFFFFF).astype(np.uint32))


def test_bits_of_two_over_pi() -> None:
    """Segments of 2 / pi follow each other, and add up to it."""
    body = """
    v_lshlrev_b32_e32 v10, 3, v0
    v_mov_b32_e32 v2, 0
    v_mov_b32_e32 v3, 0x3ff00000
    v_trig_preop_f64 v[4:5], v[2:3], v0
    s_nop 1
    global_store_dwordx2 v10, v[4:5], s[2:3]
    """
    memory = np.zeros(64, np.float64)
    assert run(body, memory).clean
    assert sum(memory[:3].tolist()) == 0.6366197723675814
    assert 0 < memory[1] < 2.0**-53


def test_a_sign_around_zero() -> None:
    """neg(0) is a negative zero where a floating-point number is taken."""
    body = """
    v_lshlrev_b32_e32 v10, 2, v0
    v_mov_b32_e32 v1, 1.0
    v_fma_mix_f32 v4, neg(0), v1, neg(0)
    global_store_dword v10, v4, s[2:3]
    """
    memory = np.zeros(64, np.uint32)
    assert run(body, memory).clean
    assert (memory == 0x80000000).all()


def test_no_internal_error_for_signs_on_integers() -> None:
    """A sign where none may be is an error of the text."""
    with pytest.raises(EmulatorError, match="cannot be taken with neg"):
        run("v_add_u32_e64 v1, -v2, v3", np.zeros(1, np.uint32))
