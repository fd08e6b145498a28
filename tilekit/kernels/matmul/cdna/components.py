"""The components that a CDNA matmul has of its own: software loads, counters in LDS, matrix cores into registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, F16, F32
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.memory import RING
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.buffer import BufferLoader
from tilekit.tile_io.buffer_across import BufferAcrossLoader
from tilekit.tile_io.buffer_to_lds import BufferToLdsLoader
from tilekit.tile_io.copy_plan import WIDTHS
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tile_op.accumulators import Accumulators
from tilekit.tile_op.mfma import Mfma
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tile_pipeline.sync import SyncStrategy
from tilekit.tiles.call import Load, Matrix
from tilekit.tiles.operand import ATOM_ROWS, SWIZZLE_BYTES, OperandTile

if TYPE_CHECKING:
    from tilekit.assembly.shared import SharedArray
    from tilekit.drivers.warp_plan import WarpPlan
    from tilekit.kernels.matmul.cdna.config import CdnaConfig
    from tilekit.tile_pipeline.ring import TilePipeline
    from tilekit.tiles.cluster import Cluster

SCHEDULES_FIRST = False
COPIES_GROUPS = True

OUTPUTS = (BF16, F16, F32)


def check(spec: MatmulSpec, target: Target) -> None:
    """Raise `ArgumentError` for types that these components do not multiply or store, and components of TMA's."""
    if spec.a_dtype == F32:
        own = "8-bit floats of FNUZ" if target.has("fnuz_floats") else "e4m3/e5m2 by e4m3/e5m2"
        raise ArgumentError(
            f"a is {spec.a_dtype} and b is {spec.b_dtype}: a matmul for {target.name} multiplies bf16 by bf16, f16 by "
            f"f16, s8 by s8, or {own}; nearest: both bf16",
            code="TK-MM-001",
        )
    if spec.out_dtype not in OUTPUTS and not spec.whole:
        raise ArgumentError(
            f"out_dtype={spec.out_dtype}: a matmul for {target.name} writes bf16, f16 or f32; nearest: bf16",
            code="TK-MM-002",
        )
    if spec.promoted:
        raise ArgumentError(
            f"accumulation='promoted' on {target.name}: it makes up for tensor cores that keep 13 bits of a sum of "
            f"8-bit products; {target.name} adds in f32, nearest: 'fast'",
            code="TK-MM-027",
        )
    for name, major in zip("ab", (spec.a_major, spec.b_major), strict=True):
        if major != "k" and f"loader_{name}" in spec.components.names:
            raise ArgumentError(
                f"components has a loader of {name}, along whose rows K does not lie: {target.name} turns such an "
                f"operand on its way, which is the family's own; pass {name} with K contiguous",
                code="TK-MM-028",
            )


def load(matrix: Matrix) -> Load:
    """As the copy engine's, with the length of its rows beside addresses and pitches: a lane's bytes come whole."""
    length = matrix.extents[0] * matrix.dtype.bytes
    if length % TMA_ALIGNMENT == 0:
        return matrix.load
    width = next(width for width in WIDTHS if length % width == 0)
    return width if matrix.load == "tma" else min(width, matrix.load)


def past_registers(spec: MatmulSpec, config: CdnaConfig, name: str, target: Target) -> bool:
    """Whether operand `name` is loaded to LDS past registers.

    Rows lie along K, of whole loads, at multiples of them; and the waves that load fill whole swizzles at once.
    """
    major, width = (spec.a_major, spec.a_load) if name == "a" else (spec.b_major, spec.b_load)
    lane = BufferToLdsLoader.lane_bytes_of(target)
    lines = config.loading * target.lanes * lane // SWIZZLE_BYTES
    return major == "k" and (width == "tma" or width >= lane) and lines % ATOM_ROWS == 0


def loader_kind(
    spec: MatmulSpec, config: CdnaConfig, name: str, target: Target
) -> type[BufferToLdsLoader | BufferLoader | BufferAcrossLoader]:
    """What loads operand `name`, as the caller has them."""
    if (spec.a_major if name == "a" else spec.b_major) != "k":
        return BufferAcrossLoader
    through = config.together and config.resolved_stages(target, spec) == 1
    return BufferToLdsLoader if past_registers(spec, config, name, target) and not through else BufferLoader


def loaders(
    w: Writer, spec: MatmulSpec, config: CdnaConfig, plan: WarpPlan, cluster: Cluster, stages: int
) -> tuple[OperandLoader, OperandLoader]:
    """Loads to LDS where rows allow, else through registers."""
    names = "ba" if config.swap_ab else "ab"
    a, b = (_loader(w, spec, config, plan, tile, name) for name, tile in zip(names, config.operands(spec), strict=True))
    return a, b


def _loader(
    w: Writer, spec: MatmulSpec, config: CdnaConfig, plan: WarpPlan, tile: OperandTile, name: str
) -> OperandLoader:
    how: dict[str, Any] = {"role": plan.get("load") or plan["mma"], "batched": spec.indexed}
    return spec.components.loader(name, w, tile, **how) or loader_kind(spec, config, name, w.target)(w, tile, **how)


def sync(
    w: Writer, spec: MatmulSpec, config: CdnaConfig, plan: WarpPlan, cluster: Cluster, stages: int
) -> SyncStrategy:
    """Counters in LDS."""
    return config.sync(w, RING, stages=stages, producers=(plan["load"],), consumers=(plan["mma"],))


def accumulators(
    w: Writer,
    op: Mfma,
    spec: MatmulSpec,
    config: CdnaConfig,
    plan: WarpPlan,
    cluster: Cluster,
    tiles: dict[str, SharedArray],
    inputs: TilePipeline | None,
) -> Accumulators:
    """Registers of the waves that multiply."""
    return RegisterAccumulators(op, whole=config.keeps_whole(spec))
