"""Triton kernels for AMD chips out of models: attention in many forms, rotations, norms' gradients, state spaces."""

from __future__ import annotations

import triton.language as tl
from triton import jit
from triton_kernels.variants import variant


@variant("amd_attention_gqa", "*bf16 *bf16 *bf16 *bf16 *fp32 i32 fp32",
         constants={"BM": 64, "BN": 32, "D": 64, "GROUP": 4, "WINDOW": 0})  # fmt: skip
@variant("amd_attention_window", "*fp16 *fp16 *fp16 *fp16 *fp32 i32 fp32",
         constants={"BM": 32, "BN": 32, "D": 32, "GROUP": 2, "WINDOW": 40}, num_stages=3, num_warps=2)  # fmt: skip
@variant("amd_attention_8_warps", "*bf16 *bf16 *bf16 *bf16 *fp32 i32 fp32",
         constants={"BM": 128, "BN": 64, "D": 128, "GROUP": 1, "WINDOW": 0}, num_warps=8, waves_per_eu=2,
         matrix_instr_nonkdim=16)  # fmt: skip
@variant("amd_attention_fp8", "*fp8e5 *fp8e5 *fp8e5 *bf16 *fp32 i32 fp32",
         constants={"BM": 64, "BN": 64, "D": 64, "GROUP": 2, "WINDOW": 0})  # fmt: skip
