"""Checks of GCN's matrix fragments on the emulator, by name: position-coded matrices against NumPy.

Layouts are those of AMD's matrix instruction calculator and, of gfx950, of AMD's published kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from gcn_alone import THREADS, run

Array = npt.NDArray[Any]
CHECKS: dict[str, Callable[[str], None]] = {}
"""By ``group.name``; each is called with a chip."""

LANES = np.arange(THREADS, dtype=np.uint32)
RANDOM = np.random.default_rng(21)

_FLOATS_BY_FORMAT = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn,
                     ml_dtypes.float4_e2m1fn)  # fmt: skip
_BITS = (8, 8, 6, 6, 4)


def _bytes_of(kind: str, chip: str) -> Any:
    """The chip's own 8-bit floats."""
    fnuz = chip == "gfx942"
    if kind == "fp8":
        return ml_dtypes.float8_e4m3fnuz if fnuz else ml_dtypes.float8_e4m3fn
    return ml_dtypes.float8_e5m2fnuz if fnuz else ml_dtypes.float8_e5m2


def _k_of(lanes: Array, m: int, each: int) -> Array:
    """k of each of a lane's elements: each group of lanes has so many that follow each other."""
    return (lanes // m * each)[:, None] + np.arange(each)


def _k_of_narrow(lanes: Array, m: int, k: int, bits: int) -> Array:
    """The same of f8f6f4: 8-bit elements lie in two halves of 16."""
    if bits < 8:
        return _k_of(lanes, m, 32)
    element = np.arange(32)
    return (lanes // m * 16)[:, None] + element % 16 + element // 16 * (k // 2)


def _packed(elements: Array, bits: int) -> Array:
    """Rows of elements, as their bits, side by side in words."""
    digits = (elements[..., None] >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
    stream = digits.reshape(len(elements), -1).astype(np.uint8)
    return np.packbits(stream, axis=1, bitorder="little").view(np.uint32)


def _multiply(chip: str, name: str, m: int, k: int, kinds: tuple[Any, Any], places: tuple[Array, Array], *,
              bits: tuple[int, int] | None = None, total: str = "float32", scales: tuple[Array, Array] | None = None,
              **given: Any) -> None:  # fmt: skip
    """Position-coded matrices: small numbers that say where they are, of which no two rows, columns or k are alike."""
    values = [np.array([-2, -1.5, -1, 1, 1.5, 2, 3]), np.array([-3, -2, -1, 1, 2, 4])]
    if total == "int32":
        values = [np.arange(-7, 8), np.arange(-5, 6)]
    rng = np.random.default_rng(m * k)
    a, b = rng.choice(values[0], (m, k)), rng.choice(values[1], (k, m))
    start = rng.integers(-9, 9, (m, m)).astype(total)
    operands = []
    for side, (matrix, kind, k_of) in enumerate(zip((a, b.T), kinds, places, strict=True)):
        lanes = matrix[(LANES % m)[:, None], k_of].astype(np.float32 if total != "int32" else np.int8).astype(kind)
        raw = np.ascontiguousarray(lanes)
        narrow = bits[side] if bits else 8 * raw.dtype.itemsize
        words = _packed(raw.view(f"u{raw.dtype.itemsize}").astype(np.uint64) & np.uint64((1 << narrow) - 1), narrow)
        operands.append(words)
    rows = m * m // THREADS
    element = np.arange(rows)
    row = (4 * (THREADS // m)) * (element // 4) + 4 * (LANES // m)[:, None] + element % 4
    column = (LANES % m)[:, None] + 0 * element
    lists = [o[:, 0].copy().view(kind) if o.shape[1] == 1 else o for o, kind in zip(operands, kinds, strict=True)]
    found = run(chip, "mfma", name, sums=start[row, column], a=lists[0], b=lists[1], **given).outputs["sums"]
    if scales is not None:
        a = a * 2.0 ** (np.repeat(scales[0], 32, axis=1) - 127.0)
        b = b * 2.0 ** (np.repeat(scales[1], 32, axis=1).T - 127.0)
    wanted = (a.astype(np.float64) @ b.astype(np.float64) + start).astype(total)
    assert (found.view(total) == wanted[row, column]).all()


def _plain(name: str, **types: Any) -> None:
    """Register the check of an instruction whose lanes hold elements that follow each other."""
    m, _, k = map(int, name.split("_")[1].split("x"))

    def of(chip: str) -> None:
        places = (_k_of(LANES, m, k * m // THREADS),) * 2
        if "type" in types:
            for word, kind in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
                _multiply(chip, name, m, k, (kind, kind), places, type=word)
        elif "bytes" in types:
            for a in ("fp8", "bf8"):
                for b in ("fp8", "bf8"):
                    _multiply(chip, name, m, k, (_bytes_of(a, chip), _bytes_of(b, chip)), places, a_type=a, b_type=b)
        else:
            kind = types["kind"]
            _multiply(chip, name, m, k, (kind, kind), places, total="int32" if kind is np.int8 else "float32")

    CHECKS[f"mfma.{name}"] = of


for _name in ("f32_16x16x16", "f32_32x32x8", "f32_16x16x32", "f32_32x32x16"):
    _plain(_name, type=True)
for _name in ("f32_16x16x32_fp8", "f32_32x32x16_fp8"):
    _plain(_name, bytes=True)
for _name in ("s32_16x16x32", "s32_32x32x16", "s32_16x16x64", "s32_32x32x32"):
    _plain(_name, kind=np.int8)
for _name in ("f32_16x16x4", "f32_32x32x2", "f32_16x16x8_xf32", "f32_32x32x4_xf32"):
    _plain(_name, kind=np.float32)


@cache
def _narrow_floats(chip: str) -> None:
    for name, m, k in (("f32_16x16x128", 16, 128), ("f32_32x32x64", 32, 64)):
        for a, b in ((0, 0), (1, 4), (2, 3), (4, 4), (3, 1)):
            bits = _BITS[a], _BITS[b]
            kinds = _FLOATS_BY_FORMAT[a], _FLOATS_BY_FORMAT[b]
            places = _k_of_narrow(LANES, m, k, bits[0]), _k_of_narrow(LANES, m, k, bits[1])
            _multiply(chip, name, m, k, kinds, places, bits=bits, a_format=a, b_format=b)
            for byte in range(4):
                scales = [RANDOM.integers(124, 131, (m, k // 32), np.uint32) for _ in range(2)]
                spread = [s[LANES % m, LANES // m] << np.uint32(8 * n) | np.uint32(0x7F) << np.uint32(8 * ((n + 1) % 4))
                          for s, n in zip(scales, (byte, 3 - byte), strict=True)]  # fmt: skip
                _multiply(chip, f"{name}_scaled", m, k, kinds, places, bits=bits, scales=(scales[0], scales[1]),
                          a_format=a, b_format=b, a_scale=spread[0], b_scale=spread[1], a_low=byte & 1,
                          a_high=byte >> 1, b_low=3 - byte & 1, b_high=3 - byte >> 1)  # fmt: skip


for _name in ("f32_16x16x128", "f32_32x32x64"):
    CHECKS |= {f"mfma.{_name}": _narrow_floats, f"mfma.{_name}_scaled": _narrow_floats}
