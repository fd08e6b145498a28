"""A persistent matmul in Triton with TMA descriptors, its tile chosen by measurement, once a shape."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tilekit.bench.entrants import Entrant
from tilekit.bench.machine import Machine
from tilekit.bench.tuning import quickest


@dataclass(frozen=True)
class Config:
    """What the kernel is compiled for. ``k_bytes`` is the depth of a tile in bytes; ``halves`` stores it in two."""

    m: int
    n: int
    k_bytes: int
    warps: int
    stages: int
    halves: bool = False


# The tiles that won somewhere in a sweep of 29 shapes on an H200.
_CONFIGS = (
    Config(16, 32, 512, 4, 5),
    Config(16, 64, 256, 4, 6),
    Config(16, 64, 512, 4, 4),
    Config(16, 128, 256, 4, 4),
    Config(64, 32, 512, 4, 4),
    Config(64, 64, 256, 4, 5),
    Config(64, 128, 256, 4, 4),
    Config(128, 64, 256, 4, 4),
    Config(128, 128, 128, 4, 4),
    Config(128, 256, 128, 8, 4, halves=True),
    Config(128, 256, 128, 8, 3),
    Config(256, 128, 128, 8, 4, halves=True),
)


def configs_for(m: int) -> list[Config]:
    """Return the configs worth trying for this many rows: at most eight."""
    if m <= 16:
        return [config for config in _CONFIGS if config.m <= 64][:6]
    if m <= 64:
        return [config for config in _CONFIGS if config.m <= 64]
    return [config for config in _CONFIGS if config.m >= 64 and config.n >= 64]


# Of m, n and k only the values matter, not what they are multiples of: one binary serves every shape.
@triton.jit(do_not_specialize=["m", "n", "k"])
def kernel(
    a_map, b_map, out_map, out_pointer, m, n, k,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, OUT_MAPPED: tl.constexpr, HALVES: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One CTA a multiprocessor walks over tiles in bands of GROUP rows of tiles, column by column."""
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
        if not OUT_MAPPED:
            # The copy engine cannot write rows whose pitch is no multiple of 16 bytes.
            down, across = row + tl.arange(0, TILE_M), column + tl.arange(0, TILE_N)
            places = out_pointer + down[:, None].to(tl.int64) * n + across[None, :]
            inside = (down[:, None] < m) & (across[None, :] < n)
            tl.store(places, total.to(out_pointer.dtype.element_ty), mask=inside)
        elif HALVES:
            # Half the tile at a time needs half the staging memory, which is then a stage of the pipeline.
            left, right = tl.split(total.reshape(TILE_M, 2, TILE_N // 2).permute(0, 2, 1))
            out_map.store([row, column], left.to(out_map.dtype))
            out_map.store([row, column + TILE_N // 2], right.to(out_map.dtype))
        else:
            out_map.store([row, column], total.to(out_map.dtype))


def constants(config: Config, element_bytes: int, a_rows: bool, b_rows: bool, out_mapped: bool) -> dict[str, Any]:
    """Return the kernel's compile-time arguments."""
    return {
        "A_ROWS": a_rows,
        "B_ROWS": b_rows,
        "OUT_MAPPED": out_mapped,
        "HALVES": config.halves,
        "TILE_M": config.m,
        "TILE_N": config.n,
        "TILE_K": config.k_bytes // element_bytes,
        "GROUP": 8,
    }


def _run(config: Config, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    a_rows, b_rows = a.stride(1) == 1, b.stride(1) == 1
    out_mapped = out.stride(0) * out.element_size() % 16 == 0
    fixed = constants(config, a.element_size(), a_rows, b_rows, out_mapped)
    (m, k), n, tile_k = a.shape, b.shape[1], fixed["TILE_K"]
    a_map = TensorDescriptor.from_tensor(*((a, [config.m, tile_k]) if a_rows else (a.T, [tile_k, config.m])))
    b_map = TensorDescriptor.from_tensor(*((b, [tile_k, config.n]) if b_rows else (b.T, [config.n, tile_k])))
    box = [config.m, config.n // 2 if config.halves else config.n]
    out_map = TensorDescriptor.from_tensor(out, box) if out_mapped else None
    tiles = triton.cdiv(m, config.m) * triton.cdiv(n, config.n)
    grid = (min(_multiprocessors(), tiles),)
    kernel[grid](
        a_map, b_map, out_map, out, m, n, k, **fixed, num_warps=config.warps, num_stages=config.stages
    )  # fmt: skip


@functools.cache
def _multiprocessors() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


_chosen: dict[tuple[Any, ...], Config] = {}


def _key(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> tuple[Any, ...]:
    return (a.dtype, out.dtype, a.shape, b.shape, a.stride(1) == 1, b.stride(1) == 1)


def prepare(machine: Machine, sets: Sequence[tuple[torch.Tensor, ...]]) -> None:
    """Choose the config of this shape."""
    a, b, out = sets[0]
    if a.dim() != 2:
        raise ValueError("this peer takes two-dimensional products only")
    _chosen[_key(a, b, out)] = quickest(machine, configs_for(a.shape[0]), _run, sets)


def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Enqueue ``out = a @ b`` on the current stream with the config that :func:`prepare` chose."""
    _run(_chosen[_key(a, b, out)], a, b, out)


ENTRANTS = [Entrant("Triton", launch, prepare=prepare)]
ABOUT = {"triton": triton.__version__}
