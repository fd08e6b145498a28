"""ldmatrix and stmatrix, run alone by the emulator and compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from small_kernels import Array, SmallKernel

from tilekit.assembly.types import B32
from tilekit.assembly.values import Value

MATRICES = np.random.default_rng(11).integers(0, 1 << 16, (4, 8, 8), dtype=np.uint16)


def subtile_of(k: SmallKernel) -> Value:
    """Shared memory for four matrices."""
    return k.w.shared_base + k.w.shared.allocate("subtile", size=512, alignment=128, kind="scratch").offset


def fragments(matrices: Array) -> Array:
    """What the lanes hold of each matrix, (matrix, lane, half): row l / 4, columns 2 (l % 4) and the next."""
    return matrices.reshape(len(matrices), 32, 2)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix(count: int, transposed: bool) -> None:
    """`load_x4` and `load_x2` read the rows that the lanes address; `_trans` gives lanes of the transposed matrix."""
    out = np.zeros((count, 32), np.uint32)
    k = SmallKernel(pointers=2)
    w = k.w
    subtile = subtile_of(k)
    for word in range(4):
        index = k.thread + 32 * word
        w.ptx.memory.store_shared_b32(address=subtile + index.retyped(subtile.type) * 4, value=k.load(0, index, B32))
    w.warp_sync()
    # Matrices are read in reverse order, so that an address of the wrong lane shows.
    row = ((3 - (k.thread >> 3)) & 3) * 8 + (k.thread & 7)
    load = getattr(w.ptx.ldmatrix, f"load_x{count}" + ("_trans" if transposed else ""))
    for matrix, register in enumerate(load(address=subtile + row.retyped(subtile.type) * 16)):
        k.store(1, k.thread + 32 * matrix, register)
    k.run(MATRICES.reshape(-1).view(np.uint32), out)
    matrices = MATRICES[::-1][:count]
    expected = matrices.swapaxes(1, 2).copy() if transposed else matrices.copy()
    np.testing.assert_array_equal(out.view(np.uint16).reshape(count, 32, 2), fragments(expected))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix(count: int, transposed: bool) -> None:
    """`store_x4`, `store_x2` and their transposed forms write fragments to the rows that lanes address."""
    out = np.zeros((count * 8, 4), np.uint32)
    k = SmallKernel(pointers=2)
    w = k.w
    subtile = subtile_of(k)
    registers = w.tile(B32, count, "packed")
    for matrix, register in enumerate(registers):
        register.assign(k.load(0, k.thread + 32 * matrix, B32))
    row = ((count - 1 - (k.thread >> 3)) & (count - 1)) * 8 + (k.thread & 7)
    store = getattr(w.ptx.stmatrix, f"store_x{count}" + ("_trans" if transposed else ""))
    store(address=subtile + row.retyped(subtile.type) * 16, values=registers)
    w.warp_sync()
    for word in range(count):
        index = k.thread + 32 * word
        address = subtile + index.retyped(subtile.type) * 4
        k.store(1, index, w.ptx.memory.load_shared_b32(address=address))
    matrices = MATRICES[:count]
    k.run(fragments(matrices).reshape(-1).view(np.uint32), out)
    expected = matrices.swapaxes(1, 2) if transposed else matrices
    np.testing.assert_array_equal(out.view(np.uint16).reshape(count, 8, 8), expected[::-1])
