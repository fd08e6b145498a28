"""Vector instructions against plain Python, lane by lane, as the instruction set's manual words them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import run

M = 0xFFFFFFFF


def _f(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & M))[0])


def _b(value: float) -> int:
    with np.errstate(all="ignore"):
        return int(np.float32(value).view(np.uint32))


def _h(bits: int) -> float:
    return float(np.uint16(bits & 0xFFFF).view(np.float16))


def _hb(value: float) -> int:
    with np.errstate(all="ignore"):
        return int(np.float16(value).view(np.uint16))


def _s(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _perm(high: int, low: int, selector: int) -> int:
    data, result = high << 32 | low, 0
    for place in range(4):
        chosen = selector >> (8 * place) & 0xFF
        if chosen >= 13:
            byte = 0xFF
        elif chosen == 12:
            byte = 0
        elif chosen >= 8:
            byte = 0xFF * (data >> (16 * (chosen - 8) + 15) & 1)
        else:
            byte = data >> (8 * chosen) & 0xFF
        result |= byte << (8 * place)
    return result


Oracle = Callable[[int, int, int], int]
INTEGERS: dict[str, Oracle] = {
    "v_add_u32 v5, v2, v3": lambda a, b, c: a + b,
    "v_sub_u32 v5, v2, v3": lambda a, b, c: a - b,
    "v_subrev_u32 v5, v2, v3": lambda a, b, c: b - a,
    "v_sub_u32_e64 v5, v2, v3 clamp": lambda a, b, c: max(a - b, 0),
    "v_add_u32_e64 v5, v2, v3 clamp": lambda a, b, c: min(a + b, M),
    "v_add_u16 v5, v2, v3": lambda a, b, c: (a + b) & 0xFFFF,
    "v_mul_lo_u32 v5, v2, v3": lambda a, b, c: a * b,
    "v_mul_hi_u32 v5, v2, v3": lambda a, b, c: a * b >> 32,
    "v_mul_hi_i32 v5, v2, v3": lambda a, b, c: _s(a) * _s(b) >> 32,
    "v_mul_i32_i24 v5, v2, v3": lambda a, b, c: _s(a, 24) * _s(b, 24),
    "v_mad_u32_u24 v5, v2, v3, v4": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_and_or_b32 v5, v2, v3, v4": lambda a, b, c: a & b | c,
    "v_xad_u32 v5, v2, v3, v4": lambda a, b, c: (a ^ b) + c,
    "v_add3_u32 v5, v2, v3, v4": lambda a, b, c: a + b + c,
    "v_lshl_add_u32 v5, v2, v3, v4": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32 v5, v2, v3, v4": lambda a, b, c: ((a + b) & M) << (c & 31),
    "v_lshl_or_b32 v5, v2, v3, v4": lambda a, b, c: a << (b & 31) | c,
    "v_lshrrev_b32 v5, v2, v3": lambda a, b, c: b >> (a & 31),
    "v_ashrrev_i32 v5, v2, v3": lambda a, b, c: _s(b) >> (a & 31),
    "v_bfe_u32 v5, v2, v3, v4": lambda a, b, c: a >> (b & 31) & ((1 << (c & 31)) - 1),
    "v_bfe_i32 v5, v2, 5, 9": lambda a, b, c: _s(a >> 5, 9),
    "v_bfi_b32 v5, v2, v3, v4": lambda a, b, c: a & b | ~a & c,
    "v_bfrev_b32 v5, v2": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "v_bcnt_u32_b32 v5, v2, v3": lambda a, b, c: a.bit_count() + b,
    "v_ffbh_u32 v5, v2": lambda a, b, c: 32 - a.bit_length() if a else M,
    "v_ffbl_b32 v5, v2": lambda a, b, c: (a & -a).bit_length() - 1 if a else M,
    "v_alignbit_b32 v5, v2, v3, v4": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_perm_b32 v5, v2, v3, v4": _perm,
    "v_max3_i32 v5, v2, v3, v4": lambda a, b, c: max(_s(a), _s(b), _s(c)),
    "v_med3_i32 v5, v2, v3, v4": lambda a, b, c: sorted(map(_s, (a, b, c)))[1],
    "v_min_u32 v5, v2, v3": lambda a, b, c: min(a, b),
    "v_bitop3_b32 v5, v2, v3, v4 bitop3:0x6c": lambda a, b, c: sum(
        (0x6C >> ((a >> n & 1) << 2 | (b >> n & 1) << 1 | (c >> n & 1)) & 1) << n for n in range(32)
    ),
    "v_and_b32_sdwa v5, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:WORD_1":
        lambda a, b, c: a >> 16 & 0xFF & b >> 16,
    "v_add_u32_sdwa v5, sext(v2), v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD":
        lambda a, b, c: ((_s(a >> 8, 8) + b) & 0xFFFF) << 16,
    "v_pk_add_u16 v5, v2, v3": lambda a, b, c: (a + b) & 0xFFFF | ((a >> 16) + (b >> 16) & 0xFFFF) << 16,
    "v_pk_sub_u16 v5, v2, v3 op_sel:[0,1] op_sel_hi:[1,0]":
        lambda a, b, c: (a - (b >> 16)) & 0xFFFF | ((a >> 16) - b & 0xFFFF) << 16,
    "v_pk_lshlrev_b16 v5, 3, v2 op_sel_hi:[0,1]": lambda a, b, c: (a << 3) & 0xFFFF | ((a >> 16) << 3 & 0xFFFF) << 16,
}  # fmt: skip
FLOATS: dict[str, Oracle] = {
    "v_add_f32 v5, v2, v3": lambda a, b, c: _b(_f(a) + _f(b)),
    "v_sub_f32_e64 v5, -v2, |v3|": lambda a, b, c: _b(-_f(a) - abs(_f(b))),
    "v_mul_f32_e64 v5, v2, v3 mul:2": lambda a, b, c: _b(2 * float(np.float32(_f(a) * _f(b)))),
    "v_add_f32_e64 v5, v2, v3 clamp": lambda a, b, c: _b(min(max(float(np.float32(_f(a) + _f(b))), 0.0), 1.0)),
    "v_fma_f32 v5, v2, v3, v4": lambda a, b, c: _b(_f(a) * _f(b) + _f(c)),
    "v_max3_f32 v5, v2, v3, v4": lambda a, b, c: _b(max(_f(a), _f(b), _f(c))),
    "v_med3_f32 v5, v2, v3, v4": lambda a, b, c: _b(sorted((_f(a), _f(b), _f(c)))[1]),
    "v_floor_f32 v5, v2": lambda a, b, c: _b(math.floor(_f(a))),
    "v_rndne_f32 v5, v2": lambda a, b, c: _b(float(np.rint(_f(a)))),
    "v_cvt_i32_f32 v5, v2": lambda a, b, c: int(_f(a)),
    "v_cvt_f32_i32 v5, v2": lambda a, b, c: _b(_s(a)),
    "v_cvt_f16_f32 v5, v2": lambda a, b, c: _hb(_f(a)),
    "v_cvt_pkrtz_f16_f32 v5, 1.0, v2": lambda a, b, c: 0x3C00 | _toward_zero(_f(a)) << 16,
    "v_ldexp_f32 v5, v2, 3": lambda a, b, c: _b(_f(a) * 8),
    "v_frexp_exp_i32_f32 v5, v2": lambda a, b, c: math.frexp(_f(a))[1],
    "v_fma_mix_f32 v5, v2, v3, v4 op_sel:[0,1,0] op_sel_hi:[0,1,0]": lambda a, b, c: _b(_f(a) * _h(b >> 16) + _f(c)),
    "v_cvt_f32_ubyte2 v5, v2": lambda a, b, c: _b(a >> 16 & 0xFF),
    "v_pack_b32_f16 v5, v2, v3 op_sel:[1,0]": lambda a, b, c: a >> 16 | (b & 0xFFFF) << 16,
}  # fmt: skip


def _toward_zero(value: float) -> int:
    near = np.float16(value)
    if abs(float(near)) > abs(value):
        near = np.nextafter(near, np.float16(0))
    return int(near.view(np.uint16))


def _execute(instruction: str, columns: np.ndarray[Any, Any], chip: str) -> np.ndarray[Any, Any]:
    memory = np.concatenate([columns, np.zeros((1, 64), np.uint32)])
    report = run(
        f"""
        v_lshlrev_b32_e32 v1, 2, v0
        global_load_dword v2, v1, s[2:3]
        global_load_dword v3, v1, s[2:3] offset:256
        global_load_dword v4, v1, s[2:3] offset:512
        v_mov_b32_e32 v5, 0
        s_waitcnt vmcnt(0)
        s_nop 1
        {instruction}
        s_nop 1
        global_store_dword v1, v5, s[2:3] offset:768
        """,
        memory,
        chip,
    )
    assert report.clean, str(report)
    return memory[3]


@pytest.mark.parametrize("instruction", INTEGERS)
def test_integers(instruction: str) -> None:
    """Random bits, and bits at the ends of ranges."""
    rng = np.random.default_rng(len(instruction))
    columns = rng.integers(0, 1 << 32, (3, 64), dtype=np.uint64).astype(np.uint32)
    columns[:, :8] = rng.choice(np.array([0, 1, 0x7FFFFFFF, 0x80000000, M, 0xFFFF, 31, 0x0C0D0803], np.uint32), (3, 8))
    chip = "gfx950" if "bitop3" in instruction else "gfx942"
    want = [INTEGERS[instruction](*map(int, lane)) & M for lane in columns.T]
    np.testing.assert_array_equal(_execute(instruction, columns, chip), np.array(want, np.uint32))


@pytest.mark.parametrize("instruction", FLOATS)
def test_floats(instruction: str) -> None:
    """Numbers of the size that float16 holds."""
    rng = np.random.default_rng(len(instruction))
    numbers = (rng.standard_normal((3, 64)) * 50).astype(np.float32)
    want = [FLOATS[instruction](*map(int, lane)) & M for lane in numbers.view(np.uint32).T]
    np.testing.assert_array_equal(_execute(instruction, numbers.view(np.uint32), "gfx942"), np.array(want, np.uint32))


LANES: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[3,0,2,1]": lambda n: (n & ~3) + (3, 0, 2, 1)[n & 3],
    "row_shl:3": lambda n: n + 3 if n % 16 < 13 else None,
    "row_shr:5": lambda n: n - 5 if n % 16 >= 5 else None,
    "row_ror:7": lambda n: (n & ~15) + (n - 7) % 16,
    "wave_shr:1": lambda n: n - 1 if n else None,
    "row_mirror": lambda n: (n & ~15) + 15 - n % 16,
    "row_half_mirror": lambda n: (n & ~7) + 7 - n % 8,
    "row_bcast:15": lambda n: (n & ~15) - 1 if n >= 16 else None,
    "row_bcast:31": lambda n: (n & ~31) - 1 if n >= 32 else None,
}


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("control", LANES)
def test_dpp(control: str, bound: bool) -> None:
    """Each lane reads the lane that the control names; without one it keeps its value, or gets 0."""
    columns = np.random.default_rng(3).integers(0, 1 << 32, (3, 64), dtype=np.uint64).astype(np.uint32)
    tail = " bound_ctrl:1" if bound else ""
    found = _execute(f"v_mov_b32_dpp v5, v2 {control} row_mask:0xd bank_mask:0xf{tail}", columns, "gfx942")
    for lane in range(64):
        source = LANES[control](lane)
        want = 0 if lane // 16 == 1 or source is None else int(columns[0, source])
        assert found[lane] == want, lane


@pytest.mark.parametrize("rows", [16, 32])
def test_permlane_swap(rows: int) -> None:
    """Odd rows of the first are exchanged with even rows of the second."""
    columns = np.random.default_rng(4).integers(0, 1 << 32, (3, 64), dtype=np.uint64).astype(np.uint32)
    for register, sign in (("v2", 1), ("v3", -1)):
        swap = f"v_permlane{rows}_swap_b32 v2, v3\n v_mov_b32_e32 v5, {register}"
        found = _execute(swap, columns, "gfx950")
        for lane in range(64):
            odd = lane // rows % 2 == 1
            if sign == 1:
                want = columns[1, lane - rows] if odd else columns[0, lane]
            else:
                want = columns[1, lane] if odd else columns[0, lane + rows]
            assert found[lane] == want


def test_transposing_read() -> None:
    """``ds_read_b64_tr_b16``: element e of lane L is number L mod 4 of what lane 4e + (L mod 16) / 4 addresses."""
    memory = np.arange(64 * 2, dtype=np.uint32) * 0x10001 + 0x00010000
    data = memory[:128].copy().view(np.uint16)
    out = np.concatenate([memory, np.zeros(128, np.uint32)])
    report = run(
        """
        v_lshlrev_b32_e32 v1, 3, v0
        global_load_dwordx2 v[2:3], v1, s[2:3]
        s_waitcnt vmcnt(0)
        ds_write_b64 v1, v[2:3]
        s_waitcnt lgkmcnt(0)
        ds_read_b64_tr_b16 v[4:5], v1
        s_waitcnt lgkmcnt(0)
        global_store_dwordx2 v1, v[4:5], s[2:3] offset:512
        """,
        out,
        lds=512,
    )
    assert report.clean
    found = out[128:].view(np.uint16).reshape(64, 4)
    for lane in range(64):
        for element in range(4):
            source = (lane & ~15) + 4 * element + lane % 16 // 4
            assert found[lane, element] == data[4 * source + lane % 4]


def test_division() -> None:
    """The sequence that compilers make of a division gives the correctly rounded quotient, far ends included."""
    rng = np.random.default_rng(5)
    a, b = (np.ldexp(rng.uniform(1, 2, 64), rng.integers(-120, 120, 64)).astype(np.float32) for _ in range(2))
    a[:6], b[:6] = [0, 1, np.inf, 1, -0.0, 3e38], [1, 0, 2, np.inf, 5, 1e-30]
    columns = np.stack([a, b, a]).view(np.uint32)
    found = _execute(
        """
        v_div_scale_f32 v6, s[4:5], v3, v3, v2
        v_rcp_f32_e32 v7, v6
        v_div_scale_f32 v8, vcc, v2, v3, v2
        v_fma_f32 v9, -v6, v7, 1.0
        v_fmac_f32_e32 v7, v9, v7
        v_mul_f32_e32 v9, v8, v7
        v_fma_f32 v10, -v6, v9, v8
        v_fmac_f32_e32 v9, v10, v7
        v_fma_f32 v6, -v6, v9, v8
        v_div_fmas_f32 v6, v6, v7, v9
        v_div_fixup_f32 v5, v6, v3, v2
        """,
        columns,
        "gfx942",
    ).view(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, a / b)
