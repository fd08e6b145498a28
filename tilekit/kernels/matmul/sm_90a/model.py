"""The model of Hopper: what limits each of the configs that are tried."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.heuristics.picker import Array, Estimates
from tilekit.kernels.matmul.estimates import Estimate, Grids
from tilekit.kernels.matmul.sm_90a.candidates import (
    DECISIVE,
    FOR_GROUPS,
    TUNED,
    candidates,
    default,
    plain,
    tuning_candidates,
    variants,
)
from tilekit.kernels.matmul.sm_90a.collected import HopperConfigs, collect, resident
from tilekit.kernels.matmul.sm_90a.correction import corrected
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A
from tilekit.tile_op.scaled_accumulators import OVERLAPPED_REGISTERS
from tilekit.tile_op.wgmma import ATOM_ROWS
from tilekit.tiles.operand import SWIZZLE_BYTES

__all__ = [
    "DECISIVE",
    "FOR_GROUPS",
    "TUNED",
    "candidates",
    "collect",
    "default",
    "estimates",
    "plain",
    "resident",
    "tuning_candidates",
    "variants",
]

# Most of the constants below were fitted to 3452 times of 105 cases on an H200 (2026-11); they are kept in
# benchmarks/results, and `python -m benchmarks.model` says how far the model's choices are from the quickest.

L2_BYTES_PER_CLOCK = 9400
"""What the whole chip's L2 feeds to shared memory where all SMs ask."""

CROWDING = 0.25
"""How an SM's part of that falls with the SMs that ask: the power of their share."""

OFF_SECTOR_COST = 1.3
"""How many times as long a k-block takes where it does not begin at a 32-byte sector of a line either."""

COUPLED_COST = 1.005
"""How many times as long k-blocks take for each doubling of the CTAs that share the smaller operand.

They wait for each other's stages, each of which waits for its own part of the larger operand, which comes from DRAM.
"""

CLUSTER_COST = 1.03
"""How many times as long k-blocks take in a cluster, whose CTAs fill each other's stages."""

EIGHT_COST = 1.1
"""The same again in clusters of eight, whose two sides wait for each other."""

EIGHT_CLOCKS = 1500
"""What a tile of these takes longer; as a factor alone they look 15 % too slow where K is long, and 4 % else."""

SQUARE_COST = 1.1
"""The same again in clusters of two by two where there is more than one wave: of 16 such 9 took 6 to 37 % longer."""

THIRD_COST = 1.01
"""How many times as long they take where three warpgroups multiply: a stage is free when the slowest is done."""

GROUPED_THIRD_COST = 1.03
"""The same where rows come in groups: with it and `LARGE_COST` 22 swept sets lose 2.6 % of their best for 3.7 %."""

GROUPED_APART_COST = 1.045
"""How many times as long tiles of groups take whose stores nothing hides, from a third round on: cooperative ones.

128x128 in turn and in pairs was the quickest in 10 of 19 sets of more than 4,000 rows, within 2 % in 13 (H200).
"""

GROUPED_ALONE_COST = 1.03
"""The same of tiles of 128 rows and more in no cluster: 128x128 in turn takes 0 to 34 % longer than in pairs there."""

GROUPED_TALL_COST = 1.05
"""How many times as long DRAM takes to fill these: a ring of them holds fewer k-blocks of the weights.

Groups of 12, 23, 146 and 23 rows by 15360 x 5120 take 197 us in 128x160 and 175 in 64x176 (H200).
"""

LONE_WIDTH = 152
"""Columns of one warpgroup's tile from which on its times in a cluster spread by 9 %, where others' do by 6 %.

Of products with MN-major operands; the others' spread by 6 % as well.
"""

LONE_COST = 1.05
"""How many times as long k-blocks of those are said to take: the price of that risk, not their mean."""

LARGE_TILE = 128 * 176
"""Elements of a tile from which on k-blocks take longer than what limits them says."""

LARGE_COST = 0.017
"""By how much, for each 128x64 elements more."""

COLD_COST = 0.43
"""How much longer bytes take that come from DRAM the while, as those of the larger operand do."""

