"""How an attention kernel computes on sm_100a, and which choices are best for a spec."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilekit.annotations import call_checked
from tilekit.assembly.writer import MAX_PROFILE
from tilekit.errors import ConfigError
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target

ROWS = 128
"""Queries of a tile in tensor memory: its lanes."""

MOST_KEYS = 128
"""Of a block: a thread has a row of scores in registers."""

SMALL_BYTES = 3072
"""Room for barriers and rows' pairs, ahead of the tiles."""


@call_checked
@dataclass(frozen=True)
class BlackwellAttentionConfig:
    """The choices of an attention kernel on sm_100a.

    Attributes
    ----------
    tiles
        Of 128 queries, which a CTA has in turn: 1 or 2.
    keys
        Of a block: a multiple of 16, up to 128.
    stages
        Blocks of keys, and as many of values, in shared memory.
    slack
        By how many powers of 2 weights may exceed 1 before sums are rescaled; 0 to rescale at every new maximum.
    polynomial
        Of how many exponentials one is computed by multiplications; 0 for none.
    profile_tiles
        Tiles of a CTA whose times the kernel notes for `tilekit trace`; 0 for none, which costs nothing.
    """

    tiles: int = 2
    keys: int = 128
    stages: int = 2
    slack: int = 8
    polynomial: int = 8
    profile_tiles: int = field(default=0, repr=False)

    @property
    def queries(self) -> int:
        """Of a CTA's tile."""
        return ROWS * self.tiles

    def shared_bytes(self, spec: AttentionSpec) -> int:
        """Shared memory of the tiles."""
        size = spec.dtype.bytes
        rows = self.queries + (ROWS if spec.group else 0)  # of heads in one tile at most so many more are loaded
        tile = size * (rows * spec.head_dim + (0 if spec.group else ROWS * spec.value_dim))
        return tile + self.stages * self.keys * size * (spec.head_dim + spec.value_dim) + SMALL_BYTES

    def columns(self, spec: AttentionSpec) -> int:
        """Columns of tensor memory: scores and sums."""
        return self.tiles * (self.keys + spec.value_dim)

    def check(self, spec: AttentionSpec, target: Target) -> None:
        """Check the choices.

        Raises
        ------
        ConfigError
            Listing every rule that they violate.
        """
        problems = []
        if self.tiles not in (1, 2):
            problems.append(f"tiles={self.tiles}; legal: 1, 2; nearest: {min(2, max(1, self.tiles))}")
        if not 16 <= self.keys <= MOST_KEYS or self.keys % 16:
            nearest = min(MOST_KEYS, max(16, round(self.keys / 16) * 16))
            problems.append(f"keys={self.keys}; legal: multiples of 16 from 16 to {MOST_KEYS}; nearest: {nearest}")
        if spec.group and self.tiles != 1:
            problems.append(f"tiles={self.tiles} for heads in one tile; legal: 1; nearest: 1")
        if not 0 <= self.slack <= 8:
            problems.append(f"slack={self.slack}; legal: 0 to 8; nearest: {min(8, max(0, self.slack))}")
        if self.polynomial < 0:
            problems.append(f"polynomial={self.polynomial}; legal: from 0 on; nearest: 0")
        if not 0 <= self.profile_tiles <= MAX_PROFILE:
            nearest = min(MAX_PROFILE, max(0, self.profile_tiles))
            problems.append(f"profile_tiles={self.profile_tiles}; legal: 0 to {MAX_PROFILE}; nearest: {nearest}")
        if self.stages < 1:
            problems.append(f"stages={self.stages}; legal: from 1 on; nearest: 1")
        if not problems:
            columns, taken = self.columns(spec), self.shared_bytes(spec)
            if columns > target.tensor_columns:
                most = (target.tensor_columns // self.tiles - spec.value_dim) // 16 * 16
                way = f"keys={most}" if most >= 16 else "tiles=1"
                problems.append(
                    f"scores and sums of {self.tiles} tiles are {columns} columns of tensor memory, of which there are "
                    f"{target.tensor_columns}; nearest: {way}"
                )
            if taken > target.shared_bytes:
                stage = self.keys * spec.dtype.bytes * (spec.head_dim + spec.value_dim)
                fits = max(1, self.stages - -(-(taken - target.shared_bytes) // stage))
                problems.append(
                    f"shared memory is {taken} bytes, {taken - target.shared_bytes} over {target.shared_bytes}; "
                    f"nearest: stages={fits}"
                )
        if problems:
            raise ConfigError(problems, what=f"{spec.name} on {target.name}", code="TK-ATT-006")

    def legal(self, target: Target, spec: AttentionSpec) -> bool:
        """Whether a kernel can be built with these choices."""
        try:
            self.check(spec, target)
        except ConfigError:
            return False
        return True


def default_config(spec: AttentionSpec, target: Target, queries: int) -> BlackwellAttentionConfig:
    """The config for a spec and so many queries: with two stages if they fit, the most queries, then the most keys."""
    tiles = (1,) if spec.group or queries <= ROWS else (2, 1)
    # Of wider heads the tensor core takes longer than MUFU does (`model.block_cycles`).
    polynomial = BlackwellAttentionConfig.polynomial if max(spec.head_dim, spec.value_dim) <= 128 else 0
    made = [
        BlackwellAttentionConfig(number, keys, stages, polynomial=polynomial)
        for most in ((6, 5, 4, 3, 2), (1,))
        for number in tiles
        for keys in (128, 96, 64, 48, 32)
        for stages in most
    ]
    return next(
        config
        for config in made
        if config.columns(spec) <= target.tensor_columns and config.shared_bytes(spec) <= target.shared_bytes
    )
