"""Every matrix instruction against NumPy, with operands that tell each place from every other.

The layouts are written out here from the published tables, lane by lane, and not taken from the emulator.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs import run

Array = np.ndarray[Any, Any]
_TYPES = {
    "f64": np.float64, "f32": np.float32, "xf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "fp6": ml_dtypes.float6_e2m3fn, "bf6": ml_dtypes.float6_e3m2fn, "fp4": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
_CODES = ["fp8", "bf8", "fp6", "bf6", "fp4"]


def _type(name: str, chip: str) -> Any:
    if name == "fp8":
        return ml_dtypes.float8_e4m3fnuz if chip == "gfx942" else ml_dtypes.float8_e4m3fn
    if name == "bf8":
        return ml_dtypes.float8_e5m2fnuz if chip == "gfx942" else ml_dtypes.float8_e5m2
    return _TYPES[name]


def _coded(rng: np.random.Generator, rows: int, k: int, name: str, chip: str) -> Array:
    """Numbers of a type, different enough that no two places may be confused, whose sums of products are exact."""
    kind = _type(name, chip)
    if name == "i8":
        return rng.integers(-128, 128, (rows, k)).astype(np.int8)
    if name == "f64":
        return rng.integers(-999, 999, (rows, k)).astype(np.float64)
    choices = {"fp4": [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]}.get(name, range(-7, 8))
    return rng.choice(np.array(list(choices), np.float32), (rows, k)).astype(kind)


def _lane_k(m: int, k: int, name: str, lane: int, element: int) -> int:
    """The k of a lane's element, from the published tables."""
    groups = 64 // m
    each = k // groups
    group = lane // m
    if name in ("fp8", "bf8") and each == 32:  # f8f6f4: two halves of 16 bytes, apart
        half, within = divmod(element, 16)
        return half * (k // 2) + 16 * group + within
    return each * group + element


def _registers(matrix: Array, name: str) -> Array:
    """The registers of an operand [rows, k]: uint32[registers, 64]."""
    rows, k = matrix.shape
    each = rows * k // 64
    lanes = []
    for lane in range(64):
        values = np.array([matrix[lane % rows, _lane_k(rows, k, name, lane, e)] for e in range(each)], matrix.dtype)
        if name in ("fp6", "bf6", "fp4"):
            size = 4 if name == "fp4" else 6
            codes = values.view(np.uint8).astype(object)
            total = sum(int(code) << (size * place) for place, code in enumerate(codes))
            count = each * size // 32
            lanes.append([total >> (32 * r) & 0xFFFFFFFF for r in range(count)])
        else:
            lanes.append(values.view(np.uint32).tolist())
    return np.array(lanes, np.uint32).T


def _result(rows: Array, m: int, n: int, result: str) -> Array:
    """The matrix that the registers of a result hold: uint32[registers, 64]."""
    kind = {"f32": np.float32, "i32": np.int32, "f64": np.float64}[result]
    out = np.zeros((m, n), kind)
    for lane in range(64):
        values = np.ascontiguousarray(rows[:, lane]).view(kind)
        for r, value in enumerate(values):
            if result == "f64":
                i = lane // 16 + 4 * r
            elif m == 16:
                i = 4 * (lane // 16) + r
            else:
                i = 8 * (r // 4) + 4 * (lane // 32) + r % 4
            out[i, lane % n] = value
    return out


def _loads(first: int, registers: Array, at: int) -> str:
    """Instructions that load registers from memory, a row of 64 words each, from word row `at` on."""
    return "\n".join(
        f"global_load_dword v{first + r}, v1, s[4:5]\ns_add_u32 s4, s4, 0x100\ns_addc_u32 s5, s5, 0"
        for r in range(len(registers))
    )


def _multiply(
    instruction: str, chip: str, m: int, k: int, kinds: tuple[str, str], result: str, rng: np.random.Generator,
    modifiers: str = "", scales: tuple[Array, Array] | None = None,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    a, b = _coded(rng, m, k, kinds[0], chip), _coded(rng, m, k, kinds[1], chip)
    ra, rb = _registers(a, kinds[0]), _registers(b, kinds[1])
    count = m * m // 64 * (2 if result == "f64" else 1)
    if result == "f64":
        c = rng.integers(-99, 99, (count // 2, 64)).astype(np.float64)
        rc = np.ascontiguousarray(c.transpose(1, 0)).view(np.uint32).T
    else:
        c = rng.integers(-99, 99, (count, 64)).astype(np.int32 if result == "i32" else np.float32)
        rc = c.view(np.uint32)
    rs = np.zeros((0, 64), np.uint32) if scales is None else np.stack([s.view(np.uint32) for s in scales])
    memory = np.concatenate([ra, rb, rc, rs, np.zeros((count, 64), np.uint32)])
    va, vb, vc = 8, 8 + len(ra) + len(ra) % 2, 8 + len(ra) + len(ra) % 2 + len(rb) + len(rb) % 2
    vs = vc + count
    tail = f", v{vs}, v{vs + 1}" if scales is not None else ""
    stores = "\n".join(
        f"global_store_dword v1, v{vc + r}, s[4:5]\ns_add_u32 s4, s4, 0x100\ns_addc_u32 s5, s5, 0" for r in range(count)
    )
    total = _range(vc, count)
    body = f"""
        v_lshlrev_b32_e32 v1, 2, v0
        s_mov_b64 s[4:5], s[2:3]
        {_loads(va, ra, 0)}
        {_loads(vb, rb, 0)}
        {_loads(vc, rc, 0)}
        {_loads(vs, rs, 0)}
        s_waitcnt vmcnt(0)
        {instruction} {total}, {_range(va, len(ra))}, {_range(vb, len(rb))}, {total}{tail} {modifiers}
        s_nop 15
        s_nop 7
        {stores}
    """
    report = run(body, memory, chip)
    assert report.clean, str(report)
    found = _result(memory[-count:], m, m, result)
    return a, b, _result(rc, m, m, result), found


def _range(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


_DENSE = [
    *(("v_mfma_f32_{s}_" + t, shape, t, t, "f32", chips) for t in ("f16", "bf16")
      for shape, chips in (("32x32x8", "both"), ("16x16x16", "both"), ("32x32x16", "gfx950"), ("16x16x32", "gfx950"))),
    *(("v_mfma_f32_{s}_f32", shape, "f32", "f32", "f32", "both") for shape in ("32x32x2", "16x16x4")),
    *(("v_mfma_f32_{s}_xf32", shape, "xf32", "xf32", "f32", "gfx942") for shape in ("32x32x4", "16x16x8")),
    *(("v_mfma_f32_{s}_" + f"{a}_{b}", shape, a, b, "f32", "both") for a in ("fp8", "bf8") for b in ("fp8", "bf8")
      for shape in ("32x32x16", "16x16x32")),
    *(("v_mfma_i32_{s}_i8", shape, "i8", "i8", "i32", "both") for shape in ("32x32x16", "16x16x32")),
    *(("v_mfma_i32_{s}_i8", shape, "i8", "i8", "i32", "gfx950") for shape in ("32x32x32", "16x16x64")),
    ("v_mfma_f64_{s}_f64", "16x16x4", "f64", "f64", "f64", "both"),
]  # fmt: skip
_CASES = [
    (name.format(s=shape), shape, a, b, result, chip)
    for name, shape, a, b, result, chips in _DENSE
    for chip in (("gfx942", "gfx950") if chips == "both" else (chips,))
]


@pytest.mark.parametrize(("name", "shape", "a", "b", "result", "chip"), _CASES)
def test_dense(name: str, shape: str, a: str, b: str, result: str, chip: str) -> None:
    """D = A B + C, exactly, with every element in the place that the tables give it."""
    m, _, k = map(int, shape.split("x"))
    rng = np.random.default_rng([m, k, len(a), ord(a[0]), ord(b[0])])
    left, right, c, found = _multiply(name, chip, m, k, (a, b), result, rng)
    want = left.astype(np.float64) @ right.astype(np.float64).T + c
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("shape", ["16x16x128", "32x32x64"])
@pytest.mark.parametrize("a", _CODES)
@pytest.mark.parametrize("b", _CODES)
def test_narrow_formats(shape: str, a: str, b: str) -> None:
    """f8f6f4 with every pair of formats, each operand in the layout of its own type."""
    m, _, k = map(int, shape.split("x"))
    rng = np.random.default_rng([m, _CODES.index(a), _CODES.index(b)])
    modifiers = f"cbsz:{_CODES.index(a)} blgp:{_CODES.index(b)}"
    left, right, c, found = _multiply(f"v_mfma_f32_{shape}_f8f6f4", "gfx950", m, k, (a, b), "f32", rng, modifiers)
    np.testing.assert_array_equal(found, left.astype(np.float64) @ right.astype(np.float64).T + c)


@pytest.mark.parametrize("shape", ["16x16x128", "32x32x64"])
@pytest.mark.parametrize(("a", "b"), [("fp8", "fp8"), ("fp4", "fp4"), ("bf8", "fp6"), ("fp4", "bf8")])
@pytest.mark.parametrize("bytes_used", [(0, 0), (1, 2), (3, 1), (2, 3)])
def test_block_scales(shape: str, a: str, b: str, bytes_used: tuple[int, int]) -> None:
    """A scale of each 32 elements along k, from the byte that op_sel and op_sel_hi choose."""
    m, _, k = map(int, shape.split("x"))
    rng = np.random.default_rng([m, *bytes_used, len(a), len(b)])
    exponents = [rng.integers(122, 132, (m, k // 32)) for _ in range(2)]
    scales = []
    for side in range(2):
        words = rng.integers(0, 255, (64, 4)).astype(np.uint8)
        for lane in range(64):
            words[lane, bytes_used[side]] = exponents[side][lane % m, lane // m]
        scales.append(words.view(np.uint32)[:, 0].copy())
    low, high = ([value & 1 for value in bytes_used], [value >> 1 for value in bytes_used])
    modifiers = f"op_sel:[{low[0]},{low[1]},0] op_sel_hi:[{high[0]},{high[1]},0] "
    modifiers += f"cbsz:{_CODES.index(a)} blgp:{_CODES.index(b)}"
    left, right, c, found = _multiply(
        f"v_mfma_scale_f32_{shape}_f8f6f4", "gfx950", m, k, (a, b), "f32", rng, modifiers, (scales[0], scales[1])
    )
    factors = [np.exp2(e - 127.0).repeat(32, 1) for e in exponents]
    want = (left.astype(np.float64) * factors[0]) @ (right.astype(np.float64) * factors[1]).T + c
    np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "chip"), [("v_mfma_f32_32x32x16_bf16", "gfx942"), ("v_mfma_f32_32x32x4_xf32", "gfx950")]
)
def test_other_chip(name: str, chip: str) -> None:
    """An instruction that the chip lacks is refused by name."""
    from tilekit.emulator import UnsupportedInstruction

    count = 4 if "bf16" in name else 2
    with pytest.raises(UnsupportedInstruction, match=name):
        run(f"{name} v[32:47], v[2:{1 + count}], v[8:{7 + count}], v[32:47]", np.zeros(4, np.uint32), chip)
