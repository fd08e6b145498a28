"""Triton kernels for AMD chips: atomics of all kinds, locks, flags between workgroups, gathers, scatters, copies."""

from __future__ import annotations

import triton.language as tl
from triton import jit
from triton_kernels.variants import variant


@variant("amd_atomics_words", "*i32 *i32 *i32", constants={"BLOCK": 128})
@variant("amd_atomics_words_flat", "*i32 *i32 *i32", constants={"BLOCK": 128}, buffer_ops=False, num_warps=1)
@jit
def atomics_words(x, out, seen, BLOCK: tl.constexpr):
    """Every read-modify-write of 32 bits, of several semantics and scopes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    slot = at % 8
    tl.atomic_and(out + slot, v | 0xFFFF, sem="relaxed")
    tl.atomic_or(out + 8 + slot, v & 0xFF0, sem="release", scope="cta")
    tl.atomic_xor(out + 16 + slot, v, sem="acquire", scope="sys")
    tl.atomic_min(out + 24 + slot, v)
    tl.atomic_max(out + 32 + slot, v, mask=v % 2 == 0)
    tl.atomic_min(out.to(tl.pointer_type(tl.uint32)) + 40 + slot, v.to(tl.uint32, bitcast=True))
    tl.atomic_max(out.to(tl.pointer_type(tl.uint32)) + 48 + slot, v.to(tl.uint32, bitcast=True))
    tl.store(seen + at, tl.atomic_add(out + 56 + v * 0, 1 + v * 0, sem="acq_rel"))
    tl.atomic_xchg(out + 64 + at, v)
    old = tl.atomic_cas(out + 512 + at, v * 0, v)
    tl.atomic_cas(out + 512 + at, old + 1, v * 7)


@variant("amd_atomics_wide", "*i64 *i64 *fp64 *fp64", constants={"BLOCK": 64}, num_warps=2)
@jit
def atomics_wide(x, out, y, out2, BLOCK: tl.constexpr):
    """Read-modify-writes of 64 bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v, slot = tl.load(x + at), at % 4
    tl.atomic_min(out + slot, v)
    tl.atomic_max(out + 4 + slot, v)
    tl.atomic_xor(out + 8 + slot, v)
    tl.atomic_and(out + 12 + slot, v | 0xFFFFFFFF)
    tl.atomic_or(out + 16 + slot, v)
    tl.atomic_add(out + 20 + slot, v)
    tl.atomic_xchg(out + 64 + at, v)
    tl.atomic_cas(out + 256 + at, v * 0, v)
    d = tl.load(y + at)
    tl.atomic_add(out2 + slot, d)


