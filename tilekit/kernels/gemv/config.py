"""How a gemv kernel computes: how K is divided, and how much of the weights is on its way at once."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked, check_fields
from tilekit.assembly.shared import SharedDeclaration, size_of
from tilekit.errors import ConfigError
from tilekit.kernels.gemv.rules import REGISTERS, RULES
from tilekit.kernels.gemv.spec import VECTOR, GemvSpec
from tilekit.kernels.gemv.sums import WarpSums
from tilekit.kernels.gemv.weights import shape_of
from tilekit.targets import Target


@call_checked
@dataclass(frozen=True)
class GemvConfig:
    """One way to stream the weights.

    A CTA computes a tile of columns of D; its warps, and the CTAs of its cluster, divide K. A warp's *slot* holds one
    k-block of the tile in registers: 128 bytes along K by 16 columns a group where K is contiguous, 32 rows of K by 64
    columns a group where N is.

    Attributes
    ----------
    groups
        Column groups of a tile.
    depth
        Slots of a warp: k-blocks it has on their way. Loads narrower than 16 bytes have room for one slot of one group.
    warps
        Warps of a CTA, which take k-blocks in turn.
    cluster
        CTAs that divide K, for few columns.
    ctas_per_sm
        CTAs of the persistent grid on each SM, of at most 512 threads together. What they leave free of that, the next
        kernel of the stream uses to start early.
    prefetch
        Steps of the whole CTA (`warps` times `depth` k-blocks) that are brought into L2 while the kernel before this
        one ends; only for loads of 16 bytes.
    l2_bytes
        What L2 fetches around a load: 128 or 256. With 256 a long kernel reaches 3.98 TB/s, with 128 4.40 (H200, 1 x
        57344 x 8192, two CTAs an SM).
    overlap
        Steps before its end at which a CTA lets the next kernel of the stream start.
    """

    groups: int = 1
    depth: int = 2
    warps: int = 8
    cluster: int = 1
    ctas_per_sm: int = 2
    prefetch: int = 1
    l2_bytes: int = 128
    overlap: int = 3

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * self.warps

    @property
    def units(self) -> int:
        """Warps that divide K."""
        return self.warps * self.cluster

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of one group of matrix instructions: what the emulator's estimate counts."""
        return 8, 16 * self.groups

    def columns(self, spec: GemvSpec) -> int:
        """Columns of D that a CTA computes."""
        return shape_of(spec).columns * self.groups

    def k_step(self, spec: GemvSpec) -> int:
        """Elements of K that a CTA reads in a step."""
        return shape_of(spec).k_block * self.depth * self.warps

    def bytes_in_flight(self, spec: GemvSpec) -> int:
        """Bytes of weights that a CTA has on their way; per SM, `ctas_per_sm` times as many.

        DRAM of 4.6 TB/s with 0.8 us of latency needs 28 KB an SM (Little's law) before any of it queues.
        """
        return shape_of(spec).bytes * self.groups * self.depth * self.warps

    def loads(self, spec: GemvSpec) -> int:
        """Loads of 16 bytes that a thread has on their way."""
        return shape_of(spec).bytes // (32 * VECTOR) * self.groups * self.depth

    def resident(self, spec: GemvSpec, target: Target) -> int:
        """CTAs that an SM is sure to hold: what the register count of a thread is bounded for."""
        narrow = min(spec.a_access, spec.b_access) < VECTOR
        return 1 if narrow else max(1, target.registers // (REGISTERS * self.threads))

    def declared(self, spec: GemvSpec) -> tuple[SharedDeclaration, ...]:
        """Shared memory that the components declare: every warp's sums, twice."""
        return WarpSums.declared(units=self.units, columns=self.columns(spec), tokens=spec.tokens)

    def shared_bytes(self, spec: GemvSpec) -> int:
        """Shared memory of a kernel."""
        return size_of(self.declared(spec))

    def problems(self, target: Target, spec: GemvSpec) -> list[str]:
        """Every rule this config violates, each with the nearest legal value; empty if the kernel can be built."""
        return RULES.problems(self, target, spec)

    def legal(self, target: Target, spec: GemvSpec) -> bool:
        """Whether `problems` is empty, without looking for the nearest values."""
        return not RULES.violations(self, target, spec)

    def check(self, target: Target, spec: GemvSpec) -> None:
        """Raise `ConfigError` listing every problem, if there is one."""
        found = self.problems(target, spec)
        if found:
            raise ConfigError(found, what=f"{self} on {target.name}", code="TK-GV-005")

    def __str__(self) -> str:
        return (
            f"{self.groups} groups, depth {self.depth}, {self.warps} warps, cluster {self.cluster}, "
            f"{self.ctas_per_sm} CTAs an SM, prefetch {self.prefetch}, L2 {self.l2_bytes} B, overlap {self.overlap}"
        )
