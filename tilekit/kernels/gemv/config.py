"""How a gemv kernel computes: how K is divided, and how much of the weights is on its way at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilekit.annotations import check_fields
from tilekit.errors import ConfigError
from tilekit.kernels.gemv.spec import VECTOR, GemvSpec
from tilekit.kernels.gemv.weights import shape_of
from tilekit.targets import Target

GROUPS = (1, 2, 4)
DEPTHS = range(1, 9)
WARPS = (2, 4, 8, 16)
CTAS_PER_SM = (1, 2, 4, 8)
CLUSTERS = (1, 2, 4, 8)
L2_BYTES = (128, 256)
PREFETCHES = range(9)
OVERLAPS = range(1, 65)

MAX_UNITS = 64
"""Warps of a cluster: what one thread adds up at the end of a tile."""

REGISTERS = 128
"""Registers of a thread, so that an SM holds 512 threads: this kernel's, and the first CTAs of the next one."""

MAX_LOADS = 16
"""Loads of 16 bytes that a thread has on their way: for more, `REGISTERS` have no room (ptxas 13.5.37, as below)."""

NARROW_THREADS = 256
"""Threads of a CTA with loads narrower than 16 bytes, whose addresses and parts take up to 255 registers."""


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

    def shared_bytes(self, spec: GemvSpec) -> int:
        """Shared memory: every warp's sums, twice."""
        return 2 * self.units * self.columns(spec) * spec.tokens * 4

    def problems(self, target: Target, spec: GemvSpec) -> list[str]:
        """Every rule this config violates, each with the nearest legal value; empty if the kernel can be built."""
        return list(_wrong_fields(self)) or list(_over_budget(self, target, spec))

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


def _wrong_fields(config: GemvConfig) -> Iterator[str]:
    legal: dict[str, range | tuple[int, ...]] = {
        "groups": GROUPS,
        "depth": DEPTHS,
        "warps": WARPS,
        "cluster": CLUSTERS,
        "ctas_per_sm": CTAS_PER_SM,
        "prefetch": PREFETCHES,
        "l2_bytes": L2_BYTES,
        "overlap": OVERLAPS,
    }
    for name, values in legal.items():
        given = getattr(config, name)
        if given not in values:
            nearest = min(values, key=lambda value: abs(value - given))
            legal_values = f"{values[0]}..{values[-1]}" if isinstance(values, range) else ", ".join(map(str, values))
            yield f"{name}={given} is none of {legal_values}; nearest: {name}={nearest}"


def _over_budget(config: GemvConfig, target: Target, spec: GemvSpec) -> Iterator[str]:
    if config.units > MAX_UNITS:
        nearest = max(c for c in CLUSTERS if c * config.warps <= MAX_UNITS)
        yield (
            f"{config.warps} warps in {config.cluster} CTAs divide K into {config.units} parts, {MAX_UNITS} at most; "
            f"nearest: cluster={nearest}"
        )
    threads = target.registers // REGISTERS
    if config.ctas_per_sm * config.threads > threads:
        yield (
            f"{config.ctas_per_sm} CTAs an SM of {config.threads} threads: an SM holds {threads} threads of "
            f"{REGISTERS} registers; nearest: ctas_per_sm={threads // config.threads}"
        )
    narrow = min(spec.a_access, spec.b_access) < VECTOR
    if narrow and (config.groups, config.depth) != (1, 1):
        yield (
            f"groups={config.groups}, depth={config.depth}: loads of {min(spec.a_access, spec.b_access)} bytes leave "
            "room for one slot of one group; nearest: groups=1, depth=1"
        )
    elif narrow and config.threads > NARROW_THREADS:
        yield (
            f"warps={config.warps}: loads of {min(spec.a_access, spec.b_access)} bytes leave room for "
            f"{NARROW_THREADS} threads; nearest: warps={NARROW_THREADS // 32}"
        )
    elif config.loads(spec) > MAX_LOADS:
        depth = MAX_LOADS // replace(config, depth=1).loads(spec)
        nearest_field = f"depth={depth}" if depth else f"groups={max(GROUPS[0], config.groups // 2)}"
        yield (
            f"a thread has {config.loads(spec)} loads of 16 bytes on their way, and registers for {MAX_LOADS}; "
            f"nearest: {nearest_field}"
        )
    if config.shared_bytes(spec) > target.shared_bytes:
        fitting = [c for c in CLUSTERS if replace(config, cluster=c).shared_bytes(spec) <= target.shared_bytes]
        yield (
            f"the warps' sums take {config.shared_bytes(spec)} bytes of shared memory, {target.shared_bytes} at most; "
            f"nearest: cluster={max(fitting, default=1)}"
        )