SHARED_BYTES_PER_CLOCK = 128
"""What one SM's shared memory moves."""

LAUNCH_CLOCKS = 2336
"""From launch to launch in a stream, without any k-block: 1.9 us."""

EARLY_CLOCKS = 1100
"""What a launch takes less where the one before it leaves it as many SMs as it needs: its CTAs are ready by then."""

ONE_BUFFER_CLOCKS = 400
"""What a subtile waits for the one before it to be stored where stores have one buffer."""

CLUSTER_CLOCKS = 1811
"""What a cluster adds: its launch, and two CTAs that wait for each other while the ring fills."""

GROUPED_CLUSTER_CLOCKS = 900
"""The same where rows come in groups: choices for 106 sets lose 3.6 % of their best, and 4.2 % with the other."""

STORE_BYTES_PER_CLOCK = 7
"""How fast an SM's accumulators leave where another tile follows."""

IMAGE_STORE_BYTES_PER_CLOCK = 12
"""The same of convolutions, whose loads wait for the copy engine and not for L2 (seven layers, H200)."""

NARROW_STORE_BYTES_PER_CLOCK = 16
"""The same where rows of K are narrower than a line, so that they wait longer still (ten layers, H200)."""

NARROW_ROW_CLOCKS = 30
"""What a k-block takes for each row of the second operand that a CTA asks for by itself, where rows are so narrow.

All CTAs ask for the same few lines at once: of 16x128x128x8 images 32 1x1 filters take 23.0 us, and 13.5 in pairs that
share them; 24 channels to 144 18.4 and 14.1 (H200).
"""

RESIDUAL_CLOCKS = 1200
"""What a tile's epilogue waits for each time so many subtiles of a residual as can be on their way."""

RESIDUAL_TILE_CLOCKS = 800
"""What it waits for a tile beside (both of ten layers of 64 configs: what is picked loses 0.8 %, without 2.2; H200)."""

TOTALS_CLOCKS = 1900
"""What a tile's epilogue takes longer that makes totals: 128x256 with a bias and relu 2.5 us for 1.3 (traced, H200).

Of these 1.1 us 0.7 are the fence of the count of the tile before.
"""

UPRIGHT_CLOCKS = 130
"""What a subtile of an upright tile takes longer than of one that is turned round, where a bias is a value a row."""

LAST_STORE_BYTES_PER_CLOCK = 19.5
"""How fast they leave where none follows."""

TURN_OVERLAP = 4
"""How well one consumer's stores and the other's instructions hide each other, likewise to `OVERLAP`."""

DIRECT_STORES = 3.9
"""How many times as long threads take that store rows by themselves; those of a transpose take no longer than TMA."""

DRAM_BYTES_PER_CLOCK = 2477
"""What DRAM delivers to the whole chip: 4.85 TB/s, to launches without a beginning and an end."""

LAST_WAVE = 0.3349
"""Of the last of several waves, the part in which DRAM has little to do."""

MIXTURE = 3.0
"""The same for the tensor core's time and L2's, k-block by k-block."""

SHARED_PART = 1.09
"""Of shared memory's time, what instructions that read it wait for."""

OVERLAP = 5.348
"""How well DRAM's time and the SMs' hide each other: the exponent of a mean of the two, infinite if perfectly."""

HELD = 0.9967
"""Stages of a ring that are read, on average, and not filled."""

IDLE_COST = 0.4664
"""How DRAM's rate falls with the SMs that ask for nothing: the power of their share."""

SLICE_CLOCKS = 125.9
"""The same for each 128 bytes of K: the latency of their instructions."""

OUTSIDE_CLOCKS = 7.515
"""What 128 bytes of a row outside of an operand take the copy engine longer than those inside."""

RAGGED_CLOCKS = 6.375
"""The same of a row that begins inside and ends outside."""

ASKED_CLOCKS = 1.093
"""Between two answers of L2 about the same line."""

REPEATED_CLOCKS = 0.14
"""Between two answers about a row that is not made of whole halves of lines, where many ask for the same rows.

100352x40x120 takes 21.7 us in 64x40, whose 132 CTAs read the same 40 rows of 240 bytes with each tile, and 15.4 where
two of them share each row (H200).
"""