@variant("amd_atomics_narrow", "*fp16 *fp16 *bf16 *bf16 *fp32 *fp32", constants={"BLOCK": 256})
@variant("amd_atomics_narrow_flat", "*fp16 *fp16 *bf16 *bf16 *fp32 *fp32", constants={"BLOCK": 256}, buffer_ops=False)
@jit
def atomics_narrow(x, out, y, out2, z, out3, BLOCK: tl.constexpr):
    """Sums of 16 and 32 bits, masked, contended, and extrema of float32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % 32, tl.load(x + at), mask=at % 5 != 0, sem="relaxed")
    tl.atomic_add(out2 + tl.arange(0, BLOCK), tl.load(y + at), sem="relaxed")
    v = tl.load(z + at)
    tl.atomic_max(out3 + at % 4, v)
    tl.atomic_min(out3 + 4 + at % 4, v)
    tl.atomic_add(out3 + 8 + at % 3, v, sem="relaxed")


@variant("amd_ticket_lock", "*i32 *i32 *fp32", constants={"BLOCK": 128})
@jit
def ticket_lock(tickets, order, total, BLOCK: tl.constexpr):
    """Workgroups take numbers and are served one after the other."""
    mine = tl.atomic_add(tickets, 1)
    while tl.atomic_add(tickets + 1, 0) != mine:
        pass
    at = tl.arange(0, BLOCK)
    tl.store(order + mine, tl.program_id(0))
    tl.store(total + at, tl.load(total + at) * 0.5 + tl.program_id(0))
    tl.debug_barrier()
    tl.atomic_add(tickets + 1, 1)


@variant("amd_handed_on", "*fp32 *fp32 *i32", constants={"BLOCK": 256})
@jit
def handed_on(x, out, flags, BLOCK: tl.constexpr):
    """A prefix sum over workgroups: each waits for the sum of the ones before it."""
    i = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + i * BLOCK + at)
    before = 0.0
    if i > 0:
        while tl.atomic_cas(flags + i - 1, 1, 1) != 1:
            pass
        before = tl.load(out + i * BLOCK - 1, volatile=True)
    tl.store(out + i * BLOCK + at, tl.cumsum(v, 0) + before)
    tl.debug_barrier()
    tl.atomic_xchg(flags + i, 1)


@variant("amd_last_block", "*fp32 *fp32 *i32 *fp32 i32", constants={"BLOCK": 256, "MANY": 8})
@jit
def last_block(x, partial, counter, out, n, BLOCK: tl.constexpr, MANY: tl.constexpr):
    """The workgroup that comes last adds up what all have stored."""
    i = tl.program_id(0)
    at = i * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + i, tl.sum(tl.load(x + at, at < n, 0.0), 0))
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        j = tl.arange(0, MANY)
        tl.store(out, tl.sum(tl.load(partial + j, j < tl.num_programs(0), 0.0, volatile=True), 0))


@variant("amd_compaction", "*i32 *i32 *i32 i32", constants={"BLOCK": 512}, num_warps=8)
@jit
def compaction(x, out, count, n, BLOCK: tl.constexpr):
    """What a test lets through, side by side; workgroups take places by an atomic."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 0)
    keep = v % 3 == 1
    place = tl.cumsum(keep.to(tl.int32), 0) - 1
    base = tl.atomic_add(count, tl.sum(keep.to(tl.int32), 0))
    tl.store(out + base + place, v, keep)


@variant("amd_gather_scatter", "*i64 *bf16 *bf16 *i32 *i8 *i8 i64", constants={"ROWS": 8, "BLOCK": 64}, num_warps=2)
@variant("amd_gather_scatter_flat", "*i64 *bf16 *bf16 *i32 *i8 *i8 i64", constants={"ROWS": 8, "BLOCK": 64},
         buffer_ops=False)  # fmt: skip
