"""From a problem to kernel arguments: tensor maps, the raster, and every scalar a traced matmul declares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from tilekit.assembly.types import MAP
from tilekit.drivers.profiler import RECORD_BYTES
from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32, DType
from tilekit.emulator import TensorMap
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.kernel import KernelText
from tilekit.kernels.matmul.problem import TMA_ALIGNMENT, MatmulCall, Matrix
from tilekit.runtime import parameters as runtime
from tilekit.tile_io.tma import TmaBox
from tilekit.tile_schedule.raster import Raster, RasterOrder
from tilekit.tile_schedule.stream_k import StreamPlan

_MAP_TYPES: dict[DType, str] = {BF16: "bf16", F16: "f16", F32: "f32", E4M3: "u8", E5M2: "u8"}


LONGEST_LINE = (1 << 32) - 1024
"""Bytes along a line of an operand that threads copy: they count in 32 bits, to the end of a tile beyond it."""


class Scratch(Protocol):
    """Where a launch gets memory of its own."""

    def __call__(self, name: str, size: int) -> int:
        """Return the address of `size` zero bytes."""


@dataclass(frozen=True)
class Addresses:
    """Device addresses of a call's arrays; 0 where there is none."""

    a: int
    b: int
    out: int
    bias: int = 0
    scale: int = 0
    scale_a: int = 0
    scale_b: int = 0
    residual: int = 0
    groups: int = 0


@dataclass(frozen=True)
class MatmulLaunch:
    """Everything one launch needs.

    Attributes
    ----------
    grid
        CTAs.
    parameters
        In order.
    k_blocks
        K-blocks in all, of every CTA tile.
    """

    grid: int
    parameters: tuple[runtime.Parameter, ...]
    k_blocks: int


