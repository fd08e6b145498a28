"""Cases of ``hip_memory.py``."""

from __future__ import annotations

import numpy as np
from corpus_case import Array, Expect, Launch, bf16, f32, i32, i64, normal, unset, whole
from hip_cases import draws, f16


def _folded(function: np.ufunc, start: Array, values: Array) -> Array:
    """Each slot with all values that go there."""
    out = start.copy()
    for slot in range(len(start)):
        out[slot] = function.reduce(values[slot :: len(start)], initial=start[slot])
    return out


@draws("amd_atomics_words")
@draws("amd_atomics_words_flat")
def atomics_words(rng: np.random.Generator) -> Launch:
    n = 384
    x = rng.integers(-(2**31), 2**31, n).astype(np.int32)
    out = rng.integers(-(2**31), 2**31, 1024).astype(np.int32)
    out[56], out[512:] = 0, 0
    out[600:700] = 5
    seen = unset(n, dtype=np.int32)
    want, u = out.copy(), x.view(np.uint32)
    want[:8] = _folded(np.bitwise_and, out[:8], x | 0xFFFF)
    want[8:16] = _folded(np.bitwise_or, out[8:16], x & 0xFF0)
    want[16:24] = _folded(np.bitwise_xor, out[16:24], x)
    want[24:32] = _folded(np.minimum, out[24:32], x)
    want[32:40] = _folded(np.maximum, out[32:40], np.where(x % 2 == 0, x, -(2**31)).astype(np.int32))
    want[40:48] = _folded(np.minimum, out[40:48].view(np.uint32), u).view(np.int32)
    want[48:56] = _folded(np.maximum, out[48:56].view(np.uint32), u).view(np.int32)
    want[56] = n
    want[64 : 64 + n] = x
    old = out[512 : 512 + n]
    want[512 : 512 + n] = np.where(old == 0, x, old)
    hit = want[512 : 512 + n] == old + 1
    want[512 : 512 + n][hit] = (x * np.int32(7))[hit]
    return Launch((3,), [x, out, seen], {"out": Expect(out, want), "seen": Expect(seen, np.arange(n), shuffled=True)})


@draws("amd_atomics_wide")
def atomics_wide(rng: np.random.Generator) -> Launch:
    n = 192
    x, out = rng.integers(-(2**62), 2**62, n), rng.integers(-(2**62), 2**62, 512)
    out[256:] = 0
    y, out2 = rng.integers(-50, 50, n).astype(np.float64), np.zeros(4)
    want = out.copy()
    for at, function in ((0, np.minimum), (4, np.maximum), (8, np.bitwise_xor), (16, np.bitwise_or), (20, np.add)):
        want[at : at + 4] = _folded(function, out[at : at + 4], x)
    want[12:16] = _folded(np.bitwise_and, out[12:16], x | 0xFFFFFFFF)
    want[64 : 64 + n], want[256 : 256 + n] = x, x
    return Launch((3,), [x, out, y, out2], {
        "out": Expect(out, want), "out2": Expect(out2, y.reshape(-1, 4).sum(0)),
    })  # fmt: skip


@draws("amd_atomics_narrow")
@draws("amd_atomics_narrow_flat")
def atomics_narrow(rng: np.random.Generator) -> Launch:
    n = 768
    x, y, z = whole(rng, n, dtype=f16), whole(rng, n, dtype=bf16), whole(rng, n, most=90)
    out, out2, out3 = np.zeros(32, f16), np.zeros(256, bf16), np.zeros(11, f32)
    out3[:4], out3[4:8] = -np.inf, np.inf
    kept = np.where(np.arange(n) % 5 != 0, x.astype(f32), 0)
    want = np.concatenate([
        z.reshape(-1, 4).max(0), z.reshape(-1, 4).min(0), [z[k::3].sum() for k in range(3)],
    ])  # fmt: skip
    return Launch((3,), [x, out, y, out2, z, out3], {
        "out": Expect(out, kept.reshape(-1, 32).sum(0)), "out2": Expect(out2, y.astype(f32).reshape(3, 256).sum(0)),
        "out3": Expect(out3, want),
    })  # fmt: skip


@draws("amd_ticket_lock")
def ticket_lock(rng: np.random.Generator) -> Launch:
    tickets, order, total = np.zeros(2, np.int32), unset(6, dtype=np.int32), np.zeros(128, f32)
    return Launch((6,), [tickets, order, total], {
        "tickets": Expect(tickets, [6, 6]), "order": Expect(order, np.arange(6), shuffled=True),
    })  # fmt: skip


@draws("amd_handed_on")
def handed_on(rng: np.random.Generator) -> Launch:
    x, out, flags = whole(rng, 5 * 256), unset(5 * 256), np.zeros(5, np.int32)
    return Launch((5,), [x, out, flags], {"out": Expect(out, x.cumsum()), "flags": Expect(flags, np.ones(5))})


