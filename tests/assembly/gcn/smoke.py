"""Smoke kernels for AMD chips, written with fragments: what to load, how to launch it, and what comes out.

They are run as text and as a code object on the emulator, and through HIP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilekit.assembly.types import B32, F32, GMEM, PRED, SMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Smoke:
    """One kernel and one launch of it.

    Attributes
    ----------
    text, entry
        The module, and the kernel's symbol.
    grid, block
        Workgroups, and threads of each.
    arguments
        In order: arrays in device memory, or NumPy numbers.
    output, expected
        Which argument is written, and what it holds afterwards.
    """

    text: str
    entry: str
    grid: int
    block: int
    arguments: tuple[Any, ...]
    output: int
    expected: Array


def vector_add(chip: str, seed: int = 0) -> Smoke:
    """c = a + b, of which the last workgroup has only a part."""
    rng = np.random.default_rng(seed)
    count, threads = 700, 256
    w = Writer("vector_add", target=chip, threads=threads)
    a, b, c = (w.parameter(name, GMEM) for name in "abc")
    n = w.parameter("n", U32)
    index = w.cta() * threads + w.thread()
    inside, offset = index < n, w.widen_multiply(index, 4)
    x, y = (w.isa.memory.load_global_f32(address=(p + offset).retyped(GMEM), valid=inside) for p in (a, b))
    w.isa.memory.store_global_f32(address=(c + offset).retyped(GMEM), value=x + y, valid=inside)
    left, right = (rng.normal(size=count).astype(np.float32) for _ in range(2))
    arguments = (left, right, np.zeros(count, np.float32), np.uint32(count))
    return Smoke(w.text(), w.name, -(-count // threads), threads, arguments, 2, left + right)


def _row_chunk(w: Writer, base: Value, row: Value, first: Value, stride: int) -> Value:
    """Address of the element in column `first` of a row of 16-bit elements."""
    address: Value = base + w.widen_multiply(row * (stride * 2) + first * 2, 1)
    return address.retyped(GMEM)


def _store_tile(w: Writer, out: Value, sums: RegisterTile, lane: Value, stride: int, column: Value | int = 0) -> None:
    """Store a 16 x 16 tile: a lane holds four rows of a column."""
    for i, value in enumerate(sums):
        row = (lane >> 4) * 4 + i
        address = out + w.widen_multiply((row * stride + (lane & 15) + column) * 4, 1)
        w.isa.memory.store_global_f32(address=address.retyped(GMEM), value=value, valid=w.constant(PRED, 1))


def mfma_tile(chip: str, seed: int = 0) -> Smoke:
    """d = a b^T of 16 x 16 x 64 in bf16, by one wave with operands straight from global memory."""
    rng = np.random.default_rng(seed)
    depth = 64
    w = Writer("mfma_tile", target=chip, threads=64)
    a, b, d = (w.parameter(name, GMEM) for name in "abd")
    lane = w.lane()
    sums = w.tile(F32, 4, "sums")
    for value in sums:
        value.assign(0.0)
    # Eight neighbours of k a lane are two operands 16 deep, or one 32 deep: any order of k that A and B share is right.
    for k in w.range(depth, step=32, name="k"):
        first = (lane >> 4) * 8 + k
        rows = [w.isa.memory.load_global_f32x4(address=_row_chunk(w, p, lane & 15, first, depth)) for p in (a, b)]
        multiply(w, sums, *(_as_bits(w, row) for row in rows))
    _store_tile(w, d, sums, lane, 16)
    left, right = (rng.integers(-4, 5, (16, depth)).astype(ml_dtypes.bfloat16) for _ in range(2))
    expected = left.astype(np.float32) @ right.astype(np.float32).T
    arguments = (left.view(np.uint16), right.view(np.uint16), np.zeros((16, 16), np.float32))
    return Smoke(w.text(), w.name, 1, 64, arguments, 2, expected)


def multiply(w: Writer, sums: RegisterTile, a: RegisterTile, b: RegisterTile) -> None:
    """sums += a b^T of 16 x 16 x 32 in bf16, in as many steps as the chip's instruction takes."""
    mfma = w.gcn.mfma
    if w.target.has("wide_loads_to_lds"):  # what gfx950 brought came together
        mfma.f32_16x16x32(sums=sums, a=a, b=b, type="bf16")
        return
    for half in (slice(0, 2), slice(2, 4)):
        mfma.f32_16x16x16(sums=sums, a=a[half], b=b[half], type="bf16")


def double_buffer(chip: str, seed: int = 0) -> Smoke:
    """d = a b^T of 16 x 64 x 256 in bf16: four waves share A in LDS; loads fill one half while the other is read."""
    rng = np.random.default_rng(seed)
    depth, block, waves = 256, 32, 4
    w = Writer("double_buffer", target=chip, threads=64 * waves)
    a, b, d = (w.parameter(name, GMEM) for name in "abd")
    thread, lane, warp = w.thread(), w.lane(), w.warp()
    tile_bytes = 16 * block * 2
    stages = w.shared.allocate("a", size=tile_bytes, count=2, kind="tile")
    buffer = w.gcn.buffer.descriptor(base=a, bytes=16 * depth * 2)
    sums = w.tile(F32, 4, "sums")
    for value in sums:
        value.assign(0.0)

    def load(k: Value | int, stage: Value | int) -> None:
        """Start the loads of one k-block of A; each wave brings its share, a lane 4 bytes."""
        place = (thread >> 4) * (depth * 2) + (thread & 15) * 4 + w.constant(U32, k) * 2
        lds = stages.at(w, w.constant(U32, stage)) + warp * 256
        w.gcn.buffer_lds.load_b32(buffer=buffer, place=place, lds=lds.retyped(SMEM), offset=0)
        w.gcn.buffer_lds.commit()

    load(0, 0)
    for k in w.range(depth, step=block, name="k"):
        stage = (k >> 5) & 1
        load(w.minimum(k + block, depth - block), stage ^ 1)  # the last one loads a block again, which nothing reads
        first = (lane >> 4) * 8
        column = w.isa.memory.load_global_f32x4(address=_row_chunk(w, b, warp * 16 + (lane & 15), first + k, depth))
        w.gcn.buffer_lds.wait(pending=1)
        w.gcn.barrier.sync_cta_shared()
        address = stages.at(w, stage) + (lane & 15) * (block * 2) + first * 2
        row = w.gcn.lds.read_b32x4(address=address.retyped(SMEM), offset=0)
        multiply(w, sums, row, _as_bits(w, column))
        w.gcn.barrier.sync_cta_shared()  # all have read before the next turn overwrites
    w.gcn.buffer_lds.wait(pending=0)
    _store_tile(w, d, sums, lane, 64, warp * 16)
    left = rng.integers(-4, 5, (16, depth)).astype(ml_dtypes.bfloat16)
    right = rng.integers(-4, 5, (64, depth)).astype(ml_dtypes.bfloat16)
    expected = left.astype(np.float32) @ right.astype(np.float32).T
    arguments = (left.view(np.uint16), right.view(np.uint16), np.zeros((16, 64), np.float32))
    return Smoke(w.text(), w.name, 1, 64 * waves, arguments, 2, expected)


def _as_bits(w: Writer, values: RegisterTile) -> RegisterTile:
    """Four f32 registers that hold pairs of bf16, as what they are."""
    return RegisterTile([Value(w, B32, value.text, uniform=False) for value in values])


SMOKE: dict[str, Callable[..., Smoke]] = {
    "vector_add": vector_add,
    "mfma_tile": mfma_tile,
    "double_buffer": double_buffer,
}
"""Kernels by name; each is made for a chip, with a seed for its data."""
