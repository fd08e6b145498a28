"""The arithmetic of matrix instructions, for the waves of a batch at once.

Products of one instruction are summed in float32 (float64 where doubles or block scales are multiplied), which is
what the chips give wherever the sums are exact, and equal to rounding elsewhere; :mod:`.rounding` has gfx942's own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.gcn.arithmetic.conversions import NARROW, byte_type, f16_to_f32, table
from tilekit.emulator.gcn.matrix.rounding import rounded_product
from tilekit.emulator.gcn.matrix.shapes import BITS, Shape, operand_places, result_places

__all__ = ["FORMATS", "index_sets", "multiply", "registers_of"]

Array = npt.NDArray[Any]
FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")
"""What ``cbsz`` and ``blgp`` name for f8f6f4, by number."""


def registers_of(shape: Shape, rows: int, kind: str) -> int:
    """How many registers a source of so many rows, or columns, takes."""
    return rows * shape.k * shape.blocks * BITS[kind] // (64 * 32)


@lru_cache(256)
def _source_index(rows: int, k: int, blocks: int, kind: str) -> Array:
    """Where each element of [blocks, rows, k] lies among the elements of all lanes, lane after lane."""
    block, row, depth = operand_places(rows, k, blocks, kind)
    index = np.empty((blocks, rows, k), np.int64)
    each = block.shape[1]
    index[block, row, depth] = np.arange(64)[:, None] * each + np.arange(each)
    return index.reshape(-1)


@lru_cache(64)
def _result_index(m: int, n: int, blocks: int, double: bool) -> Array:
    """Where each number of each lane lies in [blocks, m, n]: [64, numbers]."""
    block, row, column = result_places(m, n, blocks, double)
    return (block * m + row) * n + column


def _elements(raw: Array, kind: str) -> Array:
    """The elements of each lane as integers: [waves, 64 * elements], from uint32[registers, waves, 64]."""
    waves = raw.shape[1]
    packed = np.ascontiguousarray(np.moveaxis(raw, 0, -1))
    bits = BITS[kind]
    if bits >= 8:
        view = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
        return packed.view(view).reshape(waves, -1)
    if bits == 4:
        octets = packed.view(np.uint8)
        return np.stack([octets & 15, octets >> 4], axis=-1).reshape(waves, -1)
    single = np.unpackbits(packed.view(np.uint8).reshape(waves, 64, -1), axis=-1, bitorder="little")
    groups = single.reshape(waves, -1, bits)
    return np.packbits(groups, axis=-1, bitorder="little")[..., 0]


def _values(codes: Array, kind: str, fnuz: bool) -> Any:
    """The numbers that patterns are."""
    match kind:
        case "f16":
            return f16_to_f32(codes)
        case "bf16":
            return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
        case "f32":
            return codes.view(np.float32)
        case "xf32":
            return (codes & np.uint32(0xFFFFE000)).view(np.float32)
        case "f64":
            return codes.view(np.float64)
        case "i8":
            return codes.view(np.int8).astype(np.float32)
        case "fp8" | "bf8":
            return table(byte_type(kind, fnuz))[codes]
    return table(NARROW[kind], BITS[kind])[codes]


def _matrix(raw: Array, rows: int, shape: Shape, kind: str, fnuz: bool) -> Any:
    codes = _elements(raw, kind)[:, _source_index(rows, shape.k, shape.blocks, kind)]
    return _values(codes, kind, fnuz).reshape(raw.shape[1], shape.blocks, rows, shape.k)


def _spread(raw: Array, shape: Shape, kind: str, index: Array, place: int) -> Array:
    """The elements of a sparse A, with zeros where it has none: [waves, 64 * elements].

    Elements 2n and 2n + 1 of a lane are two of its elements 4n to 4n + 3 along k; two bits of the index say which. A
    register has 32 bits of indices: as many sets as fit, of which `place` is the number of one.
    """
    codes = _elements(raw, kind)
    waves = codes.shape[0]
    codes = codes.reshape(waves, 64, -1)
    count = codes.shape[2]
    at = np.arange(count)
    shifts = (2 * count * place + 2 * at).astype(np.uint32)
    chosen = (index[:, :, None] >> shifts & np.uint32(3)).astype(np.int64) + 4 * (at // 2)
    dense = np.zeros((waves, 64, 2 * count), codes.dtype)
    np.put_along_axis(dense, chosen, codes, axis=2)
    found: Array = dense.reshape(waves, -1)
    return found


def index_sets(shape: Shape) -> int:
    """How many sets of indices a register has for a sparse shape."""
    return 32 // (shape.m * shape.k // 64)


def _scales(raw: Array, rows: int, byte: int) -> Array:
    """Scales [waves, rows, blocks of 32 along k]: lane l has those of row l % rows and block l // rows."""
    codes = (raw >> np.uint32(8 * byte) & np.uint32(0xFF)).astype(np.int32)
    values = np.where(codes == 255, np.nan, np.ldexp(1.0, codes - 127))
    return np.moveaxis(values.reshape(len(raw), 64 // rows, rows), 1, 2)


def multiply(
    shape: Shape, kinds: tuple[str, str], sources: tuple[Array, Array, Array | int], fnuz: bool,
    scales: tuple[Array, int, Array, int] | None = None, *, exact: bool = False,
    sparse: tuple[Array, int] | None = None,
) -> Array:  # fmt: skip
    """D = A B + C.

    Parameters
    ----------
    kinds
        Types of A and B.
    sources
        Registers of A, B and C, uint32[registers, waves, 64]; for C also the bits of a number.
    fnuz
        Whether the chip's 8-bit floats have no negative zero.
    scales
        Registers [waves, 64] of the scales of A and B, and the byte of them that is used.
    exact
        Whether sums are rounded as gfx942 rounds them; no rule is published for sparse ones.
    sparse
        Register [waves, 64] of a sparse A's indices, and the number of the set in it that is used.

    Returns
    -------
    uint32[registers, waves, 64]
    """
    a, b, c = sources
    if sparse is None:
        left = _matrix(a, shape.m, shape, kinds[0], fnuz)
    else:
        codes = _spread(a, shape, kinds[0], *sparse)[:, _source_index(shape.m, shape.k, shape.blocks, kinds[0])]
        left = _values(codes, kinds[0], fnuz).reshape(a.shape[1], shape.blocks, shape.m, shape.k)
    right = _matrix(b, shape.n, shape, kinds[1], fnuz)
    waves = left.shape[0]
    if scales is not None:
        scale_a, byte_a, scale_b, byte_b = scales
        factors = _scales(scale_a, shape.m, byte_a)[:, :, :, None], _scales(scale_b, shape.n, byte_b)[:, :, :, None]
        left, right = (
            (x[:, 0].reshape(waves, -1, shape.k // 32, 32) * factor).reshape(waves, 1, -1, shape.k)
            for x, factor in zip((left, right), factors, strict=True)
        )
    if exact and shape.result != "i32" and not shape.sparse:
        return _rounded(shape, kinds, left, right, c, fnuz)
    product = left @ right.swapaxes(2, 3)
    index = _result_index(shape.m, shape.n, shape.blocks, shape.result == "f64")
    found = product.reshape(waves, -1)[:, index]  # [waves, 64, numbers]
    return _accumulate(found, c, shape)


def _rounded(
    shape: Shape, kinds: tuple[str, str], left: Array, right: Array, c: Array | int, fnuz: bool
) -> Array:  # fmt: skip
    """The registers of the result, rounded as the chip does."""
    waves, kind = left.shape[0], np.float64 if shape.result == "f64" else np.float32
    index = _result_index(shape.m, shape.n, shape.blocks, shape.result == "f64")
    if isinstance(c, int):
        values: Any = np.array([c], np.uint64 if shape.result == "f64" else np.uint32).view(kind)
    else:
        values = np.ascontiguousarray(np.moveaxis(c, 0, -1)).view(kind)
    added = np.empty((waves, shape.blocks * shape.m * shape.n), kind)
    added[:, index] = values
    found = rounded_product(left, right, added.reshape(waves, shape.blocks, shape.m, shape.n), kinds, fnuz)
    return np.moveaxis(np.ascontiguousarray(found.reshape(waves, -1)[:, index]).view(np.uint32), -1, 0)


def _accumulate(found: Array, c: Array | int, shape: Shape) -> Array:
    """Add C, and give the registers of the result."""
    if shape.result == "f64":
        if isinstance(c, int):
            added = np.array([c], np.uint64).view(np.float64)
        else:
            added = np.ascontiguousarray(np.moveaxis(c, 0, -1)).view(np.float64)
        total = np.ascontiguousarray(found + added)
        return np.moveaxis(total.view(np.uint32), -1, 0)
    columns = np.moveaxis(found, -1, 0)
    if shape.result == "i32":
        old = np.int64(c) if isinstance(c, int) else c.astype(np.int64)
        return (columns.astype(np.int64) + old).astype(np.uint32)
    before = np.array(c, np.uint32).view(np.float32) if isinstance(c, int) else c.view(np.float32)
    return np.ascontiguousarray((columns + before).astype(np.float32)).view(np.uint32)
