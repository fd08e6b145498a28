"""What a kernel with scales of blocks computes: a matmul whose sums of 128 products are scaled, then added."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, Literal

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import E4M3, DType
from tilekit.errors import ArgumentError
from tilekit.kernels.blockwise.scales import BLOCK, BlockScales, coarse_tile, fine_tile, loader
from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.payload_loader import TileLoader
from tilekit.tile_pipeline.payload import StageTile

ScaleLoad = Literal["tma", "direct"]


@dataclass(frozen=True)
class BlockwiseSpec(MatmulSpec):
    """A matmul of 8-bit operands with a scale for 1x128 elements of A, and one for 128x128 of B.

    Attributes
    ----------
    scale_load
        ``"tma"``: A's scales come into the stages, of rows that lie behind each other; ``"direct"``: threads read them
        from wherever they are.
    scale_b_load
        The same of B's, of which those that go along with K lie behind each other.
    """

    a_dtype: DType = E4M3
    b_dtype: DType = E4M3
    accumulation: Accumulation = "promoted"
    scale_load: ScaleLoad = "direct"
    scale_b_load: ScaleLoad = "direct"

    @property
    def own_sums(self) -> bool:
        """Always: sums of k-blocks are scaled."""
        return True

    def check(self, target: Target) -> None:
        """Raise `ArgumentError` for what the components of `target` do not compute."""
        super().check(target)
        ways = ("direct",) if target.has("tensor_memory") else ("tma", "direct")
        facts: dict[str, tuple[Any, ...]] = {"scale_load": ways, "scale_b_load": ways}
        facts |= {"batched": (False,), "accumulation": ("promoted",)}
        for name, legal in facts.items():
            if getattr(self, name) not in legal:
                words = f"on {target.name} {' or '.join(map(str, legal))}"
                raise ArgumentError.of(name, getattr(self, name), legal=words, nearest=legal[-1], code="TK-BLOCK-004")

    def further_tiles(self, config: Any) -> tuple[StageTile, ...]:
        """Scales, where they come into the stages."""
        rows, columns = config.tile[:: -1 if config.swap_ab else 1]
        fine = fine_tile(rows, shifted=self.groups == "ends")  # tiles of such groups begin at any row
        both = (fine, self.scale_load), (coarse_tile(columns), self.scale_b_load)
        return tuple(tile for tile, load in both if load == "tma")

    def further_loaders(self, w: Writer, op: Any, payload: Any, *, swapped: bool, role: Role) -> tuple[TileLoader, ...]:
        """Their loaders."""
        return tuple(loader(w, tile, swapped=swapped, groups=self.groups) for tile in payload.tiles[2:])

    def factor_registers(self, columns: int, *, swapped: bool) -> int:
        """Swapped, a scale for each of a thread's columns, twice where they are read ahead."""
        return columns // 4 * (1 if self.scale_load == "tma" else 2) if swapped else 0

    def factors(self, columns: int, *, swapped: bool) -> int:
        """Runs of columns that may be of one block or the next; swapped, pairs of columns, or each by a read."""
        if swapped:
            return columns // 8 if self.scale_load == "tma" else 3 * columns // 4
        return columns // gcd(columns, BLOCK)

    def block_factors(self, w: Writer, op: Any, swapped: bool, tiles: dict[str, SharedArray]) -> BlockScales:
        """Scales of A's rows times those of B's columns."""
        return BlockScales(w, op.layout, swapped=swapped, staged=tiles, groups=self.groups)

    @property
    def further_words(self) -> tuple[str, ...]:
        """What a stage holds beside A and B, for `explain`."""
        staged = [of for of, load in (("A's", self.scale_load), ("B's", self.scale_b_load)) if load == "tma"]
        return (f"Payload with {' and '.join(staged)} scales beside A and B",) if staged else ()

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile, for example ``blockwise_e4m3_e4m3_bf16_kk_scales_tma``."""
        ways = self.scale_load + ("_tma" if self.scale_b_load == "tma" else "")
        return super().name.replace("matmul", "blockwise", 1).replace("_promoted", f"_scales_{ways}", 1)
