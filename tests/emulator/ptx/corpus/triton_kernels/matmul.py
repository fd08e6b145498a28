"""Matrix products: by pointers, by tensor maps, batched, grouped, split along K, persistent, convolution."""

import triton
import triton.language as tl

from .variants import ALL, variant

HOPPER_ON = ("sm_90a", "sm_100a")
TILE = {"M": 64, "N": 64, "K": 32}


@variant(
    "matmul_f16",
    "*fp16 *fp16 *fp16 i32 i32 i32",
    constants={**TILE, "FLOAT": tl.float32, "PRECISION": "tf32"},
    num_stages=3,
)
@variant(
    "matmul_bf16",
    "*bf16 *bf16 *bf16 i32:16 i32:16 i32:16",
    constants={**TILE, "M": 128, "FLOAT": tl.float32, "PRECISION": "tf32"},
    num_stages=4,
)
@variant(
    "matmul_tf32",
    "*fp32 *fp32 *fp32 i32:16 i32:16 i32:16",
    constants={**TILE, "FLOAT": tl.float32, "PRECISION": "tf32"},
    num_stages=2,
)
@variant(
    "matmul_f32",
    "*fp32 *fp32 *fp32 i32:16 i32:16 i32:16",
    constants={**TILE, "K": 16, "FLOAT": tl.float32, "PRECISION": "ieee"},
    num_stages=2,
)
@variant(
    "matmul_tf32x3",
    "*fp32 *fp32 *fp32 i32:16 i32:16 i32:16",
    ("sm_80", "sm_90a"),
    constants={**TILE, "FLOAT": tl.float32, "PRECISION": "tf32x3"},
    num_stages=2,
)
@variant(
    "matmul_s8",
    "*i8 *i8 *i32 i32:16 i32:16 i32:16",
    ("sm_80", "sm_90a"),
    constants={**TILE, "FLOAT": tl.int32, "PRECISION": "tf32"},
    num_stages=3,
)
@variant(
    "matmul_e5m2",
    "*fp8e5 *fp8e5 *fp32 i32:16 i32:16 i32:16",
    constants={**TILE, "K": 64, "FLOAT": tl.float32, "PRECISION": "tf32"},
    num_stages=3,
)
@variant(
    "matmul_e4m3",
    "*fp8e4nv *fp8e4nv *fp16 i32:16 i32:16 i32:16",
    ("sm_89", *HOPPER_ON),
    constants={**TILE, "K": 64, "FLOAT": tl.float32, "PRECISION": "tf32"},
    num_stages=3,
)
@variant(
    "matmul_f64",
    "*fp64 *fp64 *fp64 i32:16 i32:16 i32:16",
    ("sm_80", "sm_90a"),
    constants={"M": 32, "N": 32, "K": 16, "FLOAT": tl.float64, "PRECISION": "ieee"},
    num_stages=2,
)
@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FLOAT: tl.constexpr,
           PRECISION: tl.constexpr):  # fmt: skip
    rows = (tl.program_id(0) * M + tl.arange(0, M)) % m
    columns = (tl.program_id(1) * N + tl.arange(0, N)) % n
    inner = tl.arange(0, K)
    a += rows[:, None] * k + inner[None, :]
    b += inner[:, None] * n + columns[None, :]
    total = tl.zeros((M, N), dtype=FLOAT)
    for step in range(tl.cdiv(k, K)):
        x = tl.load(a, mask=inner[None, :] < k - step * K, other=0.0)
        y = tl.load(b, mask=inner[:, None] < k - step * K, other=0.0)
        total = tl.dot(x, y, total, out_dtype=FLOAT, input_precision=PRECISION)
        a += K
        b += K * n
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), mask=mask)


@variant(
    "matmul_bias_relu",
    "*fp16 *fp16 *fp32 *fp16 i32:16 i32:16 i32:16",
    constants={"M": 64, "N": 128, "K": 32},
    num_warps=8,
)
@triton.jit
def matmul_bias_relu(a, b, bias, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    # B is stored transposed; a CTA's tile comes from a grouped order of tiles.
    tile = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    tile_m, tile_n = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, 2)
    rows, columns, inner = tile_m * M + tl.arange(0, M), tile_n * N + tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        x = tl.load(a + rows[:, None] * k + start + inner[None, :])
        y = tl.load(b + columns[None, :] * k + start + inner[:, None])
        total = tl.dot(x, y, total)
    total = tl.maximum(total + tl.load(bias + columns)[None, :], 0)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


