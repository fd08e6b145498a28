"""Cases of ``cuda_kernels`` that are whole programs: locks, graphs, sorting, a debug build, products by roles."""

from __future__ import annotations

import numpy as np
from corpus_case import Expect, Launch, Map, bf16, case, i32, product, unset, whole

f16 = np.float16


@case("nvcc/thread_locks", "sm_80", "sm_90a", "sm_100a")
def thread_locks(rng: np.random.Generator) -> Launch:
    locks, total, count, order = (np.zeros(n, np.int32) for n in (2, 1, 1, 24))
    expect = {
        "sum": Expect(total, [2 * sum(range(12))]),
        "count": Expect(count, [24]),
        "order": Expect(order, np.arange(24), shuffled=True),
        "locks": Expect(locks, [0, 0]),
    }
    return Launch((2,), [locks, total, count, order], expect, threads=12)


@case("nvcc/breadth_first", "sm_90a")
def breadth_first(rng: np.random.Generator) -> Launch:
    n = 120
    edges = rng.integers(0, n, (n, 3)).astype(np.int32)
    level = np.full(n, -1, np.int32)
    level[0] = 0
    want, front, depth = level.copy(), [0], 0
    while front:
        depth += 1
        front = [int(u) for u in dict.fromkeys(edges[front].ravel().tolist()) if want[u] < 0]
        want[front] = depth
    rows, queues, counts = np.arange(0, 3 * n + 1, 3, dtype=np.int32), np.zeros((2, n), np.int32), np.zeros(2, np.int32)
    args = [rows, edges, level, queues[0].copy(), queues[1].copy(), counts, i32(n)]
    return Launch((3,), args, {"level": Expect(level, want)}, threads=64, cooperative=True)


def ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return ackermann(m - 1, ackermann(m, n - 1) if n else 1)


@case("nvcc/debug_build", "sm_90a")
def debug_build(rng: np.random.Generator) -> Launch:
    areas, integers, doubles = unset(32), unset(65, dtype=np.int32), unset(32, dtype=np.float64)
    table = (3, 1, 4, 1)
    whole_numbers = [t % 8 * t + (t * 7 if t & 1 else t + 7) + table[t & 3] + 5 for t in range(32)]
    whole_numbers += [ackermann(1 + t % 2, t % 3) for t in range(32)] + [sum(range(32))]
    start = [(1 / (t + 1), t * 0.5, t**0.5, float(t), float(-t))[t % 5] for t in range(32)]
    added = [sum(i for i in range(min(6, t + 4)) if i != t) for t in range(32)]
    t = np.arange(32.0)
    expect = {
        "areas": Expect(areas, np.where(t % 2, 6 * t * t, (t + 1) ** 2)),
        "integers": Expect(integers, whole_numbers),
        "doubles": Expect(doubles, np.array(start) + added, 1e-15),
    }
    printed = ("sum 496 text 1.500 1099511627776 x",)
    return Launch((1,), [areas, integers, doubles, i32(6)], expect, threads=32, printed=printed)


@case("nvcc/radix_match", "sm_100a")
def radix_match(rng: np.random.Generator) -> Launch:
    keys = rng.integers(0, 1 << 32, 1024).astype(np.uint32)
    return Launch((1,), [keys], {"keys": Expect(keys, np.sort(keys))}, threads=256)


@case("nvcc/warp_specialized_gemm", "sm_90a")
def warp_specialized_gemm(rng: np.random.Generator) -> Launch:
    m, n, k = 512, 128, 256
    a, b, c = whole(rng, m, k, dtype=bf16), whole(rng, n, k, dtype=bf16), unset(m, n, dtype=bf16)
    args = [Map(a, (64, 128)), Map(b, (64, 64)), Map(c, (64, 64)), i32(m), i32(n), i32(k)]
    expect = {"c": Expect(c, product(a, b.T).astype(bf16))}
    return Launch((2,), args, expect, threads=384, shared_bytes=3 * 32768 + 32768 + 1024 + 64)


@case("nvcc/tcgen05_gemm", "sm_100a")
def tcgen05_gemm(rng: np.random.Generator) -> Launch:
    m, n, k = 256, 128, 320
    a, b, c = whole(rng, m, k, dtype=f16), whole(rng, n, k, dtype=f16), unset(m, n)
    args = [Map(a, (64, 128)), Map(b, (64, 64)), c, i32(n), i32(k)]
    shared = 3 * (16384 + 8192) + 1024 + 128
    return Launch((n // 64, m // 128), args, {"c": Expect(c, product(a, b.T))}, threads=192, shared_bytes=shared)