@draws("amd_last_block")
def last_block(rng: np.random.Generator) -> Launch:
    n = 1500
    x, partial, counter, out = whole(rng, n), unset(6), np.zeros(1, np.int32), unset(1)
    return Launch((6,), [x, partial, counter, out, i32(n)], {"out": Expect(out, [x.sum()])})


@draws("amd_compaction")
def compaction(rng: np.random.Generator) -> Launch:
    n = 1200
    x, count = rng.integers(0, 1 << 20, n).astype(np.int32), np.zeros(1, np.int32)
    kept = x[x % 3 == 1]
    out = unset(len(kept), dtype=np.int32)
    return Launch((3,), [x, out, count, i32(n)], {
        "out": Expect(out, kept, shuffled=True), "count": Expect(count, [len(kept)]),
    })  # fmt: skip


@draws("amd_gather_scatter")
@draws("amd_gather_scatter_flat")
def gather_scatter(rng: np.random.Generator) -> Launch:
    rows = rng.integers(-1, 40, 24)
    x, out = normal(rng, 40, 72, dtype=bf16), unset(24, 64, dtype=bf16)
    where = rng.permutation(1536).astype(np.int32)
    y, out2 = rng.integers(-128, 127, 1536).astype(np.int8), unset(1536, dtype=np.int8)
    want = np.zeros((24, 64), f32)
    want[rows >= 0, :50] = x[rows[rows >= 0], :50]
    moved = np.empty(1536, np.int8)
    moved[where] = y + 1
    return Launch(
        (3,), [rows, x, out, where, y, out2, i64(72)], {"out": Expect(out, want), "out2": Expect(out2, moved)}
    )


@draws("amd_axis_gather")
def axis_gather(rng: np.random.Generator) -> Launch:
    x, index = normal(rng, 32, 64, dtype=f16), rng.integers(0, 32, (16, 64)).astype(np.int32)
    out, y, out2 = unset(16, 64, dtype=f16), rng.integers(-(2**60), 2**60, 64), unset(64, dtype=np.int64)
    return Launch((1,), [x, index, out, y, out2], {
        "out": Expect(out, np.take_along_axis(x, index.astype(int), 0)), "out2": Expect(out2, y[::-1]),
    })  # fmt: skip


def _cube(rng: np.random.Generator, a: int, b: int, c: int) -> Launch:
    x, y = (rng.integers(-100, 100, (a, b, c)).astype(t) for t in (np.int16, np.int8))
    out, out2 = unset(c, b, a, dtype=np.int16), unset(b, a, c, dtype=np.int8)
    return Launch((1,), [x, out, y, out2], {
        "out": Expect(out, x.transpose(2, 1, 0)), "out2": Expect(out2, y.transpose(1, 0, 2)),
    })  # fmt: skip


@draws("amd_transpose_cube")
def transpose_cube(rng: np.random.Generator) -> Launch:
    return _cube(rng, 16, 32, 16)


@draws("amd_transpose_cube_1")
def transpose_cube_1(rng: np.random.Generator) -> Launch:
    return _cube(rng, 8, 16, 8)


@draws("amd_strided")
def strided(rng: np.random.Generator) -> Launch:
    rows, columns = 20, 45
    x, out = normal(rng, 2 * columns, 2 * rows), unset(rows, columns)
    want = x.T.reshape(rows, 2, columns, 2).max((1, 3))
    args = [x, out, i32(rows), i32(columns), i32(1), i32(2 * rows)]
    return Launch((2,), args, {"out": Expect(out, want)})


@draws("amd_radix_pass")
def radix_pass(rng: np.random.Generator) -> Launch:
    n, shift = 200, 4
    x, offsets, out = rng.integers(0, 1 << 20, n).astype(np.int32), unset(16, dtype=np.int32), unset(n, dtype=np.int32)
    digit = x >> shift & 15
    counts = np.bincount(digit, minlength=16)
    return Launch((1,), [x, offsets, out, i32(shift), i32(n)], {
        "offsets": Expect(offsets, counts.cumsum() - counts), "out": Expect(out, x[np.argsort(digit, kind="stable")]),
    })  # fmt: skip


@draws("amd_mean_variance_atomics")
def mean_variance_atomics(rng: np.random.Generator) -> Launch:
    rows, columns = 70, 60
    x, sums, counter = whole(rng, rows, columns), np.zeros(128, f32), np.zeros(1, np.int32)
    out = unset(2, columns)
    return Launch((5,), [x, sums, counter, out, i32(rows), i32(columns)], {
        "out": Expect(out, np.stack([x.mean(0), x.var(0)]), 1e-5, 1e-5),
    })  # fmt: skip