WIDE_GROUP_COST = 0.3
"""Time lost by each 64 columns of a tile beyond 192 where rows come in groups, none of which shares its weights."""

SHORT_ROWS_COST = 0.2
"""Time lost by several rows of tiles with fewer rows than an instruction (an assumption, never timed)."""

DRAINED_COST = 1.044
"""How many times as long a k-block takes whose instructions are waited for before the next one's are issued."""

ADDING_CLOCKS = 100
"""From the last instruction of a block of rows to the first of the next, beside an addition each."""

FACTOR_CLOCKS = 12
"""For each factor that a thread chooses or reads, beside them."""

SHARED_A_PART = 0.98
"""How many times as long sums of k-blocks take whose rows of A two CTAs share: 0 to 3 % less in seven cases (H200)."""

GROUPED_SHARED_A_COST = 1.04
"""The same where rows come in groups, of tiles of 128 rows: 128x128 2 to 11 % more than alone in seven sets (H200)."""

UNFILLED_PART = 0.3
"""Of a tile's blocks of rows that no row of its group is in, what is saved where they are not multiplied.

Of 32 groups of 149 to 227 rows an eighth of those of 256x128 tiles: 454 us, 427 without them (H200).
"""

ADDING_MIXTURE = 1.6
"""How well additions hide behind other consumers' instructions: the exponent of a mean of the two."""

ADDED_STORE_BYTES_PER_CLOCK = 24.0
"""How fast sums leave where another tile follows, in kernels that add those of k-blocks."""

ADDED_LATENCY_CLOCKS = 1800
"""From a stage that is free to its bytes, in such kernels, whose k-blocks take longer."""

LATENCY_CLOCKS = 2500
"""From a stage that is free to its first bytes: what a ring of few stages waits for."""

FILL_PART = 0.64
"""Of L2's time for a stage, what it waits for beside until the last byte is there."""

SHARE_CLOCKS = 3287
"""What the last share of a sum waits for the others, which have told that they are kept."""

SHARE_BYTES_PER_CLOCK = 16.08
"""How fast a CTA keeps its share in the workspace, and adds those of others."""

FIXUP_CLOCKS = 3500
"""What a streamed tile's head waits for its other shares."""

FIXUP_BYTES_PER_CLOCK = 20
"""How fast a CTA keeps its share of a streamed tile, and adds those of others."""

EXCHANGE_CLOCKS = 332.8
"""What the CTAs of a cluster wait for each other's shares of a sum."""

EXCHANGE_BYTES_PER_CLOCK = 11.9
"""How fast the CTAs of a cluster send each other their shares of a sum, and add them."""

POWER_SHARE = 0.096
"""At the power limit, time goes with energy to this power, and with clocks at the highest frequency to the rest."""

POWER_CLOCKS = 0.25
"""Tensor-core clocks' worth of energy, a clock and SM, that the power limit allows at the highest frequency."""

FETCH_ENERGY = 8.625e-05
"""Energy of a byte that is read from L2, for one CTA or for a cluster at once, likewise."""

DRAM_ENERGY = 0.0002826
"""Energy of a byte from DRAM, in clocks of every SM's tensor core."""

EIGHT_BIT_ENERGY = 1.453
"""A tensor-core clock's energy with 8-bit operands."""