@jit
def attention(q, k, v, out, norms, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
              GROUP: tl.constexpr, WINDOW: tl.constexpr):  # fmt: skip
    """Causal attention of grouped heads, with a window or without."""
    block, head = tl.program_id(0), tl.program_id(1)
    rows, d, j = block * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    base = head // GROUP * length * D
    x = tl.load(q + head * length * D + rows[:, None] * D + d[None, :], (rows < length)[:, None], 0.0)
    top, total = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(0, (block * BM - WINDOW) // BN * BN)
    for start in range(first, tl.minimum(length, (block + 1) * BM), BN):
        at = start + j
        y = tl.load(k + base + at[None, :] * D + d[:, None], (at < length)[None, :], 0.0)
        s = tl.dot(x, y) * scale
        keep = (at[None, :] <= rows[:, None]) & (at < length)[None, :]
        if WINDOW > 0:
            keep = keep & (at[None, :] + WINDOW > rows[:, None])
        s = tl.where(keep, s, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.where(keep, tl.exp2(s - new[:, None]), 0.0)
        keepers = tl.exp2(top - new)
        total = total * keepers + tl.sum(p, 1)
        z = tl.load(v + base + at[:, None] * D + d[None, :], (at < length)[:, None], 0.0)
        acc = tl.dot(p.to(z.dtype), z, acc * keepers[:, None])
        top = new
    acc = acc / total[:, None]
    tl.store(
        out + head * length * D + rows[:, None] * D + d[None, :], acc.to(out.dtype.element_ty), (rows < length)[:, None]
    )
    tl.store(norms + head * length + rows, top + tl.log2(total), rows < length)


@variant("amd_attention_dkv", "*bf16 *bf16 *bf16 *bf16 *fp32 *fp32 *fp32 *fp32 i32 fp32",
         constants={"BM": 32, "BN": 32, "D": 32, "GROUP": 2})  # fmt: skip
@jit
def attention_dkv(q, k, v, do, norms, delta, dk, dv, length, scale, BM: tl.constexpr, BN: tl.constexpr,
                  D: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    """Gradients of keys and values: a block of keys, all heads of its group, rows from the diagonal down."""
    block, group = tl.program_id(0), tl.program_id(1)
    at, d, i = block * BN + tl.arange(0, BN), tl.arange(0, D), tl.arange(0, BM)
    y = tl.load(k + group * length * D + at[:, None] * D + d[None, :], (at < length)[:, None], 0.0)
    z = tl.load(v + group * length * D + at[:, None] * D + d[None, :], (at < length)[:, None], 0.0)
    gk, gv = tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32)
    for h in range(GROUP):
        head = group * GROUP + h
        for start in range(block * BN // BM * BM, length, BM):
            rows = start + i
            inside = (rows < length)[:, None]
            x = tl.load(q + head * length * D + rows[:, None] * D + d[None, :], inside, 0.0)
            g = tl.load(do + head * length * D + rows[:, None] * D + d[None, :], inside, 0.0)
            norm = tl.load(norms + head * length + rows, rows < length, 0.0)
            de = tl.load(delta + head * length + rows, rows < length, 0.0)
            s = tl.dot(y, tl.trans(x)) * scale * 1.4426950408889634
            keep = (at[:, None] <= rows[None, :]) & (rows < length)[None, :]
            p = tl.where(keep, tl.exp2(s - norm[None, :]), 0.0)
            gv = tl.dot(p.to(tl.bfloat16), g, gv)
            ds = p * (tl.dot(z, tl.trans(g)) - de[None, :]) * scale
            gk = tl.dot(ds.to(tl.bfloat16), x, gk)
    tl.store(dk + group * length * D + at[:, None] * D + d[None, :], gk, (at < length)[:, None])
    tl.store(dv + group * length * D + at[:, None] * D + d[None, :], gv, (at < length)[:, None])


@variant("amd_decode_split", "*bf16 *bf16 *bf16 *i32 *i32 *fp32 *fp32 i32 fp32",
         constants={"HEADS": 16, "D": 64, "PAGE": 16, "BN": 32, "SPLIT": 2})  # fmt: skip
@jit
def decode_split(q, k, v, pages, lengths, partial, norms, most, scale, HEADS: tl.constexpr, D: tl.constexpr,
                 PAGE: tl.constexpr, BN: tl.constexpr, SPLIT: tl.constexpr):  # fmt: skip
    """One query a sequence against pages of keys, the keys divided among workgroups."""
    sequence, part = tl.program_id(0), tl.program_id(1)
    h, d, j = tl.arange(0, HEADS), tl.arange(0, D), tl.arange(0, BN)
    length = tl.load(lengths + sequence)
    each = tl.cdiv(tl.cdiv(length, SPLIT), BN) * BN
    begin, end = part * each, tl.minimum(length, (part + 1) * each)
    x = tl.load(q + (sequence * HEADS + h[:, None]) * D + d[None, :])
    top, total = tl.full((HEADS,), -1e30, tl.float32), tl.zeros((HEADS,), tl.float32)
    acc = tl.zeros((HEADS, D), tl.float32)
    for start in range(begin, end, BN):
        at = start + j
        page = tl.load(pages + sequence * most + at // PAGE, at < end, 0)
        place = (page * PAGE + at % PAGE) * D
        y = tl.load(k + place[None, :] + d[:, None], (at < end)[None, :], 0.0)
        s = tl.where((at < end)[None, :], tl.dot(x, y) * scale, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        keep = tl.exp2(top - new)
        total = total * keep + tl.sum(p, 1)
        z = tl.load(v + place[:, None] + d[None, :], (at < end)[:, None], 0.0)
        acc = tl.dot(p.to(tl.bfloat16), z, acc * keep[:, None])
        top = new
    spot = (sequence * SPLIT + part) * HEADS + h
    tl.store(partial + spot[:, None] * D + d[None, :], acc / tl.maximum(total, 1e-30)[:, None])
    tl.store(norms + spot, tl.where(total > 0, top + tl.log2(total), -1e30))


@variant("amd_decode_merge", "*fp32 *fp32 *bf16", constants={"HEADS": 16, "D": 64, "SPLIT": 2}, num_warps=1)
@jit
def decode_merge(partial, norms, out, HEADS: tl.constexpr, D: tl.constexpr, SPLIT: tl.constexpr):
    """Parts of a softmax put together."""
    sequence, h = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, SPLIT), tl.arange(0, D)
    spot = (sequence * SPLIT + s) * HEADS + h
    norm = tl.load(norms + spot)
    weight = tl.exp2(norm - tl.max(norm, 0))
    part = tl.load(partial + spot[:, None] * D + d[None, :])
    tl.store(
        out + (sequence * HEADS + h) * D + d, (tl.sum(part * weight[:, None], 0) / tl.sum(weight, 0)).to(tl.bfloat16)
    )


@variant("amd_rotary_both", "*bf16 *bf16 *fp32 *i32 i32 i32", constants={"HALF": 32, "INTERLEAVED": False})
@variant("amd_rotary_interleaved", "*bf16 *bf16 *fp32 *i32 i32 i32", constants={"HALF": 16, "INTERLEAVED": True},
         num_warps=1)  # fmt: skip
@jit
def rotary_both(q, k, angles, positions, q_heads, k_heads, HALF: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Queries and keys turned in place."""
    token, h = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, HALF)
    angle = tl.load(angles + tl.load(positions + token) * HALF + c)
    cosine, sine = tl.cos(angle), tl.sin(angle)
    if INTERLEAVED:
        one, two = 2 * c, 2 * c + 1
    else:
        one, two = c, c + HALF
    if h < q_heads:  # noqa: SIM108  a pointer of either array
        base = q + (token * q_heads + h) * 2 * HALF
    else:
        base = k + (token * k_heads + h - q_heads) * 2 * HALF
    a, b = tl.load(base + one).to(tl.float32), tl.load(base + two).to(tl.float32)
    tl.store(base + one, (a * cosine - b * sine).to(tl.bfloat16))
    tl.store(base + two, (b * cosine + a * sine).to(tl.bfloat16))


@variant("amd_rms_norm_backward", "*fp32 *fp32 *fp32 *fp32 *fp32 i32 fp32", constants={"BLOCK": 256})
@jit
def rms_norm_backward(x, w, dy, dx, dw, columns, eps, BLOCK: tl.constexpr):
    """Gradients of a row, and of the weight by atomics."""
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    inside = c < columns
    a = tl.load(x + row * columns + c, inside, 0.0)
    g, b = tl.load(dy + row * columns + c, inside, 0.0), tl.load(w + c, inside, 0.0)
    r = tl.rsqrt(tl.sum(a * a, 0) / columns + eps)
    m = tl.sum(g * b * a, 0) * r * r / columns
    tl.store(dx + row * columns + c, r * (g * b - a * m), inside)
    tl.atomic_add(dw + c, g * a * r, inside)


@variant("amd_selective_scan", "*fp32 *fp32 *fp32 *fp32 *fp32 *fp32 i32", constants={"D": 32, "N": 16})
@jit
def selective_scan(x, dt, a, b, c, y, length, D: tl.constexpr, N: tl.constexpr):
    """A state of D x N carried along the sequence."""
    batch, d, n = tl.program_id(0), tl.arange(0, D), tl.arange(0, N)
    decay = tl.load(a + d[:, None] * N + n[None, :])
    state = tl.zeros((D, N), tl.float32)
    for t in range(length):
        row = batch * length + t
        step, u = tl.load(dt + row * D + d), tl.load(x + row * D + d)
        p, q = tl.load(b + row * N + n), tl.load(c + row * N + n)
        state = state * tl.exp(step[:, None] * decay) + (step * u)[:, None] * p[None, :]
        tl.store(y + row * D + d, tl.sum(state * q[None, :], 1))


@variant(
    "amd_mixture_routing", "*fp32 *i32 *fp32 *i32 i32", constants={"EXPERTS": 16, "K": 2, "BLOCK": 32}, num_warps=2
)
@jit
def mixture_routing(
    logits, chosen, weights, counts, tokens, EXPERTS: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr
):
    """The best experts of each token by repeated argmax, their weights, and how many tokens each has."""
    t, e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, EXPERTS)
    v = tl.load(logits + t[:, None] * EXPERTS + e[None, :], (t < tokens)[:, None], -1e30)
    p = tl.softmax(v, 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(K):
        best, place = tl.max(p, 1, return_indices=True)
        tl.store(chosen + t * K + i, place, t < tokens)
        tl.store(weights + t * K + i, best, t < tokens)
        tl.atomic_add(counts + place, 1, t < tokens, sem="relaxed")
        p = tl.where(e[None, :] == place[:, None], -1.0, p)
        total += best


@variant("amd_dropout_residual", "*bf16 *bf16 *bf16 *fp32 i32 fp32 i32", constants={"BLOCK": 256})
@jit
def dropout_residual(x, residual, out, norms, columns, p, seed, BLOCK: tl.constexpr):
    """Dropout by Philox, residual, and the row's norm."""
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    at = row * columns + c
    inside = c < columns
    keep = tl.rand(seed, at) > p
    v = tl.where(keep, tl.load(x + at, inside, 0.0).to(tl.float32) / (1 - p), 0.0)
    v += tl.load(residual + at, inside, 0.0).to(tl.float32)
    tl.store(out + at, v.to(tl.bfloat16), inside)
    tl.store(norms + row, tl.sqrt(tl.sum(tl.where(inside, v * v, 0.0), 0)))


@variant("amd_quantize_mx", "*fp32 *fp8e5 *u8 i32", constants={"ROWS": 16, "BLOCK": 64})
@jit
def quantize_mx(x, out, scales, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Blocks of 32 with a power of two each, e5m2."""
    r, c = tl.arange(0, ROWS)[:, None], tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    v = tl.reshape(tl.load(x + r * columns + c), (ROWS, BLOCK // 32, 32))
    top = tl.max(tl.abs(v), 2)
    power = ((top.to(tl.int32, bitcast=True) >> 23) & 255) - 14
    power = tl.maximum(power, 1)
    scale = (power << 23).to(tl.float32, bitcast=True)
    tl.store(out + r * columns + c, tl.reshape(v / scale[:, :, None], (ROWS, BLOCK)).to(tl.float8e5))
    s = tl.program_id(0) * (BLOCK // 32) + tl.arange(0, BLOCK // 32)[None, :]
    tl.store(scales + r * (columns // 32) + s, power.to(tl.uint8))
