"""Cases of ``hip_gluon.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus_case import Expect, Launch, bf16, f32, i32, normal, product, unset, whole
from hip_cases import draws, f16
from hip_cases_matmul import _narrow, _scales


@draws("gluon_buffer_copy")
def buffer_copy(rng: np.random.Generator) -> Launch:
    n = 1100
    x, y = normal(rng, n), unset(n)
    return Launch((3,), [x, y, i32(n)], {"y": Expect(y, x * f32(2) + f32(1), 1e-6, 1e-6)})


@draws("gluon_buffer_atomics")
def buffer_atomics(rng: np.random.Generator) -> Launch:
    n = 496
    x, out = rng.integers(-(2**31), 2**31, n).astype(np.int32), rng.integers(-(2**31), 2**31, 600).astype(np.int32)
    z, out2 = whole(rng, n), np.zeros(8, f32)
    want, rows = out.copy(), x.reshape(-1, 16)
    for at, fold in (
        (0, np.maximum),
        (16, np.minimum),
        (32, np.bitwise_xor),
        (48, np.bitwise_and),
        (64, np.bitwise_or),
    ):
        want[at : at + 16] = fold(fold.reduce(rows, 0), out[at : at + 16])
    want[80 : 80 + n] = x
    return Launch((2,), [x, out, z, out2, i32(n)], {
        "out": Expect(out, want), "out2": Expect(out2, z.reshape(-1, 8).sum(0)),
    })  # fmt: skip


def _product(rng: np.random.Generator, dtype: Any, tile: tuple[int, int], k: int, *, along: bool = False) -> Launch:
    m, n = 2 * tile[0], tile[1]
    a, b, c = whole(rng, m, k, dtype=dtype), whole(rng, *((n, k) if along else (k, n)), dtype=dtype), unset(m, n)
    want = product(a, b.T if along else b)
    return Launch((2, 1), [a, b, c, i32(m), i32(n), i32(k)], {"c": Expect(c, want)})


for _name, _dtype in (("16", f16), ("32", bf16), ("16_wide", bf16), ("32_wide", f16)):
    draws(f"gluon_mfma_{_name}")(lambda rng, dtype=_dtype: _product(rng, dtype, (64, 128), 192))
for _name in ("", "_3"):
    draws(f"gluon_lds_ring{_name}")(lambda rng: _product(rng, f16, (64, 64), 320, along=True))
for _name in ("", "_942"):
    draws(f"gluon_pipelined{_name}")(lambda rng: _product(rng, bf16, (128, 128), 256, along=True))


@draws("gluon_global_to_lds")
def global_to_lds(rng: np.random.Generator) -> Launch:
    x, y = normal(rng, 5 * 1024), unset(5 * 1024)
    return Launch((1,), [x, y, i32(5 * 1024)], {"y": Expect(y, x * f32(3))})


@draws("gluon_padded")
def padded(rng: np.random.Generator) -> Launch:
    x, y = normal(rng, 64, 64, dtype=f16), unset(64, 64, dtype=f16)
    return Launch((1,), [x, y], {"y": Expect(y, x.T)})


def _scaled(rng: np.random.Generator, left: str, right: str) -> Launch:
    (a, x), (b, y), (sa, p), (sb, q) = (
        _narrow(rng, left, 64, 128), _narrow(rng, right, 64, 128), _scales(rng, 64, 128), _scales(rng, 64, 128),
    )  # fmt: skip
    c = unset(64, 64)
    return Launch((1,), [a, b, sa, sb, c], {"c": Expect(c, product(x * p, (y * q).T), 1e-5, 1e-2)})


draws("gluon_scaled")(lambda rng: _scaled(rng, "e2m1", "e4m3"))
draws("gluon_scaled_32")(lambda rng: _scaled(rng, "e5m2", "e2m1"))