@variant("matmul_batched", "*bf16 *bf16 *fp32 i32:16", constants={"M": 32, "N": 32, "K": 32}, num_warps=2)
@triton.jit
def matmul_batched(a, b, c, size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batch = tl.program_id(2)
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a += batch * size * size
    b += batch * size * size
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, size, K):
        x = tl.load(a + rows[:, None] * size + start + inner[None, :])
        y = tl.load(b + (start + inner)[:, None] * size + columns[None, :])
        total += tl.dot(x, y)
    tl.store(c + batch * size * size + rows[:, None] * size + columns[None, :], total)


@variant("matmul_3d_dot", "*fp16 *fp16 *fp32", ("sm_80", "sm_90a"), constants={"B": 2, "S": 32})
@triton.jit
def matmul_3d_dot(a, b, c, B: tl.constexpr, S: tl.constexpr):
    at = (tl.arange(0, B)[:, None, None] * S + tl.arange(0, S)[None, :, None]) * S + tl.arange(0, S)[None, None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@variant("matmul_grouped", "*u64 *u64 *u64 *i32 i32 i32:16 i32:16", constants={"M": 32, "N": 64, "K": 32})
@triton.jit
def matmul_grouped(a, b, c, sizes, groups, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tile = tl.program_id(0)
    first = 0
    for group in range(groups):
        m = tl.load(sizes + group)
        tiles_n = tl.cdiv(n, N)
        tiles = tl.cdiv(m, M) * tiles_n
        while tile >= first and tile < first + tiles:
            x = tl.load(a + group).to(tl.pointer_type(tl.float16))
            y = tl.load(b + group).to(tl.pointer_type(tl.float16))
            z = tl.load(c + group).to(tl.pointer_type(tl.float16))
            rows = (tile - first) // tiles_n * M + tl.arange(0, M)
            columns = (tile - first) % tiles_n * N + tl.arange(0, N)
            inner = tl.arange(0, K)
            total = tl.zeros((M, N), dtype=tl.float32)
            for start in range(0, k, K):
                left = tl.load(x + rows[:, None] * k + start + inner[None, :], mask=rows[:, None] < m, other=0.0)
                total = tl.dot(left, tl.load(y + (start + inner)[:, None] * n + columns[None, :]), total)
            tl.store(z + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=rows[:, None] < m)
            tile += tl.num_programs(0)
        first += tiles


@variant("matmul_split_k", "*fp16 *fp16 *fp32 i32:16 i32:16 i32:16", constants={"M": 32, "N": 32, "K": 32, "SPLIT": 3})
@triton.jit
def matmul_split_k(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(tl.program_id(2) * K, k, SPLIT * K):
        x = tl.load(a + rows[:, None] * k + start + inner[None, :])
        total = tl.dot(x, tl.load(b + (start + inner)[:, None] * n + columns[None, :]), total)
    tl.atomic_add(c + rows[:, None] * n + columns[None, :], total, sem="relaxed")


@variant(
    "matmul_split_k_locks", "*fp16 *fp16 *fp32 *i32 i32:16 i32:16", constants={"M": 32, "N": 64, "K": 32, "SPLIT": 3}
)
@triton.jit
def matmul_split_k_locks(a, b, c, locks, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                         SPLIT: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    part = tl.program_id(2)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(part * K, k, SPLIT * K):
        x = tl.load(a + rows[:, None] * k + start + inner[None, :])
        total = tl.dot(x, tl.load(b + (start + inner)[:, None] * n + columns[None, :]), total)
    out = c + rows[:, None] * n + columns[None, :]
    lock = locks + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    # The parts add up in their order, so that the sum is the same in every run.
    while tl.atomic_cas(lock, part, part) != part:
        pass
    if part > 0:
        total += tl.load(out)
    tl.store(out, total)
    tl.debug_barrier()
    tl.atomic_xchg(lock, part + 1)


@variant("matmul_persistent", "*bf16 *bf16 *bf16 i32:16 i32:16 i32:16", constants={"M": 64, "N": 64, "K": 32})
@triton.jit
def matmul_persistent(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tiles_n = tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, M) * tiles_n, tl.num_programs(0), flatten=True):
        rows = tile // tiles_n * M + tl.arange(0, M)
        columns = tile % tiles_n * N + tl.arange(0, N)
        inner = tl.arange(0, K)
        total = tl.zeros((M, N), dtype=tl.float32)
        for start in range(0, k, K):
            x = tl.load(a + rows[:, None] * k + start + inner[None, :])
            total = tl.dot(x, tl.load(b + (start + inner)[:, None] * n + columns[None, :]), total)
        tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


@variant(
    "matmul_host_maps",
    "tensordesc<fp16[64~32]> tensordesc<fp16[32~64]> tensordesc<fp16[64~64]> i32:16",
    HOPPER_ON,
    num_stages=3,
)
@variant(
    "matmul_host_maps_128",
    "tensordesc<bf16[128~64]> tensordesc<bf16[64~128]> tensordesc<bf16[128~128]> i32:16",
    ("sm_90a",),
    num_stages=3,
    num_warps=8,
)
@triton.jit
def matmul_host_maps(a, b, c, k):
    row, column = tl.program_id(0) * a.block_shape[0], tl.program_id(1) * b.block_shape[1]
    total = tl.zeros((a.block_shape[0], b.block_shape[1]), dtype=tl.float32)
    for start in range(0, k, a.block_shape[1]):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total.to(c.dtype))


@variant(
    "matmul_device_maps",
    "*fp16 *fp16 *fp16 i32 i32:16 i32:16",
    HOPPER_ON,
    constants={"M": 64, "N": 128, "K": 64},
    num_stages=3,
)
@triton.jit
def matmul_device_maps(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    y = tl.make_tensor_descriptor(b, [n, k], [k, 1], [N, K])
    z = tl.make_tensor_descriptor(c, [m, n], [n, 1], [M, N // 2])
    tiles_n = tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, M) * tiles_n, tl.num_programs(0)):
        row, column = tile // tiles_n * M, tile % tiles_n * N
        total = tl.zeros((M, N), dtype=tl.float32)
        for start in range(0, k, K):
            total = tl.dot(x.load([row, start]), y.load([column, start]).T, total)
        left, right = tl.split(tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)))
        z.store([row, column], left.to(tl.float16))
        z.store([row, column + N // 2], right.to(tl.float16))


@variant(
    "matmul_warp_specialized",
    "tensordesc<fp16[128~64]> tensordesc<fp16[64~64]> tensordesc<fp16[128~64]> i32:16 i32:16 i32:16",
    ("sm_100a",),
    num_stages=2,
)
@triton.jit
def matmul_warp_specialized(a, b, c, m, n, k):
    M: tl.constexpr = a.block_shape[0]
    N: tl.constexpr = b.block_shape[1]
    tiles_n = tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, M) * tiles_n, tl.num_programs(0), flatten=True,
                         warp_specialize=True):  # fmt: skip
        row, column = tile // tiles_n * M, tile % tiles_n * N
        total = tl.zeros((M, N), dtype=tl.float32)
        for start in range(0, k, a.block_shape[1]):
            total = tl.dot(a.load([row, start]), b.load([start, column]), total)
        c.store([row, column], total.to(tl.float16))


@variant("matmul_4bit_weights", "*fp16 *i8 *fp16 *fp16 i32:16 i32:16", constants={"M": 32, "N": 64, "K": 64})
@triton.jit
def matmul_4bit_weights(a, packed, scale, c, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    half = tl.arange(0, K // 2)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        x = tl.load(a + rows[:, None] * k + start + tl.arange(0, K)[None, :])
        p = tl.load(packed + columns[:, None] * (k // 2) + start // 2 + half[None, :])
        low, high = (p << 4) >> 4, p >> 4
        weights = tl.interleave(low, high).to(tl.float16) * tl.load(scale + columns)[:, None]
        total = tl.dot(x, tl.trans(weights), total)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


@variant(
    "matmul_mxfp8",
    "*fp8e5 *u8 *fp8e4nv *u8 *fp32 i32:16 i32:16",
    HOPPER_ON,
    constants={"M": 128, "N": 64, "K": 128, "KIND_A": "e5m2", "KIND_B": "e4m3", "PACK": 1, "GROUP": 32},
    num_stages=1,
)
@variant(
    "matmul_mxfp4",
    "*u8 *u8 *u8 *u8 *fp32 i32:16 i32:16",
    HOPPER_ON,
    constants={"M": 128, "N": 64, "K": 128, "KIND_A": "e2m1", "KIND_B": "e2m1", "PACK": 2, "GROUP": 32},
    num_stages=1,
)
@variant(
    "matmul_nvfp4",
    "*u8 *fp8e4nv *u8 *fp8e4nv *fp32 i32:16 i32:16",
    ("sm_100a",),
    constants={"M": 128, "N": 64, "K": 128, "KIND_A": "e2m1", "KIND_B": "e2m1", "PACK": 2, "GROUP": 16},
    num_stages=1,
)
@triton.jit
def matmul_scaled(a, scale_a, b, scale_b, c, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                  KIND_A: tl.constexpr, KIND_B: tl.constexpr, PACK: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    # B is stored transposed, as N rows of K.
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    inner, blocks = tl.arange(0, K // PACK), tl.arange(0, K // GROUP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        x = tl.load(a + rows[:, None] * (k // PACK) + start // PACK + inner[None, :])
        y = tl.load(b + columns[:, None] * (k // PACK) + start // PACK + inner[None, :])
        sx = tl.load(scale_a + rows[:, None] * (k // GROUP) + start // GROUP + blocks[None, :])
        sy = tl.load(scale_b + columns[:, None] * (k // GROUP) + start // GROUP + blocks[None, :])
        total = tl.dot_scaled(x, sx, KIND_A, y.T, sy, KIND_B, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@variant("convolution", "*fp16 *fp16 *fp16 i32 i32 i32:16 i32:16", constants={"P": 32, "N": 32, "K": 16})
@triton.jit
def convolution(x, weight, out, height, width, channels, filters, P: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    # 3 x 3 with padding 1, NHWC by RSCF: an implicit matrix of pixels by taps and channels.
    pixel = tl.program_id(0) * P + tl.arange(0, P)
    filters_here = tl.program_id(1) * N + tl.arange(0, N)
    row, column = pixel // width, pixel % width
    total = tl.zeros((P, N), dtype=tl.float32)
    for step in range(9 * channels // K):
        tap, channel = step * K // channels, step * K % channels + tl.arange(0, K)
        r, s = row + tap // 3 - 1, column + tap % 3 - 1
        inside = (r >= 0) & (r < height) & (s >= 0) & (s < width) & (pixel < height * width)
        taken = tl.load(x + (r * width + s)[:, None] * channels + channel[None, :], mask=inside[:, None], other=0.0)
        w = tl.load(weight + (tap * channels + channel)[:, None] * filters + filters_here[None, :])
        total = tl.dot(taken, w, total)
    tl.store(out + pixel[:, None] * filters + filters_here[None, :], total.to(tl.float16),
             mask=(pixel < height * width)[:, None])  # fmt: skip


@variant(
    "attention",
    "*fp16 *fp16 *fp16 *fp16 *fp32 i32:16 fp32",
    constants={"M": 64, "N": 32, "D": 64, "CAUSAL": True},
    num_stages=2,
)
@variant(
    "attention_full",
    "*bf16 *bf16 *bf16 *bf16 *fp32 i32:16 fp32",
    ALL,
    constants={"M": 64, "N": 64, "D": 32, "CAUSAL": False},
    num_stages=3,
)
@triton.jit
def attention(q, k, v, out, log_sum, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
              CAUSAL: tl.constexpr):  # fmt: skip
    head = tl.program_id(1) * length * D
    rows, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    at = head + rows[:, None] * D + d[None, :]
    query = tl.load(q + at)
    peak = tl.full((M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    result = tl.zeros((M, D), dtype=tl.float32)
    end = (tl.program_id(0) + 1) * M if CAUSAL else length
    for start in range(0, end, N):
        columns = start + tl.arange(0, N)
        keys = tl.load(k + head + columns[None, :] * D + d[:, None])
        score = tl.dot(query, keys) * (scale * 1.44269504)
        if CAUSAL:
            score = tl.where(rows[:, None] >= columns[None, :], score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        p = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(v + head + columns[:, None] * D + d[None, :])
        result = tl.dot(p.to(v.dtype.element_ty), values, result * shrink[:, None])
        peak = higher
    tl.store(out + at, (result / total[:, None]).to(out.dtype.element_ty))
    tl.store(log_sum + tl.program_id(1) * length + rows, peak + tl.log2(total))


@variant(
    "attention_maps_128",
    "tensordesc<fp16[128~64]> tensordesc<fp16[64~64]> tensordesc<fp16[64~64]> *fp16 i32:16 fp32",
    ("sm_90a",),
    num_warps=8,
    num_stages=2,
)
@variant(
    "attention_maps",
    "tensordesc<fp16[64~64]> tensordesc<fp16[64~64]> tensordesc<fp16[64~64]> *fp16 i32:16 fp32",
    HOPPER_ON,
    num_stages=2,
)
@triton.jit
def attention_maps(q, k, v, out, length, scale):
    M: tl.constexpr = q.block_shape[0]
    N: tl.constexpr = k.block_shape[0]
    D: tl.constexpr = q.block_shape[1]
    base = tl.program_id(1) * length
    row = base + tl.program_id(0) * M
    query = q.load([row, 0])
    peak = tl.full((M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    result = tl.zeros((M, D), dtype=tl.float32)
    for start in range(0, length, N):
        score = tl.dot(query, k.load([base + start, 0]).T) * (scale * 1.44269504)
        higher = tl.maximum(peak, tl.max(score, 1))
        p = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, 1)
        result = tl.dot(p.to(tl.float16), v.load([base + start, 0]), result * shrink[:, None])
        peak = higher
    rows = row + tl.arange(0, M)
    tl.store(out + rows[:, None] * D + tl.arange(0, D)[None, :], (result / total[:, None]).to(tl.float16))


@variant("matmul_stream_k", "*fp16 *fp16 *fp32 *i32 *fp32 i32:16 i32:16 i32:16 i32", HOPPER_ON,
         constants={"M": 64, "N": 64, "K": 32}, num_stages=3)  # fmt: skip
@triton.jit
def matmul_stream_k(a, b, c, flags, parts, m, n, k, each, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    # Every program takes as many k-steps as any other; who begins a tile waits for the parts of those who end it.
    program, steps = tl.program_id(0), k // K
    at = program * each
    end = tl.minimum(at + each, (m // M) * (n // N) * steps)
    inside = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    while at < end:
        tile, first = at // steps, at % steps
        last = tl.minimum(steps, first + end - at)
        rows = tile // (n // N) * M + tl.arange(0, M)
        columns = tile % (n // N) * N + tl.arange(0, N)
        total = tl.zeros((M, N), tl.float32)
        for step in range(first, last):
            depth = step * K + tl.arange(0, K)
            x = tl.load(a + rows[:, None] * k + depth[None, :])
            total = tl.dot(x, tl.load(b + depth[:, None] * n + columns[None, :]), total)
        if first != 0:
            tl.store(parts + program * M * N + inside, total)
            tl.debug_barrier()
            tl.atomic_xchg(flags + program, 1, sem="release")
        else:
            done, other = last, program + 1
            while done < steps:
                while tl.atomic_cas(flags + other, 1, 1, sem="acquire") != 1:
                    pass
                total += tl.load(parts + other * M * N + inside, cache_modifier=".cg")
                done += each
                other += 1
            tl.store(c + rows[:, None] * n + columns[None, :], total)
        at += last - first
