"""Kernels that move data: transposes, gathers, scatters, atomics, locks."""

import triton
import triton.language as tl

from .variants import variant


@variant("transpose", "*fp32 *fp32 i32 i32", constants={"BLOCK": 32})
@triton.jit
def transpose(x, out, rows, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + r[:, None] * columns + c[None, :], mask=(r < rows)[:, None] & (c < columns)[None, :])
    tl.store(out + c[:, None] * rows + r[None, :], tl.trans(tile), mask=(c < columns)[:, None] & (r < rows)[None, :])


@variant("embedding", "*i64 *bf16 *bf16 i32", constants={"BLOCK": 128})
@triton.jit
def embedding(index, table, out, columns, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    row = tl.load(index + token)
    i = tl.arange(0, BLOCK)
    v = tl.load(table + row * columns + i, mask=i < columns)
    tl.store(out + token * columns + i, v, mask=i < columns)


@variant("scatter_add", "*i32 *fp32 *fp32", constants={"ROWS": 16, "BLOCK": 32})
@triton.jit
def scatter_add(index, x, out, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    to = tl.load(index + r)
    v = tl.load(x + r[:, None] * BLOCK + c[None, :])
    tl.atomic_add(out + to[:, None] * BLOCK + c[None, :], v)


@variant("gather_axis", "*fp32 *i32 *fp32", constants={"ROWS": 16, "BLOCK": 32})
@triton.jit
def gather_axis(x, index, out, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), 0))


@variant("reshape_join", "*i16 *i16 *i16", constants={"BLOCK": 128})
@triton.jit
def reshape_join(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    both = tl.interleave(a, b)
    tl.store(out + tl.arange(0, 2 * BLOCK), both)
    low, high = tl.split(tl.reshape(tl.flip(both), (BLOCK, 2)))
    tl.store(out + 2 * BLOCK + i, low - high)
    turned = tl.permute(tl.reshape(a, (4, 8, BLOCK // 32)), (2, 0, 1))
    tl.store(out + 3 * BLOCK + i, tl.reshape(turned, (BLOCK,)))


@variant("atomics_f32", "*fp32 *fp32 *fp32", constants={"BLOCK": 128})
@triton.jit
def atomics_f32(x, out, seen, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    tl.atomic_add(out + i % 4, v)
    tl.atomic_max(out + 4 + i % 4, v)
    tl.atomic_min(out + 8 + i % 4, v)
    old = tl.atomic_xchg(out + 12 + tl.program_id(0) * BLOCK + i, v)
    tl.store(seen + tl.program_id(0) * BLOCK + i, old)


@variant("atomics_half", "*fp16 *fp16 *bf16 *bf16", ("sm_90a", "sm_100a"), constants={"BLOCK": 128})
@variant("atomics_half", "*fp16 *fp16 *fp16 *fp16", ("sm_80",), constants={"BLOCK": 128})
@triton.jit
def atomics_half(x, out, y, out2, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + tl.program_id(0) * BLOCK + i), sem="relaxed")
    tl.atomic_add(out2 + i, tl.load(y + tl.program_id(0) * BLOCK + i))


@variant("atomics_i32", "*i32 *i32 *i32", constants={"BLOCK": 64})
@triton.jit
def atomics_i32(x, out, seen, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    tl.atomic_add(out + i % 2, v)
    tl.atomic_max(out + 2 + i % 2, v)
    tl.atomic_min(out + 4 + i % 2, v)
    tl.atomic_and(out + 6 + i % 2, v)
    tl.atomic_or(out + 8 + i % 2, v)
    tl.atomic_xor(out + 10 + i % 2, v)
    ticket = tl.atomic_add(out + 12, 1)
    tl.store(seen + ticket, tl.program_id(0))
    old = tl.atomic_cas(out + 13 + i, tl.zeros_like(v), tl.zeros_like(v) + tl.program_id(0) + 1)
    tl.store(seen + 16 + tl.program_id(0) * BLOCK + i, old)


@variant("atomics_i64", "*i64 *i64 *fp64 *fp64", constants={"BLOCK": 64})
@triton.jit
def atomics_i64(x, out, y, out2, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    tl.atomic_add(out + i % 2, v)
    tl.atomic_max(out + 2 + i % 2, v)
    tl.atomic_min(out + 4 + i % 2, v)
    tl.atomic_add(out2 + i % 4, tl.load(y + tl.program_id(0) * BLOCK + i))


@variant("spin_lock", "*i32 *fp32 *fp32", constants={"BLOCK": 128})
@triton.jit
def spin_lock(lock, x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + i, tl.load(out + i) * 0.5 + v)
    tl.store(out + BLOCK + i, tl.load(out + BLOCK + i) + v)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@variant("collatz", "*i32 *i32", constants={"BLOCK": 128})
@triton.jit
def collatz(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    steps = tl.zeros_like(v)
    while tl.max(v, 0) > 1:
        steps += (v > 1).to(tl.int32)
        v = tl.where(v > 1, tl.where(v % 2 == 0, v // 2, 3 * v + 1), v)
    tl.store(out + i, steps)


@variant("descriptor_copy", "*fp16 *fp16 i32 i32:16", ("sm_90a", "sm_100a"), constants={"ROWS": 32, "COLUMNS": 64})
@triton.jit
def descriptor_copy(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    r, c = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    target.store([r, c], source.load([r, c]) + 1)


@variant("descriptor_reduce", "*fp32 *fp32 i32 i32:16", ("sm_90a", "sm_100a"), constants={"ROWS": 16, "COLUMNS": 32})
@triton.jit
def descriptor_reduce(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(out, [ROWS, columns], [columns, 1], [ROWS, COLUMNS])
    c = tl.program_id(1) * COLUMNS
    target.atomic_add([0, c], source.load([tl.program_id(0) * ROWS, c]))


@variant("descriptor_gather", "*fp16 *i32 *fp16 i32 i32:16", ("sm_100a",), constants={"ROWS": 32, "COLUMNS": 64})
@triton.jit
def descriptor_gather(x, index, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [1, COLUMNS])
    r = tl.arange(0, ROWS)
    v = source.gather(tl.load(index + r), tl.program_id(0) * COLUMNS)
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(out + r[:, None] * columns + c[None, :], v)
