"""Cases of ``hip_kernels.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from corpus_case import Expect, Launch, bf16, e4m3, e5m2, i32, normal, product, unset, whole

f16 = np.float16
e4m3_fnuz = ml_dtypes.float8_e4m3fnuz


Draw = Callable[[np.random.Generator], Launch]
DRAWS: dict[str, Draw] = {}


def draws(name: str) -> Callable[[Draw], Draw]:
    """Register the inputs and the reference of a kernel."""
    return lambda draw: DRAWS.setdefault(name, draw)


def _plain(
    rng: np.random.Generator, dtype: Any, out: Any, m: int, n: int, k: int, tile: tuple[int, int], **near: float
) -> Launch:
    a, b, c = whole(rng, m, k, dtype=dtype), whole(rng, k, n, dtype=dtype), unset(m, n, dtype=out)
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    return Launch(grid, [a, b, c, i32(m), i32(n), i32(k)], {"c": Expect(c, product(a, b), **near)})


@draws("amd_matmul_bf16_512")
def matmul_512(rng: np.random.Generator) -> Launch:
    """512 x 512 x 512 in bfloat16."""
    return _plain(rng, bf16, bf16, 512, 512, 512, (128, 128), rtol=4e-3)


@draws("amd_matmul_bf16")
def matmul_bf16(rng: np.random.Generator) -> Launch:
    """Whole tiles in bfloat16."""
    return _plain(rng, bf16, bf16, 128, 64, 192, (64, 64), rtol=4e-3)


@draws("amd_matmul_f16")
def matmul_f16(rng: np.random.Generator) -> Launch:
    """Tiles that the matrix leaves in part."""
    return _plain(rng, f16, f16, 80, 112, 144, (64, 64))


@draws("amd_matmul_f16_odd")
def matmul_f16_odd(rng: np.random.Generator) -> Launch:
    """Sizes that are multiples of nothing."""
    return _plain(rng, f16, f16, 45, 77, 53, (32, 64))


@draws("amd_matmul_e4m3")
def matmul_e4m3(rng: np.random.Generator) -> Launch:
    """OCP's e4m3."""
    return _plain(rng, e4m3, f16, 64, 128, 128, (64, 64))


@draws("amd_matmul_e5m2")
def matmul_e5m2(rng: np.random.Generator) -> Launch:
    """OCP's e5m2."""
    return _plain(rng, e5m2, np.float32, 64, 64, 128, (64, 64))


@draws("amd_matmul_e4m3_fnuz")
def matmul_fnuz(rng: np.random.Generator) -> Launch:
    """The e4m3 without negative zero."""
    return _plain(rng, e4m3_fnuz, np.float32, 64, 64, 128, (64, 64))


@draws("amd_matmul_e5m2_fnuz")
def matmul_e5m2_fnuz(rng: np.random.Generator) -> Launch:
    """The e5m2 without negative zero."""
    return _plain(rng, ml_dtypes.float8_e5m2fnuz, np.float32, 64, 64, 128, (64, 64))


@draws("amd_matmul_e4m3_16")
def matmul_e4m3_16(rng: np.random.Generator) -> Launch:
    """Few rows of 8 bits."""
    return _plain(rng, e4m3, np.float32, 16, 64, 256, (16, 32))


@draws("amd_matmul_f32")
def matmul_f32(rng: np.random.Generator) -> Launch:
    """Normal numbers in float32, whose mantissas gfx942 may shorten (xf32)."""
    a, b, c = normal(rng, 64, 96), normal(rng, 96, 32), unset(64, 32)
    args = [a, b, c, i32(64), i32(32), i32(96)]
    return Launch((2, 1), args, {"c": Expect(c, product(a, b), 1e-2, 2e-2)})


@draws("amd_matmul_s8")
def matmul_s8(rng: np.random.Generator) -> Launch:
    """Bytes."""
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((64, 160), (160, 64)))
    c = unset(64, 64, dtype=np.int32)
    return Launch((1, 1), [a, b, c, i32(64), i32(64), i32(160)], {"c": Expect(c, a.astype(int) @ b.astype(int))})


@draws("amd_matmul_16_rows")
def matmul_16_rows(rng: np.random.Generator) -> Launch:
    """Few rows, as in decoding."""
    return _plain(rng, bf16, np.float32, 16, 96, 256, (16, 32))


@draws("amd_add_million")
def add_million(rng: np.random.Generator) -> Launch:
    """2**20 elements."""
    count = 1 << 20
    x, y, z = normal(rng, count), normal(rng, count), unset(count)
    return Launch((count // 1024,), [x, y, z, i32(count)], {"z": Expect(z, x + y)})