@dataclass(frozen=True)
class BlockClocks:
    """What a k-block of one CTA needs, of each config.

    Attributes
    ----------
    tensor, shared, l2
        Clocks of the tensor core, of shared memory, and of the SM's part of L2's rate.
    read, fetched, delivered
        Bytes that instructions read from shared memory, that come from L2 (a cluster's share of what it shares), and
        that come into shared memory.
    taken
        Clocks from one k-block to the next.
    """

    tensor: Array
    shared: Array
    l2: Array
    read: Array
    fetched: Array
    delivered: Array
    taken: Array

    @classmethod
    def of(cls, configs: HopperConfigs, spec: MatmulSpec, grids: Grids) -> BlockClocks:
        """Work them out."""
        c = configs
        # m64nN reads 64 rows of A and N of B per 32 bytes of K and runs N / 2 clocks (PTX k16 of 16-bit types; fp8's
        # k32 likewise).
        issues = spec.block_bytes // 32 * c.k_group * -(-c.tile_m // ATOM_ROWS)
        tensor = issues * c.tile_n / 2
        # Each CTA fetches its share of A and B once; multicast delivers the rest without another L2 read. N-major,
        # whole chunks come.
        fetched_m = c.tile_m / c.cluster_n * spec.block_bytes * c.k_group
        fetched_n = c.loaded_n / c.cluster_m * spec.block_bytes * c.k_group
        fetched = fetched_m + fetched_n
        delivered = (c.tile_m + c.loaded_n) * spec.block_bytes * c.k_group
        read = issues * (ATOM_ROWS + c.tile_n) * 32
        shared = (read + delivered + c.copied) / SHARED_BYTES_PER_CLOCK
        # Of the larger operand each line comes from DRAM while those who need it ask for it.
        larger = grids.along_m / np.maximum(grids.along_m + grids.along_n, 1)
        cold_m, cold_n = (COLD_COST * part for part in (larger * grids.read[0], (1 - larger) * grids.read[1]))
        asked = fetched_m * grids.requests[0] * (1 + cold_m) + fetched_n * grids.requests[1] * (1 + cold_n)
        crowd = (np.maximum(grids.active, 1) / SM_90A.multiprocessors) ** CROWDING
        l2 = asked / L2_BYTES_PER_CLOCK * SM_90A.multiprocessors * crowd
        ways = (tensor**MIXTURE + l2**MIXTURE) ** (1 / MIXTURE)
        limit = np.maximum(ways, np.where(c.copies, 1, SHARED_PART) * shared)
        limit = np.where(c.drained, DRAINED_COST, 1) * limit
        latency = ADDED_LATENCY_CLOCKS if spec.own_sums else LATENCY_CLOCKS + FILL_PART * l2
        least = np.maximum(SLICE_CLOCKS * c.k_group, latency / (c.stages - HELD))
        least = np.maximum(least, c.gathered)
        limit = np.where(grids.off_sector[0] | grids.off_sector[1], OFF_SECTOR_COST, 1) * limit
        answers = np.maximum(ASKED_CLOCKS * grids.asked, REPEATED_CLOCKS * grids.repeated)
        taken = np.maximum(np.maximum(limit, least), answers * c.k_group)
        if _narrow(spec):
            second, sharers = np.where(c.swapped, c.tile_m, c.tile_n), np.where(c.swapped, c.cluster_n, c.cluster_m)
            asking = grids.active / SM_90A.multiprocessors
            taken += NARROW_ROW_CLOCKS * second / sharers * c.k_group * asking
        taken += (OUTSIDE_CLOCKS * grids.outside + RAGGED_CLOCKS * grids.ragged) * c.k_group
        if spec.own_sums:  # a warpgroup's blocks of rows and their additions follow each other, unless two overlap
            blocks = np.where(c.accumulators + c.tile_n <= OVERLAPPED_REGISTERS, 1, 2 * c.accumulators / c.tile_n)
            alone = tensor / c.consumers_per_tile
            alone = alone + blocks * (c.tile_n / 2 + ADDING_CLOCKS + FACTOR_CLOCKS * c.factors)
            taken = (taken**ADDING_MIXTURE + alone**ADDING_MIXTURE) ** (1 / ADDING_MIXTURE)
            skipped = 1 - grids.filled(c.tile_m * c.cluster_m, ATOM_ROWS)
            taken *= 1 - np.where(2 * c.accumulators > c.tile_n, UNFILLED_PART, 0) * skipped
        elif spec.promoted:  # an addition each, with no other consumer's instructions to hide it (no figure)
            taken += np.where(c.consumers_per_tile == 1, c.accumulators, 0)
        return cls(tensor, shared, l2, read, fetched, delivered, taken)


