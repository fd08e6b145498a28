"""A persistent matmul in Triton with TMA descriptors, its tile chosen by measurement, once a shape."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# Tile M and N, warps, pipeline stages.
_TILES = (
    (128, 256, 8, 3),
    (256, 128, 8, 3),
    (128, 128, 8, 4),
    (128, 128, 4, 4),
    (64, 256, 4, 4),
    (64, 128, 4, 5),
    (64, 64, 4, 6),
)


@triton.jit
def _kernel(
    a_map, b_map, out_map, m, n, k,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        band = tile // (GROUP * columns)
        height = min(rows - band * GROUP, GROUP)
        within = tile % (GROUP * columns)
        row = (band * GROUP + within % height) * TILE_M
        column = within // height * TILE_N
        total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        for step in range(tl.cdiv(k, TILE_K)):
            at = step * TILE_K
            a = a_map.load([row, at]) if A_ROWS else a_map.load([at, row]).T
            b = b_map.load([at, column]) if B_ROWS else b_map.load([column, at]).T
            total = tl.dot(a, b, total)
        out_map.store([row, column], total.to(out_map.dtype))


def _box_descriptors(arguments: dict[str, Any]) -> None:
    """Give the descriptors the boxes of the config that is about to run."""
    m, n, k = arguments["TILE_M"], arguments["TILE_N"], arguments["TILE_K"]
    arguments["a_map"].block_shape = [m, k] if arguments["A_ROWS"] else [k, m]
    arguments["b_map"].block_shape = [k, n] if arguments["B_ROWS"] else [n, k]
    arguments["out_map"].block_shape = [m, n]


@functools.cache
def _tuned(tile_k: int) -> Any:
    configs = [
        triton.Config(
            {"TILE_M": m, "TILE_N": n, "TILE_K": tile_k, "GROUP": 8},
            num_warps=warps,
            num_stages=stages,
            pre_hook=_box_descriptors,
        )
        for m, n, warps, stages in _TILES
    ]
    return triton.autotune(configs=configs, key=["m", "n", "k", "A_ROWS", "B_ROWS"])(_kernel)


@functools.cache
def _multiprocessors() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def _descriptor(matrix: torch.Tensor) -> tuple[TensorDescriptor, bool]:
    """Describe a matrix, or its transpose where that is the contiguous one; the box is set when a config is chosen."""
    rows = matrix.stride(1) == 1
    return TensorDescriptor.from_tensor(matrix if rows else matrix.T, [1, 1]), rows


def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Enqueue ``out = a @ b`` on the current stream; two dimensions, either layout of a and b."""
    if a.dim() != 2:
        raise ValueError("this peer takes two-dimensional products only")
    a_map, a_rows = _descriptor(a)
    b_map, b_rows = _descriptor(b)
    (m, k), n = a.shape, b.shape[1]

    def grid(config: dict[str, int]) -> tuple[int]:
        return (min(_multiprocessors(), triton.cdiv(m, config["TILE_M"]) * triton.cdiv(n, config["TILE_N"])),)

    tile_k = 128 // a.element_size()
    _tuned(tile_k)[grid](a_map, b_map, _descriptor(out)[0], m, n, k, A_ROWS=a_rows, B_ROWS=b_rows)