@jit
def gather_scatter(rows, x, out, where, y, out2, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows by 64-bit indices, bytes by 32-bit ones, with cache modifiers."""
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    source = tl.load(rows + r)
    inside = (source >= 0)[:, None] & (c < 50)[None, :]
    v = tl.load(x + source[:, None] * stride + c[None, :], inside, 0.0, cache_modifier=".cg")
    tl.store(out + r[:, None] * BLOCK + c[None, :], v, cache_modifier=".wt")
    at = tl.program_id(0) * ROWS * BLOCK + tl.arange(0, ROWS * BLOCK)
    tl.store(out2 + tl.load(where + at), tl.load(y + at) + 1)


@variant("amd_axis_gather", "*fp16 *i32 *fp16 *i64 *i64", constants={"ROWS": 32, "BLOCK": 64, "PICK": 16})
@jit
def axis_gather(x, index, out, y, out2, ROWS: tl.constexpr, BLOCK: tl.constexpr, PICK: tl.constexpr):
    """Places of a tile by indices along both axes."""
    r, c, p = tl.arange(0, ROWS), tl.arange(0, BLOCK), tl.arange(0, PICK)
    v = tl.load(x + r[:, None] * BLOCK + c[None, :])
    i = tl.load(index + p[:, None] * BLOCK + c[None, :])
    tl.store(out + p[:, None] * BLOCK + c[None, :], tl.gather(v, i, 0))
    w = tl.load(y + c)
    tl.store(out2 + c, tl.gather(w, BLOCK - 1 - c, 0))


@variant("amd_transpose_cube", "*i16 *i16 *i8 *i8", constants={"A": 16, "B": 32, "C": 16})
@variant("amd_transpose_cube_1", "*i16 *i16 *i8 *i8", constants={"A": 8, "B": 16, "C": 8}, num_warps=1)
@jit
def transpose_cube(x, out, y, out2, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    """Cubes of 8 and 16 bits with their axes exchanged."""
    i, j, k = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
    v = tl.permute(tl.load(x + (i * B + j) * C + k), (2, 1, 0))
    kk, jj, ii = tl.arange(0, C)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, A)[None, None, :]
    tl.store(out + (kk * B + jj) * A + ii, v)
    w = tl.permute(tl.load(y + (i * B + j) * C + k), (1, 0, 2))
    j2, i2, k2 = tl.arange(0, B)[:, None, None], tl.arange(0, A)[None, :, None], tl.arange(0, C)[None, None, :]
    tl.store(out2 + (j2 * A + i2) * C + k2, w)


@variant("amd_strided", "*fp32 *fp32 i32 i32 i32 i32", constants={"ROWS": 16, "BLOCK": 32}, num_stages=4)
@jit
def strided(x, out, rows, columns, s0, s1, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A matrix of any strides, pooled by twos, over a loop of tiles."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK)[None, :]
        inside = (r < rows) & (c < columns)
        a = tl.load(x + 2 * r * s0 + 2 * c * s1, inside, 0.0)
        b = tl.load(x + 2 * r * s0 + (2 * c + 1) * s1, inside, 0.0)
        d = tl.load(x + (2 * r + 1) * s0 + 2 * c * s1, inside, 0.0)
        e = tl.load(x + (2 * r + 1) * s0 + (2 * c + 1) * s1, inside, 0.0)
        tl.store(out + r * columns + c, tl.maximum(tl.maximum(a, b), tl.maximum(d, e)), inside)


@variant("amd_radix_pass", "*i32 *i32 *i32 i32 i32", constants={"BLOCK": 256, "DIGITS": 16})
@jit
def radix_pass(x, offsets, out, shift, n, BLOCK: tl.constexpr, DIGITS: tl.constexpr):
    """One workgroup's pass of a stable radix sort."""
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 0)
    digit = tl.where(at < n, (v >> shift) & (DIGITS - 1), -1)
    d = tl.arange(0, DIGITS)
    one = (digit[:, None] == d[None, :]).to(tl.int32)
    rank = tl.sum(tl.where(one == 1, tl.cumsum(one, 0) - 1, 0), 1)
    total = tl.sum(one, 0)
    first = tl.cumsum(total, 0) - total
    tl.store(offsets + d, first)
    tl.store(out + tl.sum(tl.where(one == 1, first[None, :], 0), 1) + rank, v, at < n)


@variant("amd_mean_variance_atomics", "*fp32 *fp32 *i32 *fp32 i32 i32", constants={"ROWS": 16, "BLOCK": 64})
@jit
def mean_variance_atomics(x, sums, counter, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Batch statistics: partial sums by atomics, the last workgroup finishes."""
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)
    v = tl.load(x + r * columns + c[None, :], (r < rows) & (c < columns)[None, :], 0.0)
    tl.atomic_add(sums + c, tl.sum(v, 0))
    tl.atomic_add(sums + BLOCK + c, tl.sum(v * v, 0))
    tl.debug_barrier()
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        total, square = tl.atomic_add(sums + c, 0.0), tl.atomic_add(sums + BLOCK + c, 0.0)
        mean = total / rows
        tl.store(out + c, mean, c < columns)
        tl.store(out + columns + c, square / rows - mean * mean, c < columns)
