"""Cases of ``triton_kernels/gluon.py`` and ``triton_kernels/blackwell.py``."""

from __future__ import annotations

import numpy as np
from corpus_case import Expect, Launch, Map, bf16, case, e4m3, i32, normal, product, unset, whole

ALL = ("sm_80", "sm_90a", "sm_100a")
HOPPER_ON = ("sm_90a", "sm_100a")
f16 = np.float16


@case("triton/gluon_async_copy", *ALL)
def async_copy(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 1000), unset(1000)
    return Launch((1,), [x, out, i32(1000)], {"out": Expect(out, 2 * x + 1)})


@case("triton/gluon_mma_v2", "sm_80", "sm_90a")
def mma_v2(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 64, 32, dtype=f16), whole(rng, 32, 32, dtype=f16), unset(64, 32)
    return Launch((1,), [a, b, c], {"c": Expect(c, product(a, b))})


@case("triton/gluon_tma_copy", *HOPPER_ON)
def tma_copy(rng: np.random.Generator) -> Launch:
    x, y = normal(rng, 180, 128, dtype=f16), unset(180, 128, dtype=f16)
    return Launch((2,), [Map(x), Map(y), i32(3)], {"y": Expect(y, x)})


@case("triton/gluon_stored_twice", "sm_90a")
@case("triton/gluon_stored_both_ways", "sm_90a")
def stored_twice(rng: np.random.Generator) -> Launch:
    x, y = normal(rng, 160, 128, dtype=f16), unset(160, 128, dtype=f16)
    return Launch((5,), [Map(x), Map(y), y], {"y": Expect(y, x)})


@case("triton/gluon_wgmma_ring", "sm_90a")
def wgmma_ring(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 200, 320, dtype=f16), whole(rng, 320, 128, dtype=f16), unset(200, 128, dtype=f16)
    return Launch((2, 2), [Map(a), Map(b), Map(c), i32(320)], {"c": Expect(c, product(a, b))})


@case("triton/gluon_warp_specialized", "sm_90a")
def warp_specialized(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 256, 320, dtype=f16), whole(rng, 320, 64, dtype=f16), unset(256, 64)
    return Launch((2, 1), [Map(a), Map(b), c, i32(320)], {"c": Expect(c, product(a, b))})


@case("triton/gluon_cluster_sum", *HOPPER_ON)
def cluster_sum(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 24, 256), unset(24)
    return Launch((3,), [x, out], {"out": Expect(out, x.sum(1))})


@case("triton/gluon_cluster_sum_4", *HOPPER_ON)
def cluster_sum_4(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 8, 512), unset(8)
    return Launch((2,), [x, out], {"out": Expect(out, x.sum(1))})


@case("triton/gluon_multicast", *HOPPER_ON)
def multicast(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 64, 64, dtype=f16), unset(64, 64, dtype=f16)
    return Launch((2,), [Map(x), out], {"out": Expect(out, x.astype(float) + 1)})


@case("triton/gluon_im2col", "sm_90a")
def im2col(rng: np.random.Generator) -> Launch:
    x, weight = whole(rng, 2, 6, 16, 64, dtype=f16), whole(rng, 9 * 64, 64, dtype=f16)
    out = unset(192, 64)
    padded = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = weight.astype(float).reshape(3, 3, 64, 64)
    want = sum(padded[:, r : r + 6, s : s + 16] @ taps[r, s] for r in range(3) for s in range(3))
    args = [Map(x, corners=(-1, -1)), Map(weight), out, i32(6), i32(16), i32(64)]
    return Launch((3,), args, {"out": Expect(out, np.reshape(want, (192, 64)))})


@case("triton/gluon_packed", "sm_100a")
def packed(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 512), unset(512)
    y, out2 = normal(rng, 512, dtype=bf16), unset(512, dtype=bf16)
    half = np.maximum(y.astype(np.float32), y.astype(np.float32) / 2)
    return Launch((1,), [x, out, y, out2], {"out": Expect(out, x * x + x + 1), "out2": Expect(out2, half)})


@case("triton/gluon_tmem_copy", "sm_100a")
def tmem_copy(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 128, 64), unset(128, 64)
    return Launch((1,), [x, out], {"out": Expect(out, 2 * x)})


@case("triton/gluon_tcgen05", "sm_100a")
def tcgen05(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 256, 192, dtype=f16), whole(rng, 192, 128, dtype=f16), unset(256, 128, dtype=f16)
    return Launch((2, 2), [Map(a), Map(b), Map(c), i32(192)], {"c": Expect(c, product(a, b))})


@case("triton/gluon_tcgen05_m64", "sm_100a")
def tcgen05_m64(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 128, 128, dtype=bf16), whole(rng, 128, 128, dtype=bf16), unset(128, 128, dtype=bf16)
    want = product(a, b).astype(np.float32).astype(bf16)
    return Launch((2, 1), [Map(a), Map(b), Map(c), i32(128)], {"c": Expect(c, want)})


@case("triton/gluon_tcgen05_roles", "sm_100a")
def tcgen05_roles(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 200, 320, dtype=f16), whole(rng, 320, 256, dtype=f16), unset(200, 256, dtype=f16)
    return Launch((2, 2), [Map(a), Map(b), Map(c), i32(320)], {"c": Expect(c, product(a, b))})


@case("triton/gluon_clc", "sm_100a")
def cluster_launch_control(rng: np.random.Generator) -> Launch:
    out, counter = np.zeros(300, np.int32), np.zeros(1, np.int32)
    expect = {"out": Expect(out, np.arange(1, 301)), "counter": Expect(counter, [300])}
    return Launch((300,), [out, counter], expect)


@case("triton/gluon_scaled", "sm_100a")
def scaled(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 128, 128, dtype=e4m3), whole(rng, 64, 128, dtype=e4m3), unset(128, 64)
    sa, sb = (rng.integers(124, 130, (rows, 4)).astype(np.uint8) for rows in (128, 64))
    left, right = (x.astype(float) * np.exp2(s.astype(int) - 127.0).repeat(32, 1) for x, s in ((a, sa), (b, sb)))
    maps = [Map(a.view(np.uint8)), Map(b.view(np.uint8))]
    return Launch((1,), [*maps, sa, sb, c], {"c": Expect(c, left @ right.T, 1e-6)})


@case("triton/gluon_two_ctas", "sm_100a")
def two_ctas(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 256, 64, dtype=f16), whole(rng, 64, 64, dtype=f16), unset(256, 64)
    return Launch((1,), [Map(a), Map(b), c], {"c": Expect(c, product(a, b))})
