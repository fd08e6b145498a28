"""Cases of ``triton_kernels/models.py``."""

from __future__ import annotations

import numpy as np
from cases_elementwise import uniform
from corpus_case import Array, Expect, Launch, bf16, case, e4m3, f32, i32, normal, product, unset, whole

ALL = ("sm_80", "sm_90a", "sm_100a")
HOPPER_ON = ALL[1:]
f16 = np.float16


@case("triton/layer_norm_backward", *ALL)
def layer_norm_backward(rng: np.random.Generator) -> Launch:
    rows, columns = 6, 200
    dy, x = (normal(rng, rows, columns, dtype=f16) for _ in range(2))
    weight, mean = normal(rng, columns), x.astype(np.float64).mean(1).astype(np.float32)
    rstd = (1 / np.sqrt(x.astype(np.float64).var(1) + 1e-5)).astype(np.float32)
    dx, dweight, dbias = unset(rows, columns, dtype=f16), unset(2, columns), unset(2, columns)
    locks = np.zeros(4, np.int32)
    upstream = dy.astype(np.float64)
    v = (x.astype(np.float64) - mean[:, None]) * rstd[:, None]
    inner = upstream * weight
    along, level = (inner * v).mean(1, keepdims=True), inner.mean(1, keepdims=True)
    expect = {
        "dx": Expect(dx, (inner - v * along - level) * rstd[:, None], 2e-3, 2e-3),
        "dweight": Expect(dweight, (upstream * v).reshape(3, 2, -1).sum(0), 1e-5, 1e-5),
        "dbias": Expect(dbias, upstream.reshape(3, 2, -1).sum(0), 1e-5, 1e-5),
        "locks": Expect(locks, [0, 0, 1, 1]),
    }
    return Launch((rows,), [dy, x, weight, mean, rstd, dx, dweight, dbias, locks, i32(columns)], expect)


