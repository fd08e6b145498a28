"""A matmul in Triton with pointers and masks, as its tutorial's for chips without a copy engine: A and B K-major."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    a, b, out, m, n, k, a_pitch, b_pitch, out_pitch,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """A CTA a tile, in bands of GROUP rows of tiles."""
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    band = tile // (GROUP * columns)
    height = min(rows - band * GROUP, GROUP)
    within = tile % (GROUP * columns)
    row = (band * GROUP + within % height) * TILE_M
    column = within // height * TILE_N
    down, across, along = (row + tl.arange(0, TILE_M)) % m, (column + tl.arange(0, TILE_N)) % n, tl.arange(0, TILE_K)
    a_places = a + down[:, None] * a_pitch + along[None, :]
    b_places = b + along[:, None] + across[None, :] * b_pitch
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for step in range(tl.cdiv(k, TILE_K)):
        left = k - step * TILE_K
        total = tl.dot(
            tl.load(a_places, mask=along[None, :] < left, other=0.0),
            tl.load(b_places, mask=along[:, None] < left, other=0.0),
            total,
        )
        a_places += TILE_K
        b_places += TILE_K
    down, across = row + tl.arange(0, TILE_M), column + tl.arange(0, TILE_N)
    inside = (down[:, None] < m) & (across[None, :] < n)
    tl.store(out + down[:, None] * out_pitch + across[None, :], total.to(out.dtype.element_ty), mask=inside)


def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, tile: tuple[int, ...]) -> None:
    """Enqueue ``out = a @ b.T`` with a tile, depth, warps and stages."""
    (m, k), n = a.shape, b.shape[0]
    rows, columns, depth, warps, stages = tile
    grid = (triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    kernel[grid](
        a, b, out, m, n, k, a.stride(0), b.stride(0), out.stride(0),
        TILE_M=rows, TILE_N=columns, TILE_K=depth, GROUP=8, num_warps=warps, num_stages=stages,
    )  # fmt: skip
