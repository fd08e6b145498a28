"""The matrix instructions: shapes, types, chips; and which element each register of each lane holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["SHAPES", "Shape", "operand_places", "result_places"]

Places = npt.NDArray[np.int64]
BITS = {
    "f64": 64,
    "f32": 32,
    "xf32": 32,
    "f16": 16,
    "bf16": 16,
    "fp8": 8,
    "bf8": 8,
    "i8": 8,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}
"""Bits of an element of a source."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One matrix instruction.

    Attributes
    ----------
    m, n, k
        Of the product.
    blocks
        Products that it makes at once, side by side.
    result, a, b
        Types; sources of ``f8f6f4`` say theirs by modifiers.
    chips
        Where it is.
    sparse
        Whether A has two of every four elements along k, and an index says which (``v_smfmac``).
    """

    m: int
    n: int
    k: int
    blocks: int
    result: str
    a: str
    b: str
    chips: tuple[str, ...]
    sparse: bool = False


_BOTH, _OLD, _NEW = ("gfx942", "gfx950"), ("gfx942",), ("gfx950",)
SHAPES: dict[str, Shape] = {}


def _add(text: str, result: str, types: str, chips: tuple[str, ...], blocks: int = 1, sparse: bool = False) -> None:
    m, n, k = map(int, re.split("x", text))
    a, _, b = types.partition("_")
    prefix = "v_smfmac" if sparse else "v_mfma"
    SHAPES[f"{prefix}_{result}_{text}_{types}"] = Shape(m, n, k, blocks, result, a, b or a, chips, sparse)


for _type in ("f16", "bf16"):
    for _text in ("32x32x8", "16x16x16"):
        _add(_text, "f32", _type, _BOTH)
    for _text in ("32x32x16", "16x16x32"):
        _add(_text, "f32", _type, _NEW)
    for _text, _blocks in (("32x32x4", 2), ("16x16x4", 4), ("4x4x4", 16)):
        m, n, k = map(int, _text.split("x"))
        SHAPES[f"v_mfma_f32_{_text}_{_blocks}b_{_type}"] = Shape(m, n, k, _blocks, "f32", _type, _type, _BOTH)
for _text in ("32x32x2", "16x16x4"):
    _add(_text, "f32", "f32", _BOTH)
for _text, _blocks in (("32x32x1", 2), ("16x16x1", 4), ("4x4x1", 16)):
    m, n, k = map(int, _text.split("x"))
    SHAPES[f"v_mfma_f32_{_text}_{_blocks}b_f32"] = Shape(m, n, k, _blocks, "f32", "f32", "f32", _BOTH)
for _text in ("32x32x4", "16x16x8"):
    _add(_text, "f32", "xf32", _OLD)
for _a in ("fp8", "bf8"):
    for _b in ("fp8", "bf8"):
        for _text in ("32x32x16", "16x16x32"):
            _add(_text, "f32", f"{_a}_{_b}", _BOTH)
for _text in ("32x32x16", "16x16x32"):
    _add(_text, "i32", "i8", _BOTH)
for _text in ("32x32x32", "16x16x64"):
    _add(_text, "i32", "i8", _NEW)
for _text, _blocks in (("32x32x4", 2), ("16x16x4", 4), ("4x4x4", 16)):
    m, n, k = map(int, _text.split("x"))
    SHAPES[f"v_mfma_i32_{_text}_{_blocks}b_i8"] = Shape(m, n, k, _blocks, "i32", "i8", "i8", _BOTH)
_add("16x16x4", "f64", "f64", _BOTH)
SHAPES["v_mfma_f64_4x4x4_4b_f64"] = Shape(4, 4, 4, 4, "f64", "f64", "f64", _BOTH)
for _text in ("16x16x128", "32x32x64"):
    m, n, k = map(int, _text.split("x"))
    for _prefix in ("v_mfma", "v_mfma_scale"):
        SHAPES[f"{_prefix}_f32_{_text}_f8f6f4"] = Shape(m, n, k, 1, "f32", "f8f6f4", "f8f6f4", _NEW)
for _type in ("f16", "bf16"):
    for _text, _chips in (("16x16x32", _BOTH), ("32x32x16", _BOTH), ("16x16x64", _NEW), ("32x32x32", _NEW)):
        _add(_text, "f32", _type, _chips, sparse=True)
for _text, _chips in (("16x16x64", _BOTH), ("32x32x32", _BOTH), ("16x16x128", _NEW), ("32x32x64", _NEW)):
    _add(_text, "i32", "i8", _chips, sparse=True)
    for _a in ("fp8", "bf8"):
        for _b in ("fp8", "bf8"):
            _add(_text, "f32", f"{_a}_{_b}", _chips, sparse=True)
for _name, _shape in [
    (name, shape) for name, shape in SHAPES.items() if not shape.sparse
]:  # the older spellings of the same instructions
    if "_bf16" in _name and _shape.chips == _BOTH:
        SHAPES[re.sub(r"(_\d+b)?_bf16$", "bf16_1k", _name)] = _shape
    if "b_" in _name and re.search(r"_\d+b_", _name):
        SHAPES[re.sub(r"_\d+b_", "", _name)] = _shape
    elif re.search(r"x\d+_(f16|f32|f64|xf32|i8)$", _name):
        SHAPES[re.sub(r"_(f16|f32|f64|xf32|i8)$", r"\1", _name)] = _shape


@lru_cache(128)
def operand_places(rows: int, k: int, blocks: int, kind: str) -> tuple[Places, Places, Places]:
    """Block, row (or column) and k of each element that each lane holds: three arrays [64, elements of a lane]."""
    lane = np.arange(64)
    groups = 64 // (rows * blocks)  # lanes that share a row
    each = k // groups
    group = lane // (rows * blocks) if rows * blocks < 64 else np.zeros(64, np.int64)
    if blocks > 1 and rows * blocks == 64:
        block, row = lane // rows, lane % rows
    elif blocks > 1:
        block, row = lane // rows % blocks, lane % rows
    else:
        block, row = np.zeros(64, np.int64), lane % rows
    element = np.arange(each)
    if kind in ("fp8", "bf8") and each == 32:  # f8f6f4: two separate halves of 16 bytes
        depth = (element // 16) * (k // 2) + group[:, None] * 16 + element % 16
    else:
        depth = group[:, None] * each + element
    full = np.ones(each, np.int64)
    return block[:, None] * full, row[:, None] * full, depth


@lru_cache(128)
def result_places(m: int, n: int, blocks: int, double: bool) -> tuple[Places, Places, Places]:
    """Block, row and column of each number of the result that each lane holds: three arrays [64, numbers of a lane]."""
    lane = np.arange(64)[:, None]
    count = m * n * blocks // 64
    number = np.arange(count)
    each = count // blocks if blocks * n <= 64 and m * n >= 64 else count
    if m == 4:  # sixteen (or, of doubles, four) blocks, one for each four lanes
        if double:
            return (lane // 4 % 4 + 0 * number, lane // 16 + 0 * number, lane % 4 + 0 * number)
        return (lane // 4 + 0 * number, number + 0 * lane, lane % 4 + 0 * number)
    block, within = number // each, number % each
    if double:
        row = lane // 16 + 4 * within
    else:
        group = 64 // n
        row = 4 * group * (within // 4) + 4 * (lane // n) + within % 4
    return block + 0 * lane, row, lane % n + 0 * number
