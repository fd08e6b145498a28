"""How an attention kernel computes: tiles, stages, turns; and which of these is best for a spec."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilekit.annotations import call_checked
from tilekit.assembly.writer import MAX_PROFILE
from tilekit.errors import ConfigError
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target

ROWS = 64
"""Queries of a warpgroup."""

SPARE = 20
"""Registers of a thread beside scores, weights and sums."""

NEEDED = 8
"""Those that are left over while a block's first weights are computed beside its scores."""

BARRIER_BYTES = 1024
"""Room for barriers, behind which tiles begin at a multiple of 1024 bytes."""

SHARE_BYTES = 2048
"""Room for the weights with which shares of keys are added up."""


@call_checked
@dataclass(frozen=True)
class AttentionConfig:
    """The choices of an attention kernel on sm_90a.

    Attributes
    ----------
    warpgroups
        That attend, with 64 queries each: 1 to 4.
    keys
        Of a block: a multiple of 16, up to 256.
    stages
        Blocks of keys, and as many of values, in shared memory.
    turns
        Whether warpgroups take turns at issuing products.
    own_output
        Whether the output has shared memory of its own, or takes that of the tile's queries.
    slack
        By how many powers of 2 a thread's weights of a row, all together, may exceed 1 before the row's maximum is
        looked for and earlier sums are rescaled.
    claims
        Whether CTAs claim tiles of unequal length from a counter, or have theirs from the beginning.
    query_stages
        Tiles of queries in shared memory: with 2, the next tile is loaded while the last blocks of one are worked at.
    ahead
        Whether, with two tiles of queries, the first scores of the next one are multiplied while the sums of one are
        stored.
    profile_tiles
        Tiles of a CTA whose times the kernel notes for `tilekit trace`; 0 for none, which costs nothing.
    """

    warpgroups: int = 2
    keys: int = 128
    stages: int = 2
    turns: bool = True
    own_output: bool = True
    slack: int = 8
    claims: bool = True
    query_stages: int = 1
    ahead: bool = True
    profile_tiles: int = field(default=0, repr=False)

    @property
    def queries(self) -> int:
        """Of a tile."""
        return ROWS * self.warpgroups

    def shared_bytes(self, spec: AttentionSpec) -> int:
        """Shared memory of the tiles."""
        size = spec.dtype.bytes
        rows = self.queries + (64 if spec.group else 0)  # of heads in one tile at most so many more are loaded
        tile = self.query_stages * rows * spec.head_dim
        if self.own_output and not spec.group:
            tile += self.queries * spec.value_dim
        stages = self.stages * self.keys * (spec.head_dim + spec.value_dim)
        return size * (tile + stages) + BARRIER_BYTES + (SHARE_BYTES if spec.group else 0)

    def registers(self, spec: AttentionSpec) -> int:
        """Registers of a thread that hold scores, weights and sums."""
        return self.keys // 2 + self.keys // 4 + spec.value_dim // 2

    def early_weights(self, spec: AttentionSpec) -> int:
        """A thread's first weights that registers hold beside the packed ones of the block before."""
        return max(1, min(self.keys // 4, self.room(spec) - self.registers(spec) - NEEDED))

    def _fitting(self, spec: AttentionSpec, room: int) -> str:
        """What to give up so that the tiles fit, as an option."""
        if replace(self, query_stages=1).shared_bytes(spec) <= room:
            return "query_stages=1"
        stage = 2 * self.keys * (spec.head_dim + spec.value_dim)
        return f"stages={max(1, self.stages - -(-(self.shared_bytes(spec) - room) // stage))}"

    def room(self, spec: AttentionSpec) -> int:
        """Registers of a thread that attends; loads from caches and of packed sequences keep 56 of theirs."""
        return {3: 144 if spec.own_keys else 152, 4: 104}.get(self.warpgroups, 232)

    def check(self, spec: AttentionSpec, target: Target) -> None:
        """Check the choices.

        Raises
        ------
        ConfigError
            Listing every rule that they violate.
        """
        problems = []
        if self.warpgroups not in (1, 2, 3, 4):
            problems.append(f"warpgroups={self.warpgroups}; legal: 1 to 4; nearest: {min(4, max(1, self.warpgroups))}")
        if not 16 <= self.keys <= 256 or self.keys % 16:
            nearest = min(256, max(16, round(self.keys / 16) * 16))
            problems.append(f"keys={self.keys}; legal: multiples of 16 from 16 to 256; nearest: {nearest}")
        if spec.own_keys and self.warpgroups > 3:
            problems.append(
                f"warpgroups={self.warpgroups} and keys of a cache or of packed sequences, whose loads keep 56 "
                "registers of a thread; nearest: warpgroups=3"
            )
        if spec.packed and self.ahead and self.query_stages > 1:
            problems.append(
                "ahead=True and packed sequences, whose tiles do not know of another behind; nearest: ahead=False"
            )
        if spec.group and self.warpgroups != 1:
            problems.append(f"warpgroups={self.warpgroups} for heads in one tile; legal: 1; nearest: 1")
        if not 0 <= self.slack <= 8:
            problems.append(f"slack={self.slack}; legal: 0 to 8; nearest: {min(8, max(0, self.slack))}")
        if not 0 <= self.profile_tiles <= MAX_PROFILE:
            nearest = min(MAX_PROFILE, max(0, self.profile_tiles))
            problems.append(f"profile_tiles={self.profile_tiles}; legal: 0 to {MAX_PROFILE}; nearest: {nearest}")
        if self.stages < 1:
            problems.append(f"stages={self.stages}; legal: from 1 on; nearest: 1")
        if self.query_stages not in (1, 2):
            nearest = min(2, max(1, self.query_stages))
            problems.append(f"query_stages={self.query_stages}; legal: 1 and 2; nearest: {nearest}")
        if self.query_stages > 1 and not self.own_output:
            problems.append("query_stages=2 and an output that takes the memory of queries; nearest: query_stages=1")
        if not problems:
            room = self.room(spec) - SPARE
            if self.registers(spec) > room:
                most = max(16, (room - spec.value_dim // 2) * 4 // 3 // 16 * 16)
                problems.append(
                    f"scores, weights and sums of {self.keys} keys and values of {spec.value_dim} elements are "
                    f"{self.registers(spec)} registers a thread; {self.warpgroups} warpgroups have room for "
                    f"{room}; nearest: keys={most}"
                )
            taken = self.shared_bytes(spec)
            if taken > target.shared_bytes:
                problems.append(
                    f"shared memory is {taken} bytes, {taken - target.shared_bytes} over {target.shared_bytes}; "
                    f"nearest: {self._fitting(spec, target.shared_bytes)}"
                )
            if not self.own_output and spec.value_dim != spec.head_dim:
                problems.append("own_output=False with values of another size than queries; nearest: own_output=True")
        if problems:
            raise ConfigError(problems, what=f"{spec.name} on {target.name}", code="TK-ATT-006")

    def legal(self, target: Target, spec: AttentionSpec) -> bool:
        """Whether a kernel can be built with these choices."""
        try:
            self.check(spec, target)
        except ConfigError:
            return False
        return True


RING = 256
"""Keys in shared memory that keep up with memory where CTAs share a tile's keys."""

SHORT = 128
"""Queries of packed sequences, their mean, below which tiles of three warpgroups have too many rows for nothing."""

LONG = 2048
"""Queries from which on tiles of three warpgroups pay: fewer are too few tiles for all SMs."""


def default_config(spec: AttentionSpec, target: Target, queries: int) -> AttentionConfig:
    """The config that is best for a spec and so many queries, as timed on an H200 (`benchmarks/NOTES.md`)."""
    if spec.group:
        keys = 128 if spec.value_dim <= 128 else 64
        fitting = [
            config
            for stages in range(RING // keys, 0, -1)
            if (config := AttentionConfig(1, keys, stages, turns=False)).shared_bytes(spec) <= target.shared_bytes
        ]
        return fitting[0]
    long = queries >= LONG
    if spec.value_dim <= 64:
        warpgroups, keys = 3 if long or not spec.right else 2, 128
    elif spec.value_dim <= 128:
        warpgroups, keys = (3, 80) if long else (2, 128)
    else:
        warpgroups, keys = 2, 80 if spec.value_dim <= 192 else 64
    small, unbounded = max(spec.head_dim, spec.value_dim) <= 64, not (spec.right or spec.left)
    if small and unbounded and 17 * _rows(queries, 4) <= 16 * _rows(queries, 3):
        warpgroups, keys = 4, 64  # a sixteenth slower for a row, as timed, but fewer rows are for nothing
    if spec.own_keys:
        warpgroups, keys = 2, 128 if spec.value_dim <= 128 else keys
    if spec.packed and small and queries >= SHORT:
        warpgroups, keys = 3, 112
    # A product ahead takes the tensor core from the other warpgroups' last ones: 5 % of long heads of 128, and 1 to 4 %
    # of causal tiles, which are of many lengths; others gain 1 to 2 %.
    ahead = small and unbounded and not spec.packed
    outputs = (True, False) if spec.value_dim == spec.head_dim else (True,)
    made = [
        AttentionConfig(groups, size, stages, own_output=output, query_stages=query_stages, ahead=ahead)
        for groups in (warpgroups, 2)
        for size in (keys, 96, 80, 64)
        for output in outputs
        for stages in ((2, 3) if groups == 3 and not (small and spec.right) else (3, 2))
        for query_stages in ((2, 1) if output else (1,))
        if size <= keys and groups <= warpgroups
    ]
    return next(
        config
        for config in made
        if config.shared_bytes(spec) <= target.shared_bytes and config.registers(spec) + SPARE <= config.room(spec)
    )


def _rows(queries: int, warpgroups: int) -> int:
    """Rows of all tiles of a head."""
    tile = ROWS * warpgroups
    return -(-queries // tile) * tile
