"""Operands with scales, and what their product is in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tilekit.tile_op.block_scaled import FORMATS

E2M1 = np.array([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6])


@dataclass(frozen=True)
class Product:
    """Two operands, their scales, and their product.

    Attributes
    ----------
    a, b
        (M, K) and (K, N), K contiguous.
    scale_a, scale_b
        A row of scales for each row of A, and for each column of B.
    exact, size
        The product in float64, and the sum of its terms' sizes.
    """

    a: Any
    b: Any
    scale_a: Any
    scale_b: Any
    exact: np.ndarray[Any, Any]
    size: np.ndarray[Any, Any]

    @property
    def call(self) -> tuple[Any, Any, Any, Any]:
        """The arguments."""
        return self.a, self.b, self.scale_a, self.scale_b


def draw(
    kind: str, m: int, n: int, k: int, *, seed: int = 0, types: str = "e4m3 e4m3", spread: bool = False
) -> Product:
    """Draw operands whose product is exact in f32, or with `spread` any numbers."""
    rng = np.random.default_rng(seed)
    found = FORMATS[kind]
    count = -(-k // found.block)
    sides = []
    for rows, element in zip((m, n), types.split(), strict=True):
        if found.packed == 2:
            values = rng.choice(E2M1, (rows, k)).astype(ml_dtypes.float4_e2m1fn)
        else:
            dtype = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[element]
            drawn = rng.normal(0, 3, (rows, k)) if spread else rng.integers(-4, 5, (rows, k)).astype(float)
            values = padded(drawn.astype(dtype))
        scales = 2.0 ** rng.integers(-2, 3, (rows, count))
        if kind == "nvfp4":
            steps = rng.uniform(0.1, 400, (rows, count)) if spread else rng.choice([0.5, 1, 1.5, 2, 3], (rows, count))
            scales = steps.astype(ml_dtypes.float8_e4m3fn)
        else:
            scales = scales.astype(ml_dtypes.float8_e8m0fnu)
        numbers = values.astype(np.float64) * np.repeat(scales.astype(np.float64), found.block, 1)[:, :k]
        sides.append((values, scales, numbers))
    (a, scale_a, x), (b, scale_b, y) = sides
    return Product(a, b.T, scale_a, scale_b, x @ y.T, abs(x) @ abs(y.T))


def padded(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same in rows of a multiple of 16 bytes, whose ends the kernel must not read."""
    rows, k = values.shape
    wide = np.full((rows, -(-k // 16) * 16), 0x7F, np.uint8).view(values.dtype)
    wide[:, :k] = values
    return wide[:, :k]


def pairs(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """e2m1 of a byte each, packed along the last dimension."""
    codes = values.view(np.uint8)
    return padded(codes[:, 0::2] | codes[:, 1::2] << 4)


def laid_out(scales: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scales as the tensor core reads them, by the formula of their layout."""
    rows, count = scales.shape
    blocks, along = -(-rows // 128), -(-count // 4)
    out = np.zeros(blocks * along * 512, np.uint8)
    r, k = np.indices(scales.shape)
    out[(r // 128 * along + k // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + k % 4] = scales.view(np.uint8)
    return out.view(scales.dtype)


def without_numbers_behind(scales: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scales as the tensor core reads them, no numbers for the rows that fill the last block of 128."""
    rows, count = scales.shape
    along = -(-count // 4)
    found = laid_out(scales).view(np.uint8)
    r, k = np.indices((-(-rows // 128) * 128, along * 4))
    places = (r // 128 * along + k // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + k % 4
    found[places[rows:].ravel()] = 255
    return found.view(scales.dtype)