@case("triton/attention_backward", *ALL)
def attention_backward(rng: np.random.Generator) -> Launch:
    heads, length, depth, scale = 2, 96, 64, 0.125
    q, k, v, do = (normal(rng, heads, length, depth, dtype=f16) for _ in range(4))
    dq, dk, dv = (unset(heads, length, depth, dtype=f16) for _ in range(3))
    query, keys, values, upstream = (a.astype(np.float64) for a in (q, k, v, do))
    score = query @ keys.swapaxes(1, 2) * scale
    score = np.where(np.tri(length, dtype=bool), score, -np.inf)
    peak = score.max(2, keepdims=True)
    total = np.exp(score - peak).sum(2, keepdims=True)
    p = np.exp(score - peak) / total
    log_sum = ((peak + np.log(total)) * np.log2(np.e)).astype(np.float32)
    delta = (upstream * (p @ values)).sum(2).astype(np.float32)
    ds = p * (upstream @ values.swapaxes(1, 2) - delta[:, :, None])
    want: dict[str, tuple[Array, Array]] = {
        "dq": (dq, ds @ keys * scale),
        "dk": (dk, ds.swapaxes(1, 2) @ query * scale),
        "dv": (dv, p.swapaxes(1, 2) @ upstream),
    }
    expect = {name: Expect(array, reference, 4e-3, 4e-3) for name, (array, reference) in want.items()}
    args = [q, k, v, do, log_sum, delta, dq, dk, dv, i32(length), f32(scale)]
    return Launch((length // 32, heads), args, expect)


@case("triton/paged_attention", *ALL)
def paged_attention(rng: np.random.Generator) -> Launch:
    lengths, most, scale = np.array([70, 33, 17], np.int32), 5, 0.125
    q = normal(rng, 3, 16, 64, dtype=f16)
    k, v = (normal(rng, 12, 16, 64, dtype=f16) for _ in range(2))
    pages = np.full((3, most), -1, np.int32)
    shuffled = rng.permutation(12)
    out, log_sum = unset(3, 2, 16, 64), unset(3, 2, 16)
    results, sums = np.zeros((3, 2, 16, 64)), np.zeros((3, 2, 16))
    for sequence, length in enumerate(lengths.tolist()):
        count = -(-length // 16)
        pages[sequence, :count], shuffled = shuffled[:count], shuffled[count:]
        keys, values = (a[pages[sequence, :count]].reshape(-1, 64)[:length].astype(np.float64) for a in (k, v))
        share = -(-count // 2) * 16
        for part in range(2):
            piece = slice(part * share, min((part + 1) * share, length))
            p = np.exp(q[sequence].astype(np.float64) @ keys[piece].T * scale)
            results[sequence, part] = p @ values[piece] / p.sum(1, keepdims=True)
            sums[sequence, part] = np.log2(p.sum(1))
    expect = {"out": Expect(out, results, 2e-3, 2e-3), "log_sum": Expect(log_sum, sums, 1e-4, 1e-4)}
    return Launch((3, 2), [q, k, v, pages, lengths, out, log_sum, i32(most), f32(scale)], expect)


@case("triton/matmul_block_scales", *HOPPER_ON)
def matmul_block_scales(rng: np.random.Generator) -> Launch:
    m, n, k = 128, 64, 192
    a, b, c = whole(rng, m, k, dtype=e4m3), whole(rng, n, k, dtype=e4m3), unset(m, n, dtype=bf16)
    by_row, by_block = rng.uniform(0.5, 2, (m, 3)).astype(np.float32), rng.uniform(0.5, 2, (1, 3)).astype(np.float32)
    blocks = [product(a[:, i : i + 64], b[:, i : i + 64].T) for i in range(0, k, 64)]
    want = sum(block * by_row[:, [i]] * by_block[0, i] for i, block in enumerate(blocks))
    args = [a, b, by_row, by_block, c, i32(m), i32(n), i32(k)]
    return Launch((2, 1), args, {"c": Expect(c, want, 4e-3, 1e-4)})


@case("triton/matmul_grouped_maps", *HOPPER_ON)
def matmul_grouped_maps(rng: np.random.Generator) -> Launch:
    ends = np.array([70, 70, 96, 200], np.int32)
    a, b, c = whole(rng, 200, 128, dtype=f16), whole(rng, 4, 128, 128, dtype=f16), unset(200, 128, dtype=f16)
    parts = [product(a[start:end], b[g].T) for g, (start, end) in enumerate(zip([0, *ends], ends, strict=False))]
    args = [a, b, c, ends, i32(4), i32(128), i32(128)]
    return Launch((3,), args, {"c": Expect(c, np.concatenate(parts))})


@case("triton/top_k", *ALL)
def top_k(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 4, 100), unset(4, 8)
    return Launch((4,), [x, out, i32(100)], {"out": Expect(out, -np.sort(-x, 1)[:, :8])})


@case("triton/quantize_rows", *ALL)
def quantize_rows(rng: np.random.Generator) -> Launch:
    x, out, scales = normal(rng, 3, 240, dtype=bf16), unset(3, 240, dtype=np.int8), unset(3)
    seeds = np.array([7, 8, 123456], np.int32)
    v = x.astype(np.float32)
    scale = abs(v).max(1) / np.float32(127)
    noise = np.stack([uniform(int(seed), 240) for seed in seeds])
    codes = np.clip(np.floor((v / scale[:, None]).astype(np.float32) + noise.astype(np.float32)), -127, 127)
    expect = {"out": Expect(out, codes), "scales": Expect(scales, scale, 1e-6)}
    return Launch((3,), [x, out, scales, seeds, i32(240)], expect)


@case("triton/linear_attention", *ALL)
def linear_attention(rng: np.random.Generator) -> Launch:
    heads, length, depth = 2, 96, 32
    q, k, v = (normal(rng, heads, length, depth, dtype=bf16) for _ in range(3))
    decay, out = -rng.uniform(0, 0.2, (heads, length)).astype(np.float32), unset(heads, length, depth)
    query, keys, values = (a.astype(np.float64) for a in (q, k, v))
    gone = decay.astype(np.float64).cumsum(1)
    weights = np.exp(np.minimum(gone[:, :, None] - gone[:, None, :], 0)) * np.tri(length)
    want = (query @ keys.swapaxes(1, 2) * weights) @ values
    return Launch((heads,), [q, k, v, decay, out, i32(length)], {"out": Expect(out, want, 2e-2, 0.3)})


@case("triton/device_print", *ALL)
def device_print(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 20) / np.float32(2), unset(20, dtype=np.int32)
    padded = np.pad(x, (0, 12))
    lines = [f"pid (0, 0, 0) idx ({i:2}) value: {padded[i]:f}" for i in range(32)]
    lines += [f"pid (0, 0, 0) idx ({i:2}) code: 0x{(i * 3 - 1) % 2**32:08x}" for i in range(32)]
    return Launch((1,), [x, out, i32(20)], {"out": Expect(out, np.arange(20))}, printed=tuple(lines))


@case("triton/inline_assembly", *ALL)
def inline_assembly(rng: np.random.Generator) -> Launch:
    codes, out = rng.integers(0, 16, (128, 8)), unset(128, 8, dtype=bf16)
    packed = (codes << 4 * np.arange(8)).sum(1).astype(np.uint32).view(np.int32)
    return Launch((1,), [packed, out], {"out": Expect(out, codes)})
