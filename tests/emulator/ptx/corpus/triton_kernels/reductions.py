"""Reductions, scans, sorting and histograms along rows."""

import triton
import triton.language as tl

from .variants import variant


@variant("row_reductions", "*fp32 *fp32 *i32 i32", constants={"BLOCK": 512})
@triton.jit
def row_reductions(x, out, where, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    v = tl.load(x + row * columns + i, mask=mask, other=0.0)
    tl.store(out + row * 3, tl.sum(v, 0))
    tl.store(out + row * 3 + 1, tl.max(tl.where(mask, v, float("-inf")), 0))
    tl.store(out + row * 3 + 2, tl.min(tl.where(mask, v, float("inf")), 0))
    tl.store(where + row * 3, tl.argmax(tl.where(mask, v, float("-inf")), 0))
    tl.store(where + row * 3 + 1, tl.argmin(tl.where(mask, v, float("inf")), 0))
    tl.store(where + row * 3 + 2, tl.xor_sum((v * 1000).to(tl.int32), 0))


@variant("softmax", "*fp32 *fp32 i32:16 i32", constants={"BLOCK": 1024}, num_warps=4)
@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + i, e / tl.sum(e, axis=0), mask=i < columns)


@variant("layer_norm", "*fp16 *fp32 *fp32 *fp16 i32 fp32", constants={"BLOCK": 256}, num_warps=2)
@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + i, mask=i < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + i, mask=i < columns, other=0.0).to(tl.float32)
        v = tl.where(i < columns, v - mean, 0.0)
        square += v * v
    scale = 1 / tl.sqrt(tl.sum(square, axis=0) / columns + eps)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        mask = i < columns
        v = tl.load(x + row * columns + i, mask=mask, other=0.0).to(tl.float32)
        y = (v - mean) * scale * tl.load(weight + i, mask=mask) + tl.load(bias + i, mask=mask)
        tl.store(out + row * columns + i, y.to(tl.float16), mask=mask)


@variant("rms_norm", "*bf16 *bf16 *bf16 i32 fp32", constants={"BLOCK": 512})
@triton.jit
def rms_norm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    v = tl.load(x + row * columns + i, mask=mask, other=0.0).to(tl.float32)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / columns + eps)
    tl.store(out + row * columns + i, (v * tl.load(weight + i, mask=mask).to(tl.float32)).to(tl.bfloat16), mask=mask)


@triton.jit
def merge_moments(mean_a, square_a, count_a, mean_b, square_b, count_b):
    # Symmetric to the last bit: lanes that reduce in different orders must agree on what they all store.
    delta = mean_b - mean_a
    count = count_a + count_b
    part = tl.where(count == 0, 1.0, count)
    mean = (mean_a * count_a + mean_b * count_b) / part
    return mean, square_a + square_b + delta * delta * (count_a * count_b / part), count


@variant("welford", "*fp32 *fp32 *fp32 i32", constants={"ROWS": 8, "BLOCK": 128}, enable_fp_fusion=False)
@triton.jit
def welford(x, mean_out, variance_out, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + r * columns + i, mask=i < columns, other=0.0)
    count = tl.where(tl.broadcast_to(i < columns, (ROWS, BLOCK)), 1.0, 0.0)
    mean, square, count = tl.reduce((v, tl.zeros_like(v), count), 1, merge_moments)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(mean_out + rows, mean)
    tl.store(variance_out + rows, square / count)


@variant("column_sum", "*fp16 *fp32 i32 i32:16", constants={"ROWS": 32, "BLOCK": 64})
@triton.jit
def column_sum(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in range(0, rows, ROWS):
        r = start + tl.arange(0, ROWS)
        mask = (r < rows)[:, None] & (c < columns)[None, :]
        total += tl.load(x + r[:, None] * columns + c[None, :], mask=mask, other=0.0)
    tl.store(out + c, tl.sum(total, 0), mask=c < columns)


@variant("cross_entropy", "*fp32 *i64 *fp32 i32", constants={"BLOCK": 256})
@triton.jit
def cross_entropy(logits, labels, loss, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    peak = float("-inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(logits + row * columns + i, mask=i < columns, other=float("-inf"))
        higher = tl.maximum(peak, tl.max(v, 0))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(v - higher), 0)
        peak = higher
    label = tl.load(labels + row)
    value = tl.load(logits + row * columns + label, mask=label >= 0, other=0.0)
    tl.store(loss + row, tl.where(label >= 0, peak + tl.log(total) - value, 0.0))


@variant("cumulative_sum", "*fp32 *fp32 *i32 *i32", constants={"ROWS": 4, "BLOCK": 256})
@triton.jit
def cumulative_sum(x, out, k, back, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out + at, tl.cumsum(tl.load(x + at), 1))
    tl.store(back + at, tl.cumsum(tl.load(k + at), 1, reverse=True))


@triton.jit
def chain(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_a * decay_b + value_b


@variant("linear_recurrence", "*fp32 *fp32 *fp32", constants={"STEPS": 64, "BLOCK": 32})
@triton.jit
def linear_recurrence(decay, value, out, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, STEPS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    _, state = tl.associative_scan((tl.load(decay + at), tl.load(value + at)), 0, chain)
    tl.store(out + at, state)


@variant("sort", "*i32 *i32 *fp32 *fp32", constants={"ROWS": 2, "BLOCK": 128})
@triton.jit
def sort(x, out, y, top, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), descending=False))
    best = tl.arange(0, ROWS)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(top + best, tl.topk(tl.load(y + at), 8))


@variant("histogram", "*i32 *i32 i32", constants={"BINS": 64, "BLOCK": 512})
@triton.jit
def histogram(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    counts = tl.histogram(tl.load(x + i, mask=mask, other=0), BINS, mask=mask)
    tl.atomic_add(out + tl.arange(0, BINS), counts)