def launch_arguments(
    text: KernelText,
    config: KernelConfig,
    call: MatmulCall,
    addresses: Addresses,
    *,
    resident_clusters: int,
    scratch: Scratch,
) -> MatmulLaunch:
    """Compute grid and parameters.

    Parameters
    ----------
    text, config, call, addresses
        The kernel and what it is launched on.
    resident_clusters
        How many clusters the device runs at once.
    scratch
        Memory that lives as long as the launch.

    Raises
    ------
    ArgumentError
        ``TK-MM-015`` where a tensor is too large for a tensor map or an index.
    """
    problem, out, residual = call.problem, call.out, call.residual
    # What the instructions multiply: with swapped operands, the transposes in the other order.
    product, a, b = problem, addresses.a, addresses.b
    if config.swap_ab:
        product, a, b = problem.transposed, b, a
    (tile_m, tile_n), (cluster_m, cluster_n) = config.tile, config.cluster
    raster = Raster.plan(
        m=product.m,
        n=product.n,
        batches=problem.batches,
        cluster_rows=tile_m * cluster_m,
        cluster_columns=tile_n * cluster_n,
        resident=resident_clusters,
        group=config.raster_group,
        order=config.raster_order,
    )
    k_blocks = -(-problem.k // config.k_block(problem.a.dtype))
    share = max(1, -(-k_blocks // (config.split_k * config.layers)))
    tiles = raster.tiles
    raster = replace(raster, shares=max(1, -(-k_blocks // (share * config.layers))))
    clusters = raster.tiles if config.cluster_per_tile else raster.clusters(resident_clusters)
    stream = None
    if config.streamed:
        stream = StreamPlan.of(tiles=tiles, k_blocks=k_blocks, resident=resident_clusters, most=config.streamed)
        clusters = stream.clusters
    turns = workspace = starts = 0
    if config.split_k > 1 or stream is not None:  # a slot for each tile, or for each CTA
        slots = (tiles if stream is None else clusters) * config.cluster_size
        turns = scratch("turns", 4 * slots * text.warpgroups)
        workspace = scratch("workspace", 4 * slots * text.workspace)
        if config.cluster_per_tile:
            starts = scratch("starts", 4)
    if call.groups:  # how many tiles there are is only known on the device
        clusters = resident_clusters
    profile = 0
    if text.profile is not None:
        records = clusters * config.cluster_size * len(text.profile.lanes) * text.profile.tiles
        profile = scratch("profile", records * RECORD_BYTES)
    size = out.dtype.bytes
    values: dict[str, runtime.Parameter] = {
        "depth": runtime.U32(_fits("K", problem.k)),
        "share_tiles": runtime.U32(tiles),
        "share_depth": runtime.U32(_fits("a share of K", share * config.k_block(problem.a.dtype))),
        **({} if stream is None else _streamed(stream, k_blocks)),
        "turns": runtime.Pointer(turns),
        "starts": runtime.Pointer(starts),
        "workspace": runtime.Pointer(workspace),
        "profile": runtime.Pointer(profile),
        "columns": runtime.U32(problem.n),
        "rows": runtime.U32(problem.m),
        "row_pitch": runtime.U32(_fits("out's row pitch", out.pitch // size)),
        "batch_pitch": runtime.U32(_fits("out's batch pitch", out.batch_pitch // size)),
        "d": runtime.Pointer(addresses.out),
        "group_bounds": runtime.Pointer(addresses.groups),
        "group_count": runtime.U32(call.groups),
        "group_rows": runtime.U32(call.group_rows),
        "a_batch_step": runtime.U32(int(product.a.batches > 1)),
        "b_batch_step": runtime.U32(int(product.b.batches > 1)),
        "bias": runtime.Pointer(addresses.bias),
        "residual": runtime.Pointer(addresses.residual),
        "beta": runtime.F32(call.beta),
        "residual_pitch": runtime.U32(residual.pitch // size if residual else 0),
        "residual_batch_pitch": runtime.U32(residual.batch_pitch // size if residual else 0),
        "residual_batch_step": runtime.U32(int(residual is not None and residual.batches > 1)),
        "scale_a": runtime.Pointer(addresses.scale_a),
        "scale_b": runtime.Pointer(addresses.scale_b),
        "scale_a_batch_pitch": runtime.U32(call.scale_pitches[0]),
        "scale_b_batch_pitch": runtime.U32(call.scale_pitches[1]),
        "scale": runtime.Pointer(addresses.scale) if addresses.scale else runtime.F32(call.scale),
        **(_copied("a", product.a, a) if "a_map" not in text.boxes else {}),
        **(_copied("b", product.b, b) if "b_map" not in text.boxes else {}),
        **{
            name: runtime.U32(_fits("tile count", value))
            for name, value in zip(RasterOrder.PARAMETERS, RasterOrder.arguments(raster), strict=True)
        },
    }
    somewhere = addresses.out // TMA_ALIGNMENT * TMA_ALIGNMENT
    matrices = {
        "a_map": (product.a, a if problem.k else somewhere),
        "b_map": (product.b, b if problem.k else somewhere),
        "d_map": (out, addresses.out),
        "d_tail_map": (out, addresses.out),
        **({"c_map": (residual, addresses.residual), "c_tail_map": (residual, addresses.residual)} if residual else {}),
    }
    parameters = tuple(
        _tensor_map(*matrices[p.name], text.boxes[p.name], config if p.name in ("a_map", "b_map") else None)
        if p.type is MAP
        else values[p.name]
        for p in text.parameters
    )
    return MatmulLaunch(
        clusters * config.cluster_size, parameters, tiles * config.cluster_size // config.layers * k_blocks
    )


def _streamed(plan: StreamPlan, k_blocks: int) -> dict[str, runtime.Parameter]:
    """What a kernel must know of tiles that are streamed; where none are, only that every tile is whole."""
    _fits("the place in the tiles that stream_k divides", plan.whole + plan.streamed * k_blocks)
    return {
        "stream_first": runtime.U32(plan.whole),
        "stream_blocks": runtime.U32(max(1, k_blocks)),
        "stream_range": runtime.U32(plan.length),
    }


def _copied(name: str, matrix: Matrix, address: int) -> dict[str, runtime.Parameter]:
    """What a kernel must know of an operand that its threads copy."""
    size = matrix.dtype.bytes
    if matrix.extents[0] * size > LONGEST_LINE:
        raise ArgumentError(
            f"{matrix.name} has rows of {matrix.extents[0]} contiguous elements; threads, which copy what TMA refuses, "
            f"count up to {LONGEST_LINE // size} of {matrix.dtype}. Align its rows to 16 bytes, or split the problem",
            code="TK-MM-015",
        )
    numbers = {
        "inner": matrix.extents[0],
        "outer": matrix.extents[1],
        "pitch": matrix.pitch // size,
        "batch_pitch": matrix.batch_pitch // size,
    }
    return {
        name: runtime.Pointer(address),
        **{f"{name}_{what}": runtime.U32(_fits(f"{matrix.name}'s {what}", value)) for what, value in numbers.items()},
    }


def _tensor_map(matrix: Matrix, address: int, box: TmaBox, config: KernelConfig | None) -> TensorMap:
    # With K = 0 an operand has no elements and perhaps no address, but a tensor map must exist; no copy goes through
    # it.
    dims = tuple(max(1, extent) for extent in matrix.extents)
    strides: tuple[int, ...] = (matrix.pitch,)
    if len(box.extents) == 3:
        dims, strides = (*dims, matrix.batches), (matrix.pitch, matrix.batch_pitch or _whole(matrix))
    try:
        return TensorMap.tiled(
            address,
            _MAP_TYPES[matrix.dtype],
            dims,
            strides,
            box.extents,
            swizzle=box.swizzle,
            l2_promotion=config.l2_promotion if config else None,  # type: ignore[arg-type]
        )
    except ValueError as error:
        raise ArgumentError(
            f"{matrix.name} cannot be described to the copy engine: {error}", code="TK-MM-015"
        ) from None


def _whole(matrix: Matrix) -> int:
    return matrix.pitch * max(1, matrix.extents[1])


def _fits(what: str, value: int) -> int:
    if value >= 1 << 32:
        raise ArgumentError(
            f"{what} is {value} elements; the kernel counts in 32 bits, up to {(1 << 32) - 1}", code="TK-MM-015"
        )
    return value
