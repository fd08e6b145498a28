"""Kernels as models are trained and served with: backward passes, quantised products, caches in pages, routing."""

import triton
import triton.language as tl

from .variants import variant

HOPPER_ON = ("sm_90a", "sm_100a")


@variant(
    "layer_norm_backward",
    "*fp16 *fp16 *fp32 *fp32 *fp32 *fp16 *fp32 *fp32 *i32 i32",
    constants={"GROUPS": 2, "BLOCK": 256},
    num_warps=4,
)
@triton.jit
def layer_norm_backward(dy, x, weight, mean, rstd, dx, dweight, dbias, locks, columns,
                        GROUPS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    upstream = tl.load(dy + row * columns + i, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(x + row * columns + i, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(rstd + row)
    normal = tl.where(mask, (v - tl.load(mean + row)) * scale, 0.0)
    inner = upstream * tl.load(weight + i, mask=mask, other=0.0)
    along = tl.sum(normal * inner, 0) / columns
    level = tl.sum(inner, 0) / columns
    tl.store(dx + row * columns + i, ((inner - (normal * along + level)) * scale).to(tl.float16), mask=mask)
    group = row % GROUPS  # rows of a group add to one partial sum, one after the other
    at = group * columns + i
    while tl.atomic_cas(locks + group, 0, 1) == 1:
        pass
    count = tl.load(locks + GROUPS + group)
    parts_w, parts_b = upstream * normal, upstream
    if count == 0:
        tl.atomic_xchg(locks + GROUPS + group, 1)
    else:
        parts_w += tl.load(dweight + at, mask=mask)
        parts_b += tl.load(dbias + at, mask=mask)
    tl.store(dweight + at, parts_w, mask=mask)
    tl.store(dbias + at, parts_b, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(locks + group, 0)


@variant(
    "attention_backward",
    "*fp16 *fp16 *fp16 *fp16 *fp32 *fp32 *fp16 *fp16 *fp16 i32:16 fp32",
    constants={"M": 32, "N": 32, "D": 64},
    num_warps=4,
    num_stages=2,
)
@triton.jit
def attention_backward(q, k, v, do, log_sum, delta, dq, dk, dv, length, scale,
                       M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):  # fmt: skip
    head = tl.program_id(1) * length
    own = tl.program_id(0) * N + tl.arange(0, N)
    d = tl.arange(0, D)
    at = (head + own)[:, None] * D + d[None, :]
    keys, values = tl.load(k + at), tl.load(v + at)
    sum_k, sum_v = tl.zeros((N, D), tl.float32), tl.zeros((N, D), tl.float32)
    for start in range(0, length, M):  # of queries, for this block of keys
        rows = start + tl.arange(0, M)
        there = (head + rows)[:, None] * D + d[None, :]
        query, upstream = tl.load(q + there), tl.load(do + there)
        score = tl.dot(keys, tl.trans(query)) * (scale * 1.44269504)
        p = tl.exp2(score - tl.load(log_sum + head + rows)[None, :])
        p = tl.where(rows[None, :] >= own[:, None], p, 0.0)
        sum_v = tl.dot(p.to(tl.float16), upstream, sum_v)
        dp = tl.dot(values, tl.trans(upstream))
        ds = p * (dp - tl.load(delta + head + rows)[None, :])
        sum_k = tl.dot(ds.to(tl.float16), query, sum_k)
    tl.store(dv + at, sum_v.to(tl.float16))
    tl.store(dk + at, (sum_k * scale).to(tl.float16))
    query, upstream = tl.load(q + at), tl.load(do + at)
    level, weight = tl.load(delta + head + own), tl.load(log_sum + head + own)
    sum_q = tl.zeros((N, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * N, N):  # of keys, for this block of queries
        columns = start + tl.arange(0, N)
        there = (head + columns)[:, None] * D + d[None, :]
        keys, values = tl.load(k + there), tl.load(v + there)
        score = tl.dot(query, tl.trans(keys)) * (scale * 1.44269504)
        p = tl.exp2(score - weight[:, None])
        p = tl.where(own[:, None] >= columns[None, :], p, 0.0)
        ds = p * (tl.dot(upstream, tl.trans(values)) - level[:, None])
        sum_q = tl.dot(ds.to(tl.float16), keys, sum_q)
    tl.store(dq + at, (sum_q * scale).to(tl.float16))


@variant(
    "paged_attention",
    "*fp16 *fp16 *fp16 *i32 *i32 *fp32 *fp32 i32 fp32",
    constants={"HEADS": 16, "PAGE": 16, "D": 64, "PARTS": 2},
    num_warps=4,
)
@triton.jit
def paged_attention(q, k, v, pages, lengths, out, log_sum, most_pages, scale,
                    HEADS: tl.constexpr, PAGE: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr):  # fmt: skip
    sequence, part = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence)
    share = tl.cdiv(tl.cdiv(length, PAGE), PARTS)
    heads, d, slot = tl.arange(0, HEADS), tl.arange(0, D), tl.arange(0, PAGE)
    query = tl.load(q + sequence * HEADS * D + heads[:, None] * D + d[None, :])
    peak = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    result = tl.zeros((HEADS, D), tl.float32)
    for number in range(part * share, tl.minimum((part + 1) * share, tl.cdiv(length, PAGE))):
        page = tl.load(pages + sequence * most_pages + number)
        at = page * PAGE * D + slot[:, None] * D + d[None, :]
        valid = number * PAGE + slot < length
        keys = tl.load(k + at, mask=valid[:, None], other=0.0)
        values = tl.load(v + at, mask=valid[:, None], other=0.0)
        score = tl.dot(query, tl.trans(keys)) * (scale * 1.44269504)
        score = tl.where(valid[None, :], score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        p = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, 1)
        result = tl.dot(p.to(tl.float16), values, result * shrink[:, None])
        peak = higher
    at = (sequence * PARTS + part) * HEADS + heads
    tl.store(log_sum + at, peak + tl.log2(total))
    tl.store(out + at[:, None] * D + d[None, :], result / total[:, None])


@variant(
    "matmul_block_scales",
    "*fp8e4nv *fp8e4nv *fp32 *fp32 *bf16 i32:16 i32:16 i32:16",
    HOPPER_ON,
    constants={"M": 64, "N": 64, "K": 64},
    num_stages=3,
)
@triton.jit
def matmul_block_scales(a, b, a_scale, b_scale, c, m, n, k,
                        M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # fmt: skip
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for block in range(k // K):  # a scale for each row of a k-block of a, and one for each block of b
        x = tl.load(a + rows[:, None] * k + block * K + depth[None, :])
        y = tl.load(b + columns[None, :] * k + block * K + depth[:, None])
        by_row = tl.load(a_scale + rows * (k // K) + block)
        by_block = tl.load(b_scale + tl.program_id(1) * (k // K) + block)
        total += tl.dot(x, y) * by_row[:, None] * by_block
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


@variant(
    "matmul_grouped_maps",
    "*fp16 *fp16 *fp16 *i32 i32 i32:16 i32:16",
    HOPPER_ON,
    constants={"M": 64, "N": 64, "K": 64},
    num_stages=2,
)
@triton.jit
def matmul_grouped_maps(a, b, c, ends, groups, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    # Rows of a in groups, each times its own matrix; stores stop at the group's end.
    ours = tl.make_tensor_descriptor(b, shape=[groups * n, k], strides=[k, 1], block_shape=[N, K])
    start = 0
    tile = tl.program_id(0)
    for group in range(groups):
        end = tl.load(ends + group)
        if end > start:
            rows = end - start
            source = tl.make_tensor_descriptor(a + start.to(tl.int64) * k, shape=[rows, k], strides=[k, 1],
                                               block_shape=[M, K])  # fmt: skip
            target = tl.make_tensor_descriptor(c + start.to(tl.int64) * n, shape=[rows, n], strides=[n, 1],
                                               block_shape=[M, N])  # fmt: skip
            tiles = tl.cdiv(rows, M) * (n // N)
            while tile < tiles:
                row, column = tile // (n // N) * M, tile % (n // N) * N
                total = tl.zeros((M, N), tl.float32)
                for depth in range(0, k, K):
                    x = source.load([row, depth])
                    y = ours.load([group * n + column, depth])
                    total = tl.dot(x, y.T, total)
                target.store([row, column], total.to(tl.float16))
                tile += tl.num_programs(0)
            tile -= tiles
        start = end


@variant("top_k", "*fp32 *fp32 i32", constants={"BLOCK": 128, "K": 8})
@triton.jit
def top_k(x, out, columns, BLOCK: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=float("-inf"))
    tl.store(out + row * K + tl.arange(0, K), tl.topk(v, K))


@variant("quantize_rows", "*bf16 *i8 *fp32 *i32 i32", constants={"BLOCK": 256})
@triton.jit
def quantize_rows(x, out, scales, seeds, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    v = tl.load(x + row * columns + i, mask=mask, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(v), 0) / 127
    noise = tl.rand(tl.load(seeds + row), i)  # rounds up with the probability of the remainder
    code = tl.floor(tl.div_rn(v, scale) + noise)
    tl.store(out + row * columns + i, tl.clamp(code, -127.0, 127.0).to(tl.int8), mask=mask)
    tl.store(scales + row, scale)


@variant(
    "linear_attention",
    "*bf16 *bf16 *bf16 *fp32 *fp32 i32:16",
    constants={"C": 32, "D": 32},
    num_warps=4,
)
@triton.jit
def linear_attention(q, k, v, decay, out, length, C: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0) * length
    t, d = tl.arange(0, C), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for start in range(0, length, C):  # chunk by chunk: inside by masked products, before by the state
        at = (head + start + t)[:, None] * D + d[None, :]
        query, keys, values = tl.load(q + at), tl.load(k + at), tl.load(v + at)
        gone = tl.cumsum(tl.load(decay + head + start + t), 0)
        rest = tl.sum(tl.where(t == C - 1, gone, 0.0), 0)
        score = tl.dot(query, tl.trans(keys))
        score = tl.where(t[:, None] >= t[None, :], score * tl.exp(gone[:, None] - gone[None, :]), 0.0)
        result = tl.dot(score.to(tl.bfloat16), values)
        result += tl.dot(query, state.to(tl.bfloat16)) * tl.exp(gone)[:, None]
        tl.store(out + at, result)
        aged = (keys.to(tl.float32) * tl.exp(rest - gone)[:, None]).to(tl.bfloat16)
        state = state * tl.exp(rest) + tl.dot(tl.trans(aged), values)


@variant("device_print", "*fp32 *i32 i32", constants={"BLOCK": 32}, num_warps=1, debug=True)
@triton.jit
def device_print(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.device_assert(n <= BLOCK, "one block only")
    tl.device_print("value", v)
    tl.device_print("code", i * 3 - 1, hex=True)
    tl.store(out + i, i, mask=i < n)


@variant("inline_assembly", "*i32 *bf16", constants={"BLOCK": 128})
@triton.jit
def inline_assembly(packed, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    word = tl.load(packed + i)
    # Four pairs of unsigned 4-bit numbers become bf16 by bits: 128 + n has n in its mantissa.
    a, b, c, d = tl.inline_asm_elementwise(
        """{ .reg .b32 part<4>;
             shr.b32 part1, $4, 4; shr.b32 part2, $4, 8; shr.b32 part3, $4, 12;
             lop3.b32 $0, $4, 0x000f000f, 0x43004300, 0xea;
             lop3.b32 $1, part1, 0x000f000f, 0x43004300, 0xea;
             lop3.b32 $2, part2, 0x000f000f, 0x43004300, 0xea;
             lop3.b32 $3, part3, 0x000f000f, 0x43004300, 0xea; }""",
        "=r,=r,=r,=r,r",
        [word],
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
        is_pure=True,
        pack=1,
    )
    for place in tl.static_range(4):
        pair = a if place == 0 else b if place == 1 else c if place == 2 else d
        low = pair.to(tl.int16).to(tl.bfloat16, bitcast=True)
        high = (pair >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
        tl.store(out + i * 8 + place, low - 128)
        tl.store(out + i * 8 + place + 4, high - 128)
