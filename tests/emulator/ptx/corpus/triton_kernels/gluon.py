"""Gluon kernels: copies, barriers, warp roles and clusters written out by hand."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .variants import variant

HOPPER_ON = ("sm_90a", "sm_100a")
TILE_A, TILE_B, TILE_C = ("fp16", [128, 64]), ("fp16", [64, 64]), ("fp16", [128, 64])


@variant("gluon_async_copy", "*fp32 *fp32 i32", constants={"BLOCK": 256}, num_warps=2)
@gluon.jit
def async_copy_ring(x, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [2], [0])
    ring = gl.allocate_shared_memory(gl.float32, [2, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    i = gl.arange(0, BLOCK, layout=layout)
    async_copy.async_load(ring.index(0), x + i, mask=i < n)
    async_copy.commit_group()
    for step in range(gl.cdiv(n, BLOCK)):
        ahead = (step + 1) * BLOCK + i
        async_copy.async_load(ring.index((step + 1) % 2), x + ahead, mask=ahead < n)
        async_copy.commit_group()
        async_copy.wait_group(1)
        value = ring.index(step % 2).load(layout)
        at = step * BLOCK + i
        gl.store(out + at, value * 2 + 1, mask=at < n)


@variant("gluon_mma_v2", "*fp16 *fp16 *fp32", ("sm_80", "sm_90a"), constants={"M": 64, "N": 32, "K": 32})
@gluon.jit
def mma_from_shared(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    result: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, result, 2)
    right: gl.constexpr = gl.DotOperandLayout(1, result, 2)
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 2, 4, [1, 0])
    m, k = gl.arange(0, M, gl.SliceLayout(1, rows)), gl.arange(0, K, gl.SliceLayout(0, rows))
    kk, n = gl.arange(0, K, gl.SliceLayout(1, rows)), gl.arange(0, N, gl.SliceLayout(0, rows))
    x = gl.allocate_shared_memory(gl.float16, [M, K], shared, gl.load(a + m[:, None] * K + k[None, :]))
    y = gl.allocate_shared_memory(gl.float16, [K, N], shared, gl.load(b + kk[:, None] * N + n[None, :]))
    total = mma_v2(x.load(left), y.load(right), gl.zeros([M, N], gl.float32, result))
    mm, nn = gl.arange(0, M, gl.SliceLayout(1, result)), gl.arange(0, N, gl.SliceLayout(0, result))
    gl.store(c + mm[:, None] * N + nn[None, :], total)


@variant("gluon_tma_copy", "desc desc i32", HOPPER_ON, descriptors={"x": ("fp16", [32, 128]), "y": ("fp16", [32, 128])})
@gluon.jit
def tma_copy(x, y, tiles):
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    for step in range(tiles):
        row = (gl.program_id(0) * tiles + step) * x.block_shape[0]
        mbarrier.expect(bar, x.nbytes_per_cta)
        tma.async_load(x, [row, 0], bar, tile)
        mbarrier.wait(bar, step & 1)
        tma.async_store(y, [row, 0], tile)
        tma.store_wait(0)
    mbarrier.invalidate(bar)


@variant("gluon_wgmma_ring", "desc desc desc i32", ("sm_90a",), constants={"STAGES": 3},
         descriptors={"a": TILE_A, "b": TILE_B, "c": TILE_C})  # fmt: skip
@gluon.jit
def wgmma_ring(a, b, c, k, STAGES: gl.constexpr):
    M: gl.constexpr = a.block_shape[0]
    K: gl.constexpr = a.block_shape[1]
    N: gl.constexpr = b.block_shape[1]
    ring_a = gl.allocate_shared_memory(a.dtype, [STAGES, M, K], a.layout)
    ring_b = gl.allocate_shared_memory(b.dtype, [STAGES, K, N], b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    row, column = gl.program_id(0) * M, gl.program_id(1) * N
    for early in gl.static_range(STAGES - 1):
        mbarrier.expect(full.index(early), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, early * K], full.index(early), ring_a.index(early))
        tma.async_load(b, [early * K, column], full.index(early), ring_b.index(early))
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    total = gl.zeros([M, N], gl.float32, layout)
    steps = gl.cdiv(k, K)
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(full.index(s), step // STAGES & 1)
        total = warpgroup_mma(ring_a.index(s), ring_b.index(s), total, is_async=True)
        total = warpgroup_mma_wait(0, deps=(total,))
        ahead = step + STAGES - 1
        more = ahead < steps
        mbarrier.expect(full.index(ahead % STAGES), a.nbytes_per_cta + b.nbytes_per_cta, pred=more)
        tma.async_load(a, [row, ahead * K], full.index(ahead % STAGES), ring_a.index(ahead % STAGES), pred=more)
        tma.async_load(b, [ahead * K, column], full.index(ahead % STAGES), ring_b.index(ahead % STAGES), pred=more)
    tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    tile.store(total.to(gl.float16))
    fence_async_shared()
    tma.async_store(c, [row, column], tile)
    tma.store_wait(0)


@gluon.jit
def load_role(a, b, ring_a, ring_b, full, empty, row, column, steps, STAGES: gl.constexpr):
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(empty.index(s), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(s), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, step * a.block_shape[1]], full.index(s), ring_a.index(s))
        tma.async_load(b, [step * a.block_shape[1], column], full.index(s), ring_b.index(s))


@gluon.jit
def multiply_role(c, ring_a, ring_b, full, empty, row, column, steps, M: gl.constexpr, N: gl.constexpr,
                  STAGES: gl.constexpr):  # fmt: skip
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    total = gl.zeros([M, N], gl.float32, layout)
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(full.index(s), step // STAGES & 1)
        total = warpgroup_mma(ring_a.index(s), ring_b.index(s), total, is_async=True)
        total = warpgroup_mma_wait(0, deps=(total,))
        mbarrier.arrive(empty.index(s), count=1)
    rows = row + gl.arange(0, M, gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(c + rows[:, None] * N + columns[None, :], total)


@variant("gluon_warp_specialized", "desc desc *fp32 i32", ("sm_90a",), constants={"STAGES": 2},
         descriptors={"a": TILE_A, "b": TILE_B})  # fmt: skip
@gluon.jit
def warp_specialized(a, b, c, k, STAGES: gl.constexpr):
    M: gl.constexpr = a.block_shape[0]
    K: gl.constexpr = a.block_shape[1]
    N: gl.constexpr = b.block_shape[1]
    ring_a = gl.allocate_shared_memory(a.dtype, [STAGES, M, K], a.layout)
    ring_b = gl.allocate_shared_memory(b.dtype, [STAGES, K, N], b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    row, column = gl.program_id(0) * M, gl.program_id(1) * N
    steps = gl.cdiv(k, K)
    gl.warp_specialize(
        [
            (multiply_role, (c, ring_a, ring_b, full, empty, row, column, steps, M, N, STAGES)),
            (load_role, (a, b, ring_a, ring_b, full, empty, row, column, steps, STAGES)),
        ],
        [1],
        [24],
    )


@variant("gluon_cluster_sum", "*fp32 *fp32", HOPPER_ON, constants={"ROWS": 8, "BLOCK": 256}, num_ctas=2)
@variant("gluon_cluster_sum_4", "*fp32 *fp32", HOPPER_ON, constants={"ROWS": 4, "BLOCK": 512}, num_ctas=4)
@gluon.jit
def cluster_sum(x, out, ROWS: gl.constexpr, BLOCK: gl.constexpr):
    # Each CTA of the cluster holds a part of every row: the sum crosses CTAs through distributed shared memory.
    CTAS: gl.constexpr = [[0, 1], [0, 2]] if BLOCK == 512 else [[0, 1]]
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0], cga_layout=CTAS)
    r, i = gl.arange(0, ROWS, gl.SliceLayout(1, layout)), gl.arange(0, BLOCK, gl.SliceLayout(0, layout))
    base = gl.program_id(0) * ROWS
    total = gl.sum(gl.load(x + (base + r)[:, None] * BLOCK + i[None, :]), 1)
    gl.store(out + base + r, total)


@variant("gluon_multicast", "desc *fp16", HOPPER_ON, num_ctas=2, descriptors={"x": ("fp16", [32, 64], [[0, 0]])})
@gluon.jit
def multicast(x, out):
    # One load brings the tile to both CTAs; each stores its half of the rows.
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    tma.async_load(x, [gl.program_id(0) * x.block_shape[0], 0], bar, tile, multicast=True)
    mbarrier.wait(bar, 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0], cga_layout=[[0, 0]])
    value = tile.load(layout)
    r, i = gl.arange(0, 32, gl.SliceLayout(1, layout)), gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(out + (gl.program_id(0) * 32 + r)[:, None] * 64 + i[None, :], value + 1)


@variant(
    "gluon_im2col",
    "desc desc *fp32 i32 i32 i32:16",
    ("sm_90a",),
    descriptors={"x": ("fp16", [64, 32], None, 4), "weight": ("fp16", [32, 64])},
)
@gluon.jit
def im2col(x, weight, out, height, width, channels):
    # A 3 x 3 convolution with padding 1: the copy engine walks the pixels of each tap.
    M: gl.constexpr = 64
    N: gl.constexpr = 64
    K: gl.constexpr = 32
    pixels = gl.allocate_shared_memory(x.dtype, [M, K], x.layout)
    taps = gl.allocate_shared_memory(weight.dtype, [K, N], weight.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    first = gl.program_id(0) * M
    image, row, column = first // (height * width), first // width % height, first % width
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    total = gl.zeros([M, N], gl.float32, layout)
    phase = 0
    for tap in range(9):
        for channel in range(0, channels, K):
            mbarrier.expect(bar, x.nbytes_per_cta + weight.nbytes_per_cta)
            offsets = [(tap // 3).to(gl.int16), (tap % 3).to(gl.int16)]
            tma.async_load_im2col(x, [image, row - 1, column - 1, channel], offsets, bar, pixels)
            tma.async_load(weight, [tap * channels + channel, 0], bar, taps)
            mbarrier.wait(bar, phase)
            total = warpgroup_mma(pixels, taps, total, is_async=True)
            total = warpgroup_mma_wait(0, deps=(total,))
            phase ^= 1
    rows = first + gl.arange(0, M, gl.SliceLayout(1, layout))
    columns = gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(out + rows[:, None] * N + columns[None, :], total)


@gluon.jit
def store_by_engine(y, tile, full):
    mbarrier.wait(full, 0)
    tma.async_store(y, [gl.program_id(0) * y.block_shape[0], 0], tile)
    tma.store_wait(0)


@gluon.jit
def store_by_threads(out, tile, full, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    mbarrier.wait(full, 0)
    r = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    c = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    gl.store(out + r[:, None] * COLUMNS + c[None, :], tile.load(layout))


@variant("gluon_stored_twice", "desc desc *fp16", ("sm_90a",), constants={"THREADS": False},
         descriptors={"x": ("fp16", [32, 128]), "y": ("fp16", [32, 128])})  # fmt: skip
@variant("gluon_stored_both_ways", "desc desc *fp16", ("sm_90a",), constants={"THREADS": True},
         descriptors={"x": ("fp16", [32, 128]), "y": ("fp16", [32, 128])})  # fmt: skip
@gluon.jit
def stored_twice(x, y, out, THREADS: gl.constexpr):
    # Two groups of warps, ordered by nothing, store the same tile: both by TMA, or one of them from registers.
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, x.nbytes_per_cta)
    tma.async_load(x, [gl.program_id(0) * x.block_shape[0], 0], full, tile)
    if THREADS:
        gl.warp_specialize(
            [
                (store_by_threads, (out, tile, full, x.block_shape[0], x.block_shape[1])),
                (store_by_engine, (y, tile, full)),
            ],
            [4],
            [24],
        )
    else:
        gl.warp_specialize([(store_by_engine, (y, tile, full)), (store_by_engine, (y, tile, full))], [4], [24])
