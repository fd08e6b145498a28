"""What a kernel with scales of blocks computes: a matmul whose sums of 128 products are scaled, then added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import E4M3, DType
from tilekit.errors import ArgumentError
from tilekit.kernels.blockwise.scales import UNIT, BlockScales, ScaleLoader, ScaleTile
from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.payload_loader import TileLoader
from tilekit.tile_op import scaled_accumulators as scaled
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_op.wgmma import ATOM_ROWS
from tilekit.tile_pipeline.payload import StageTile


@dataclass(frozen=True)
class BlockwiseSpec(MatmulSpec):
    """A matmul of 8-bit operands with a scale for 1x128 elements of A, and one for 128x128 of B.

    Attributes
    ----------
    scale_load
        ``"tma"``: A's scales come into the stages, of rows that lie behind each other; ``"direct"``: threads read them
        from wherever they are.
    """

    a_dtype: DType = E4M3
    b_dtype: DType = E4M3
    accumulation: Accumulation = "promoted"
    scale_load: Literal["tma", "direct"] = "direct"
    own_sums = True

    def check(self, target: Target) -> None:
        """Raise `ArgumentError` for what the components of `target` do not compute."""
        super().check(target)
        ways = ("direct",) if target.has("tensor_memory") else ("tma", "direct")
        facts: dict[str, tuple[Any, ...]] = {"scale_load": ways, "batched": (False,), "accumulation": ("promoted",)}
        for name, legal in facts.items():
            if getattr(self, name) not in legal:
                words = f"on {target.name} {' or '.join(map(str, legal))}"
                raise ArgumentError.of(name, getattr(self, name), legal=words, nearest=legal[-1], code="TK-BLOCK-004")

    def further_tiles(self, config: Any) -> tuple[StageTile, ...]:
        """A's scales, where they come into the stages."""
        shifted = self.groups == "ends"  # tiles of such groups begin at any row
        rows = -(-(config.tile[config.swap_ab] + shifted * (UNIT - 1)) // ATOM_ROWS) * ATOM_ROWS
        return (ScaleTile(rows, 4 * rows, shifted),) if self.scale_load == "tma" else ()

    def further_loaders(self, w: Writer, op: Any, payload: Any, *, swapped: bool, role: Role) -> tuple[TileLoader, ...]:
        """Their loader."""
        return tuple(ScaleLoader(w, t, swapped=swapped, counted=self.groups == "counts") for t in payload.tiles[2:])

    def operation(self, op: Any) -> Any:
        """In tensor memory each k-block has a place of its own."""
        return scaled.BlockTcgen05(op) if isinstance(op, Tcgen05) else op

    def sum_registers(self, accumulators: int, columns: int, *, swapped: bool) -> int:
        """Registers of sums: of k-blocks, 64 rows at once, and swapped a scale for each of a thread's columns."""
        scales = columns // 4 * (1 if self.scale_load == "tma" else 2) if swapped else 0
        taken = scaled.OVERLAPPED_REGISTERS if self.groups else scales  # rows that are stored one by one take theirs
        return accumulators + columns // 2 * scaled.partial_tiles(accumulators, columns // 2, taken) + scales

    def accumulators(
        self, kind: type[Any], w: Writer, op: Any, swapped: bool, tiles: dict[str, SharedArray]
    ) -> Callable[..., Any]:
        """Sums in registers, to which those of k-blocks are added."""
        scales = BlockScales(w, op.layout, swapped=swapped, staged=tiles.get("scale_a"), groups=self.groups)
        made = scaled.ScaledTensorAccumulators if kind is TensorAccumulators else scaled.ScaledAccumulators
        return partial(made, scales)

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        payload = ("Payload with A's scales beside A and B",) if self.scale_load == "tma" else ()
        return *super().swaps, *payload, "accumulators that begin anew with each k-block and add its scaled sums in f32"

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile, for example ``blockwise_e4m3_e4m3_bf16_kk_scales_tma``."""
        return super().name.replace("matmul", "blockwise", 1).replace("_promoted", f"_scales_{self.scale_load}", 1)
