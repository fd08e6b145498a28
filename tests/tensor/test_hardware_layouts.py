"""The hardware's own arrangements, written as layouts and compared with the vendor's formulas."""

import pytest

from tilekit.tensor import AddressSpace, Layout, Swizzle, TileTensor


@pytest.mark.parametrize("columns", [8, 64, 256])
def test_wgmma_accumulator(columns):
    """m64nNk*: thread t, register d[i] holds the element that the PTX ISA's figure of matrix D gives."""
    accumulator = Layout(((4, 8, 4), (2, 2, columns // 8)), ((128, 1, 16), (64, 8, 512)))
    tile = Layout.col_major(64, columns)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for register in range(columns // 2):
            row = 16 * warp + lane // 4 + 8 * (register // 2 % 2)
            column = 8 * (register // 4) + 2 * (lane % 4) + register % 2
            assert accumulator(thread, register) == tile(row, column)
    assert accumulator.left_inverse().size == 64 * columns


def test_wgmma_accumulator_is_a_distribution():
    """The same arrangement by hand: blocks of 16 rows a warp, of 8 rows dealt to 8 x 4 lanes in pairs of columns."""
    c = TileTensor(Layout.col_major(64, 64), "f32", AddressSpace.REGISTER)
    accumulator = Layout(((4, 8, 4), (2, 2, 8)), ((128, 1, 16), (64, 8, 512)))
    for warp in range(4):
        pairs = c.tile((16, 64), (warp, 0)).vectorize(1, 2)
        for lane in range(32):
            mine = pairs.distribute(Layout.row_major(8, 4), lane)
            held = [mine[i, j] + step for j in range(8) for i in range(2) for step in mine.element.offsets()]
            assert held == [accumulator(32 * warp + lane, register) for register in range(32)]


def test_stmatrix_addresses():
    """stmatrix.x4 into a 128-byte-swizzled subtile: the layout's addresses are the one-XOR recipe, no conflicts."""
    subtile = TileTensor(Layout.row_major(64, 64), "bf16", AddressSpace.SHARED, swizzle=Swizzle.tma(128))
    # Lane l supplies row l%8 of matrix l/8; matrices 0 and 1 lie one below the other, 2 and 3 to their right.
    row_of_lane = Layout((8, 2, 2), (1, 8, 16 * 8))
    for warp in range(4):
        for j in range(4):
            block = subtile.tile((16, 16), (warp, j))
            addresses = [block.byte_offset(row_of_lane(lane)) for lane in range(32)]
            assert addresses == [
                (16 * warp + (lane & 7) + (lane & 8)) * 128 + ((((lane >> 4) ^ (lane & 7)) << 4) ^ (j << 5))
                for lane in range(32)
            ]
            for matrix in range(4):
                groups = {address // 16 % 8 for address in addresses[8 * matrix : 8 * matrix + 8]}
                assert len(groups) == 8


def test_matrix_fragment():
    """ldmatrix and stmatrix, one 8 x 8 matrix of 16-bit elements: lane l holds row l/4, columns 2(l%4) and the next."""
    fragment = Layout(((4, 8), 2), ((16, 1), 8))
    for lane in range(32):
        for half in range(2):
            assert fragment(lane, half) == Layout.col_major(8, 8)(lane // 4, 2 * (lane % 4) + half)


def test_wgmma_descriptor_steps():
    """K-major operands with the 128-byte swizzle: the next k16 is 32 bytes on, 64 rows 8192, 8 rows 1024 (the SBO)."""
    a = TileTensor(Layout.row_major(128, 64), "bf16", AddressSpace.SHARED, swizzle=Swizzle.tma(128))
    assert 2 * a.tile((64, 16), (0, 1)).offset == 32
    assert 2 * a.tile((64, 16), (1, 0)).offset == 8192
    assert 2 * a.tile((8, 64), (1, 0)).offset == 1024 == a.swizzle.period
    assert a.tile((8, 64), (1, 0)).alignment == 1024
    assert a.tile((64, 16), (0, 1)).alignment == 32
    assert a.vectorize(1, 8).access_alignment == 16


def test_mn_major_operand_in_chunks():
    """A [64 x 256] MN-major B as four boxes of 64 columns: one layout, whose chunk stride is the descriptor's LBO."""
    b = TileTensor(Layout((64, (64, 4)), (64, (1, 64 * 64))), "bf16", AddressSpace.SHARED, swizzle=Swizzle.tma(128))
    assert 2 * b.tile((16, 64), (1, 0)).offset == 2048
    assert 2 * b.tile((64, 64), (0, 1)).offset == 64 * 128
    assert b.byte_offset(3, 64 + 8) == 64 * 128 + 3 * 128 + (1 ^ 3) * 16


def test_tensor_memory_addresses():
    """Tensor memory: the lane is the upper half of an address, the 32-bit column the lower (PTX ISA, tcgen05)."""
    accumulator = TileTensor(Layout((128, 256), (1 << 16, 1)), "b32", AddressSpace.TENSOR)
    assert accumulator.tile((32, 32), (2, 1))[0, 0] == (64 << 16) + 32
