"""The components of such a matmul: copies by threads or the copy engine, who meets, a warp's matrix instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.assembly.writer import Writer
from tilekit.dtypes import FP8
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul import copy_engine
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.copy_plan import WIDTHS
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tile_op.accumulators import Accumulators
from tilekit.tile_op.mma_sync import MmaSync
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tile_pipeline.sync import SyncStrategy
from tilekit.tile_pipeline.together_sync import TogetherSync
from tilekit.tiles.call import Load, Matrix

if TYPE_CHECKING:
    from tilekit.assembly.shared import SharedArray
    from tilekit.drivers.warp_plan import WarpPlan
    from tilekit.kernels.matmul.warp_matrix.config import WarpMatrixConfig
    from tilekit.tile_pipeline.ring import TilePipeline
    from tilekit.tiles.cluster import Cluster

SCHEDULES_FIRST = False
COPIES_GROUPS = True


def check(spec: MatmulSpec, target: Target) -> None:
    """Raise `ArgumentError` for types that these components do not store."""
    if spec.out_dtype in FP8 and not target.has("float8_matrix"):
        raise ArgumentError(
            f"out_dtype={spec.out_dtype}: {target.name} has no 8-bit floats, and its matmuls write bf16, f16 or f32; "
            "nearest: bf16",
            code="TK-MM-002",
        )
    if spec.groups is not None and spec.a_major != "k" and spec.a_load != "tma":
        raise ArgumentError(
            f"a is contiguous along M, where groups or its rows begin at multiples of {spec.a_load} bytes; copies of "
            f"{target.name} begin at multiples of 16 there: pass a with contiguous rows of K",
            code="TK-GROUP-003",
        )
    if spec.promoted:
        raise ArgumentError(
            f"accumulation='promoted': on {target.name} the tensor core adds 8-bit products as others; nearest: 'fast'",
            code="TK-MM-027",
        )


def load(matrix: Matrix) -> Load:
    """As the copy engine's, with the length of its rows beside addresses and pitches: pieces of 16 bytes are whole."""
    length = matrix.extents[0] * matrix.dtype.bytes
    if length % TMA_ALIGNMENT == 0:
        return matrix.load
    width = next(width for width in WIDTHS if length % width == 0)
    return width if matrix.load == "tma" else min(width, matrix.load)


def loaders(
    w: Writer, spec: MatmulSpec, config: WarpMatrixConfig, plan: WarpPlan, cluster: Cluster, stages: int
) -> tuple[OperandLoader, OperandLoader]:
    """Copies that threads start, of as many bytes as rows allow; or the copy engine's, where it has a role."""
    if not config.together:
        return copy_engine.loaders(w, spec, config, plan, cluster, stages)
    plans = zip("ab", config.plans(spec), strict=True)
    a, b = (spec.loader(operand, w, copies.tile, copies, stages) for operand, copies in plans)
    return a, b


def sync(
    w: Writer, spec: MatmulSpec, config: WarpMatrixConfig, plan: WarpPlan, cluster: Cluster, stages: int
) -> SyncStrategy:
    """The barrier of the CTA; between roles, those on which copies count their bytes."""
    if not config.together:
        return copy_engine.ring_sync(w, spec, config, plan, cluster, stages, released_by="threads")
    return TogetherSync(stages=stages)


def accumulators(
    w: Writer,
    op: MmaSync,
    spec: MatmulSpec,
    config: WarpMatrixConfig,
    plan: WarpPlan,
    cluster: Cluster,
    tiles: dict[str, SharedArray],
    inputs: TilePipeline | None,
) -> Accumulators:
    """Registers of the warps."""
    return RegisterAccumulators(op, whole=config.keeps_whole(spec))