def estimates(configs: HopperConfigs, spec: MatmulSpec, grids: Grids) -> Estimates:
    """Model the time of one launch of each, in clocks of the highest frequency, as measured times correct it."""
    c, block = configs, BlockClocks.of(configs, spec, grids)
    clocks, total = modelled(configs, spec, grids, block)
    total = corrected(total, configs, spec, grids, block, clocks)
    rate = DRAM_BYTES_PER_CLOCK * (np.maximum(grids.active, 1) / SM_90A.multiprocessors) ** IDLE_COST
    dram = grids.bytes / rate / np.maximum(grids.waves, 1)
    columns = (grids.waves, grids.tiles, block.tensor, block.shared, block.l2, dram, total / clocks, total)
    return Estimates(total, lambda i: Estimate(c.each[i], *(column[i].item() for column in columns)))


def modelled(configs: HopperConfigs, spec: MatmulSpec, grids: Grids, block: BlockClocks) -> tuple[Array, Array]:
    """The time of one launch of each by the model alone: without a limit of power, and with it.

    There are waves of tiles, each limited by its slowest resource, and all of them by power.
    """
    c = configs
    area = c.tile_m * c.tile_n
    output = area * spec.out_dtype.bytes / c.cluster_k * _store_cost(c, spec)
    stores = output / _store_rate(spec) + _epilogue_waits(c, spec)
    peers = np.where(grids.along_n < grids.along_m, c.cluster_m, c.cluster_n)
    wave = grids.k_blocks * block.taken * COUPLED_COST ** np.log2(peers)
    swept = not (spec.own_sums or spec.own_loaders)  # nothing of this was seen with these
    if swept and not spec.groups:
        ctas = c.cluster_m * c.cluster_n
        wave = wave * np.where(ctas > 1, CLUSTER_COST, 1) * np.where(ctas >= 8, EIGHT_COST, 1)
        wave = wave + EIGHT_CLOCKS * (ctas >= 8)
        square = (c.cluster_m == 2) & (c.cluster_n == 2) & (grids.waves > 1)
        wave = wave * np.where(square, SQUARE_COST, 1)
        if "mn" in (spec.a_major, spec.b_major):
            lone = (c.tile_m <= ATOM_ROWS) & (c.tile_n >= LONE_WIDTH) & (ctas > 1)
            wave = wave * np.where(lone, LONE_COST, 1)
    if swept:
        wave = wave * np.where(c.consumers_per_tile >= 3, GROUPED_THIRD_COST if spec.groups else THIRD_COST, 1)
        wave = wave * (1 + LARGE_COST * np.maximum(area - LARGE_TILE, 0) / (128 * 64))
    if swept and spec.groups:
        many = grids.rounds > 2
        wave = wave * np.where(many & ~c.pingpong, GROUPED_APART_COST, 1)
        wave = wave * np.where(many & (c.size == 1) & (c.tile_m > ATOM_ROWS), GROUPED_ALONE_COST, 1)
    if spec.own_sums:
        flat = (c.tile_m == 2 * ATOM_ROWS) & bool(spec.groups)
        wave = wave * np.where(c.cluster_n > 1, np.where(flat, GROUPED_SHARED_A_COST, SHARED_A_PART), 1)
    in_turn = (wave**TURN_OVERLAP + stores**TURN_OVERLAP) ** (1 / TURN_OVERLAP)
    wave = np.where(c.pingpong, in_turn, wave)
    ready = np.where(c.gathered > block.tensor, grids.k_blocks, np.minimum(grids.k_blocks, c.stages))
    waited = ready * np.maximum(block.taken - block.tensor, 0)  # the ring fills while a tile is stored
    between = np.maximum(grids.waves - 1, 0) * np.where(c.pingpong, 0, np.maximum(stores - waited, 0))
    rate = DRAM_BYTES_PER_CLOCK * (np.maximum(grids.active, 1) / SM_90A.multiprocessors) ** IDLE_COST
    alone = np.where(grids.waves > 1, LAST_WAVE * wave, 0)
    computed, streamed = grids.rounds * wave, grids.bytes / rate + alone
    if spec.groups:
        streamed = streamed * np.where(c.tile_m > ATOM_ROWS, GROUPED_TALL_COST, 1)
    waves = (computed**OVERLAP + streamed**OVERLAP) ** (1 / OVERLAP)
    turns = 1 + c.shares // 2  # a share is kept, and the others are added by twos
    shares = np.where(c.shares > 1, SHARE_CLOCKS + turns * 4 * area / SHARE_BYTES_PER_CLOCK, 0)
    sent = 4 * area / c.consumers_per_tile  # by each warpgroup
    exchange = np.where(c.cluster_k > 1, EXCHANGE_CLOCKS + sent / EXCHANGE_BYTES_PER_CLOCK, 0)
    # A CTA keeps its share of one tile, and adds those of others to the head of another.
    fixup = np.where(grids.kept > 0, FIXUP_CLOCKS + (1 + grids.kept) * 4 * area / FIXUP_BYTES_PER_CLOCK, 0)
    clocks = waves + fixup + (shares + exchange) * grids.waves + between
    clocks += np.where(c.buffers == 1, ONE_BUFFER_CLOCKS * c.pieces * grids.waves, 0)
    early = np.where(grids.active * 2 <= SM_90A.multiprocessors, EARLY_CLOCKS, 0)
    joined = GROUPED_CLUSTER_CLOCKS if spec.groups else CLUSTER_CLOCKS
    clocks += LAUNCH_CLOCKS - early + joined * (c.size > 1) + output / LAST_STORE_BYTES_PER_CLOCK
    if spec.groups is not None:
        clocks *= 1 + WIDE_GROUP_COST * np.maximum(c.tile_n - 192, 0) / 64
    clocks *= np.where((c.tile_m < ATOM_ROWS) & (grids.rows > 1), 1 + SHORT_ROWS_COST, 1)
    return clocks, np.maximum(clocks, _at_the_limit(clocks, _energy(block, spec, grids)))


