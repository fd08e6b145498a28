"""What limits an attention kernel on sm_100a: cycles of each unit for a block of keys, by published rates."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tilekit.kernels.attention.sm_100a.config import ROWS, BlackwellAttentionConfig
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target

_DEPTH = 16
_SHARED_BYTES = 128
"""That the tensor core reads of shared memory in a cycle; an instruction reads 32 bytes of each row."""

_POWERS = 16
"""Results of MUFU in a cycle of an SM."""

_LANES = 128
"""Instructions of threads that an SM issues in a cycle: four warps' of 32."""

_OWN = 4.5
"""Instructions of a score beside its exponential: a maximum, a product, a sum, half a conversion, and moving it."""

_POLYNOMIAL = 10
"""Instructions of an exponential without MUFU."""

_BEGIN, _END = 1200, 1500
"""Cycles of a tile before the first weights and behind the last: latencies of copies, products and stores."""


@dataclass(frozen=True)
class BlockCycles:
    """Cycles that units of an SM are busy with a block of keys, of all tiles of the CTA.

    Attributes
    ----------
    mma, powers, issue
        The tensor core, MUFU, and the issue of the softmax's instructions.
    tensor_bytes
        Read from and written to tensor memory by threads: scores and weights.
    """

    mma: int
    powers: int
    issue: int
    tensor_bytes: int

    @property
    def bound(self) -> int:
        """Of the unit that is busy longest."""
        return max(self.mma, self.powers, self.issue)


def block_cycles(spec: AttentionSpec, config: BlackwellAttentionConfig) -> BlockCycles:
    """The cycles of a block, where no unit waits for another."""
    scores = ROWS * config.keys
    by_keys = max(config.keys / 2, (ROWS + config.keys) * 2 * _DEPTH / _SHARED_BYTES)
    by_values = max(spec.value_dim / 2, spec.value_dim * 2 * _DEPTH / _SHARED_BYTES)
    mma = spec.head_dim / _DEPTH * by_keys + config.keys / _DEPTH * by_values
    others = 1 / config.polynomial if config.polynomial else 0.0
    issue = scores * (_OWN + (1 - others) + _POLYNOMIAL * others) / _LANES
    return BlockCycles(
        mma=ceil(config.tiles * mma),
        powers=ceil(config.tiles * scores * (1 - others) / _POWERS),
        issue=ceil(config.tiles * issue),
        tensor_bytes=config.tiles * scores * (4 + spec.dtype.bytes),
    )


def predicted_tflops(
    spec: AttentionSpec, config: BlackwellAttentionConfig, target: Target, *, queries: int, keys: int, heads: int
) -> float:
    """TFLOP/s of a call without masks: rounds of tiles over all SMs, each as long as its busiest unit, and its ends."""
    blocks = ceil(keys / config.keys)
    cycles = blocks * block_cycles(spec, config).bound + _BEGIN + _END
    rounds = ceil(ceil(queries / config.queries) * heads / target.multiprocessors)
    flops = 2.0 * queries * keys * (spec.head_dim + spec.value_dim) * heads
    return flops / (rounds * cycles / (target.boost_mhz * 1e6)) / 1e12
