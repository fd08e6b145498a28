"""Cases of ``cuda_kernels`` that use CUDA's libraries: warp matrices, cooperative groups, CUB, libcu++."""

from __future__ import annotations

import numpy as np
from corpus_case import Array, Expect, Launch, bf16, case, i32, product, unset, whole

BOTH = ("sm_80", "sm_90a")
ALL = (*BOTH, "sm_100a")
f16 = np.float16


@case("nvcc/wmma_gemm", *ALL)
def wmma_gemm(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 64, 32, dtype=f16), whole(rng, 32, 64, dtype=f16), whole(rng, 64, 64)
    want = {"c": (c, 2 * product(a, b) + 3 * c)}
    args = [a, b, c, i32(32)]
    for name, m, n, k, kind, result in (
        ("bf16", 8, 32, 16, bf16, np.float32),
        ("s8", 32, 8, 16, np.int8, np.int32),
        ("tf32", 16, 16, 8, np.float32, np.float32),
        ("f64", 8, 8, 4, np.float64, np.float64),
    ):
        x, y, z = whole(rng, m, k, dtype=kind), whole(rng, n, k, dtype=kind), unset(n, m, dtype=result)
        want[name] = (z, product(x, y.T).T + 1)
        args += [x, y, z]
    small = unset(16, 16, dtype=f16)  # of the first 16 x 16 of a's memory, and of b's by columns
    first, second = a.reshape(-1)[:256].reshape(16, 16), b.reshape(-1)[:256].reshape(16, 16)
    want["f16"] = (small, product(first, second.T).T + 1)
    expect = {name: Expect(array, reference) for name, (array, reference) in want.items()}
    return Launch((1,), [*args, small], expect, threads=128)


@case("nvcc/cub_block", *BOTH)
def cub_block(rng: np.random.Generator) -> Launch:
    n = 500
    x = rng.integers(0, 4096, n).astype(np.int32)
    scanned, keys, places = unset(512, dtype=np.int32), unset(512, dtype=np.uint32), unset(512, dtype=np.int32)
    bins, heads, ordered = unset(16, dtype=np.uint32), unset(512, dtype=np.int32), unset(256, dtype=np.int32)
    total = unset(1, dtype=np.int64)
    v = np.concatenate([x, np.full(12, 7, np.int32)])
    order = np.argsort(-v, kind="stable")
    sums = np.concatenate([(v.cumsum() - v)[:n], np.full(12, -1)])
    high = v >> 8
    pairs = high.reshape(4, 32, 4)[:, :, [0, 3]].reshape(4, 64)
    expect = {
        "scanned": Expect(scanned, sums),
        "keys": Expect(keys, v[order]),
        "places": Expect(places, order),
        "bins": Expect(bins, np.bincount(v & 15, minlength=16)),
        "heads": Expect(heads, np.concatenate([[1], high[1:] != high[:-1]])),
        "ordered": Expect(ordered, np.sort(pairs, 1).reshape(-1)),
        "total": Expect(total, [(int(v.sum()) << 32) * 128 + 127 * 64]),
    }
    args = [x, scanned, keys, places, bins, heads, ordered, total, i32(n)]
    return Launch((1,), args, expect, threads=128)


@case("nvcc/look_back_scan", *BOTH)
def look_back_scan(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(-50, 50, 9 * 128).astype(np.int32), unset(9 * 128, dtype=np.int32)
    state, following = np.zeros(9, np.uint64), np.zeros(1, np.uint32)
    prefixes = x.cumsum().reshape(9, 128)[:, -1]
    expect = {
        "out": Expect(out, x.cumsum()),
        "state": Expect(state, 2 << 32 | prefixes % 2**32),
        "next": Expect(following, [9]),
    }
    return Launch((9,), [x, out, state, following], expect, threads=128)


@case("nvcc/group_functions", *BOTH)
def group_functions(rng: np.random.Generator) -> Launch:
    x = rng.integers(0, 1000, (2, 256)).astype(np.int32)
    kept, count, out = np.zeros(512, np.int32), np.zeros(1, np.int32), unset(2, 128, 6, dtype=np.int32)
    warps = x[:, :128].reshape(-1, 32)
    rows = []
    for w in warps.tolist():
        for lane, v in enumerate(w):
            alike = [t for t in w if t & 3 == v & 3]
            before = [t for t in w[:lane] if t & 3 == v & 3]
            half = [t for t in range(lane & 16, (lane & 16) + 16) if (w[t] > 500) == (v > 500)]
            some = [t for t in range(32) if t % 5 < 2]
            match = sum(1 << place for place, t in enumerate(some) if w[t] & 1 == v & 1)
            quad = w[lane & ~3 : (lane & ~3) + 4]
            rows.append([
                sum(alike),
                sum(w[: lane + 1]),
                int(np.bitwise_xor.reduce(before)) if before else 0,
                len(half) * 100 + half.index(lane),
                min(w[t] for t in some) + match % 1000 if lane in some else 0,
                w[lane ^ 3] + (max(quad) > 900) * 10000 + lane // 4 * 20000,
            ])  # fmt: skip
    wanted = x[x % 3 == 0]
    expect = {"out": Expect(out, np.array(rows).reshape(2, 128, 6)), "count": Expect(count, [len(wanted)])}
    expect["kept"] = Expect(kept, np.pad(wanted, (0, 512 - len(wanted))), shuffled=True)
    return Launch((2,), [x, kept, count, out, i32(512)], expect, threads=128)


@case("nvcc/grid_sync", *BOTH)
def grid_sync(rng: np.random.Generator) -> Launch:
    x, y = whole(rng, 1000), unset(1000)
    before, after = x, x
    for _ in range(3):
        padded = np.pad(after, 1)
        before, after = after, padded[:-2] + padded[2:] - padded[1:-1]
    expect = {"x": Expect(x, before), "y": Expect(y, after)}
    return Launch((4,), [x, y, i32(1000), i32(3)], expect, threads=64, cooperative=True)


@case("nvcc/pipeline", *ALL)
def pipeline(rng: np.random.Generator) -> Launch:
    x, w, out = whole(rng, 2, 7, 128), whole(rng, 2, 128), unset(2, 128)
    want = (x.sum(1) * w[0] * w[1])[:, ::-1]
    return Launch((2,), [x, w, out, i32(7)], {"out": Expect(out, want)}, threads=160)


@case("nvcc/bulk_barrier", "sm_90a", "sm_100a")
def bulk_barrier(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(0, 999, (2, 2, 256)).astype(np.int32), unset(2, 2, 256, dtype=np.int32)
    scaled = 3 * x + np.array([[0], [1]])
    return Launch((2,), [x, out], {"out": Expect(out, scaled[:, ::-1] - scaled)}, threads=128)


@case("nvcc/atomic_orders", *ALL)
def atomic_orders(rng: np.random.Generator) -> Launch:
    x = rng.integers(0, 99, (4, 128)).astype(np.int32)
    out, flag, data = unset(4, 3, dtype=np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    total, small = np.zeros(1, np.float32), np.zeros(4, np.uint16)
    passed = 0
    for block in range(4):
        passed = passed * 2 + block + 1
    leaders: Array = x[:, ::32].sum(1)
    expect = {
        "out": Expect(out, np.stack([x.max(1), np.full(4, 128), leaders], 1)),
        "flag": Expect(flag, [4]),
        "data": Expect(data, [passed]),
        "sum": Expect(total, [x.sum()]),
        "small": Expect(small, np.bincount(x.reshape(-1) & 3, minlength=4)),
    }
    return Launch((4,), [x, out, flag, data, total, small], expect, threads=128)