def _narrow(spec: MatmulSpec) -> bool:
    """Whether rows of the second operand's slices of K are narrower than a line."""
    return spec.own_loaders and spec.swizzles(swapped=False)[1] < SWIZZLE_BYTES


def _store_rate(spec: MatmulSpec) -> float:
    """Bytes that an SM's accumulators leave at, a clock, where another tile follows."""
    if spec.own_sums:
        return ADDED_STORE_BYTES_PER_CLOCK
    if _narrow(spec):
        return NARROW_STORE_BYTES_PER_CLOCK
    return IMAGE_STORE_BYTES_PER_CLOCK if spec.own_loaders else STORE_BYTES_PER_CLOCK


def _epilogue_waits(configs: HopperConfigs, spec: MatmulSpec) -> Array:
    """Clocks that a tile's epilogue waits for a residual, for totals, and for values of columns, such as a bias."""
    c, clocks = configs, np.zeros(len(configs.each))
    if spec.loads_residual:
        clocks += RESIDUAL_CLOCKS * c.pieces / c.buffers + RESIDUAL_TILE_CLOCKS
    if isinstance(spec.functions, WrittenSpec) and spec.functions.reduces:
        clocks += TOTALS_CLOCKS
    if spec.functions.loads and spec.store == "tma":
        clocks += np.where(c.swapped, 0, UPRIGHT_CLOCKS * c.pieces)
    return clocks


def _store_cost(configs: HopperConfigs, spec: MatmulSpec) -> Array:
    """How many times as long stores take as those of the copy engine."""
    return np.where(configs.swapped, 1.0, DIRECT_STORES if spec.store == "direct" else 1.0)


def _energy(block: BlockClocks, spec: MatmulSpec, grids: Grids) -> Array:
    """Energy of a launch, in clocks of every SM's tensor core."""
    multiplied = block.tensor * (EIGHT_BIT_ENERGY if spec.a_dtype.bits == 8 else 1)
    moved = FETCH_ENERGY * block.fetched
    spent = grids.tiles * grids.k_blocks * (multiplied + moved)
    return np.asarray(spent / SM_90A.multiprocessors + DRAM_ENERGY * grids.bytes)


def _at_the_limit(clocks: Array, energy: Array) -> Array:
    """What `clocks` become where that much energy would be spent faster than the power limit allows.

    The chip then runs at a lower frequency and voltage, at which an operation takes less energy.
    """
    return np.asarray((energy / POWER_CLOCKS) ** POWER_SHARE * clocks ** (1 - POWER_SHARE))
