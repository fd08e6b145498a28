"""Defects planted in the components: each is found by the numbers, or by the emulator's checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.blockwise.scaled_products import ScaledProduct
from tilekit.emulator import EmulatorError
from tilekit.errors import FindingWarning
from tilekit.kernels.blockwise.scales import BlockScales
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.matmul.compiled import compiled
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.tile_io.ahead import Ahead
from tilekit.tile_io.staged_values import BoundValueLoader
from tilekit.tile_op.scaled_accumulators import BlockConsumer, BlockProducer, ScaledAccumulators
from tilekit.tile_op.tensor_accumulators import TensorConsumer
from tilekit.tile_pipeline.mbarrier_sync import ArriveConsumer

Plant = Callable[[pytest.MonkeyPatch], None]

TALL = ScaledProduct(
    seed=5, chip="sm_90a", m=200, n=200, k=1280, data="places",
    config=MatmulConfig(tile=(128, 96), cluster=(1, 1), consumers=1, in_flight=0, stages=2),
)  # fmt: skip
WIDE = replace(TALL, config=MatmulConfig(tile=(128, 112), cluster=(1, 1), in_flight=0, stages=2))
DIRECT = replace(WIDE, lie="columns")
SWAPPED = replace(TALL, config=MatmulConfig(tile=(128, 64), cluster=(1, 1), in_flight=0, stages=2, swap_ab=True))
GROUPED = MatmulConfig(tile=(128, 64), cluster=(1, 1), consumers=1, in_flight=0, stages=2)
STAGED = replace(WIDE, k=1536)
ENDS = replace(TALL, groups=(63, 0, 137), config=GROUPED)
COUNTS = replace(TALL, m=70, groups=(70, 3, 20), counted=True, config=GROUPED)
TWO = replace(COUNTS, config=MatmulConfig(tile=(256, 64), cluster=(1, 1), in_flight=0, stages=2))
TENSOR = replace(
    DIRECT, chip="sm_100a", config=BlackwellConfig(tile=(128, 96), cta_group=1, cluster=(1, 1), accumulator_stages=2)
)


def _wrong_row(patch: pytest.MonkeyPatch) -> None:
    at = BoundValueLoader.at

    def beside(self: Any, w: Any, tile: Any) -> Any:
        found = at(self, w, tile)
        self._first = self._first + 4
        return found

    patch.setattr(BoundValueLoader, "at", beside)


def _first_block_only(patch: pytest.MonkeyPatch) -> None:
    load = BoundValueLoader.load
    patch.setattr(BoundValueLoader, "load", lambda self, w, stage, k: load(self, w, stage, k - k))


def _bytes_not_expected(patch: pytest.MonkeyPatch) -> None:
    tiles = BlockwiseSpec.further_tiles

    def short(self: Any, rows: int) -> Any:
        return tuple(replace(tile, values=tile.values - 64) for tile in tiles(self, rows))

    patch.setattr(BlockwiseSpec, "further_tiles", short)


def _no_shift(patch: pytest.MonkeyPatch) -> None:
    turn = BlockScales.turn

    def unshifted(self: Any, w: Any, tile: Any) -> None:
        turn(self, w, tile)
        self._shift = 0

    patch.setattr(BlockScales, "turn", unshifted)


def _boundary_late(patch: pytest.MonkeyPatch) -> None:
    turn = BlockScales.turn

    def late(self: Any, w: Any, tile: Any) -> None:
        turn(self, w, tile)
        self._offset = self._offset - 16

    patch.setattr(BlockScales, "turn", late)


def _columns_swapped(patch: pytest.MonkeyPatch) -> None:
    take = BlockScales.take

    def crossed(self: Any, w: Any, stage: Any = None) -> None:
        take(self, w, stage)
        self._a = [self._a[index ^ 1] for index in range(len(self._a))]

    patch.setattr(BlockScales, "take", crossed)


def _not_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ahead, "take", lambda self, w: list(self._next))  # those of the first k-block, for all


def _groups_of_rows_forgotten(patch: pytest.MonkeyPatch) -> None:
    at = BoundValueLoader.at

    def flat(self: Any, w: Any, tile: Any) -> Any:
        at(self, w, tile)
        self._first = tile.row
        return self

    patch.setattr(BoundValueLoader, "at", flat)


def _one_group_of_b(patch: pytest.MonkeyPatch) -> None:
    turn = Ahead.turn
    patch.setattr(
        Ahead, "turn", lambda self, w, tile, *more: turn(self, w, replace(tile, batch=tile.batch - tile.batch), *more)
    )


def _first_group_of_staged(patch: pytest.MonkeyPatch) -> None:
    at = BoundValueLoader.at
    patch.setattr(
        BoundValueLoader, "at", lambda self, w, tile: at(self, w, replace(tile, batch=tile.batch - tile.batch))
    )


def _first_of_a_box(patch: pytest.MonkeyPatch) -> None:
    take = BlockScales.take

    def first(self: Any, w: Any, stage: Any) -> None:
        self._staged["scale_b"]._k.assign(0)
        take(self, w, stage)

    patch.setattr(BlockScales, "take", first)


def _always_ready(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArriveConsumer, "consumer_ready", lambda self, w, stage, phase: True)


def _no_wait_between_blocks(patch: pytest.MonkeyPatch) -> None:
    def turns(self: Any, w: Any, reader: Any) -> Iterator[Any]:
        for block in range(self.layout.blocks):
            if block:
                self._scale(w, block - 1)
            yield ((block, self._tiles[0]),)
            if block == 0:
                self._scales.advance(w)

    patch.setattr(ScaledAccumulators, "turns", turns)


def _read_after_release(patch: pytest.MonkeyPatch) -> None:
    def late(self: Any, w: Any, stage: Any) -> None:
        stage.release()
        self._scales.take(w, stage)
        self._scale(w, self.layout.blocks - 1)

    patch.setattr(ScaledAccumulators, "carried", lambda self, w, stage, accumulate: False)
    patch.setattr(ScaledAccumulators, "_add", late)


def _blocks_end_early(patch: pytest.MonkeyPatch) -> None:
    ways = ScaledAccumulators.ways
    patch.setattr(ScaledAccumulators, "ways", lambda self, w, tile: ways(self, w, replace(tile, row=tile.row + 64)))


def _stages_kept(patch: pytest.MonkeyPatch) -> None:
    ways = ScaledAccumulators.ways

    def filled(self: Any, w: Any, tile: Any) -> Iterator[Any]:
        for promote in ways(self, w, tile):
            if self._blocks:
                yield promote

    patch.setattr(ScaledAccumulators, "ways", filled)


def _sums_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BlockConsumer, "clear", lambda self, w: None)


def _given_back_early(patch: pytest.MonkeyPatch) -> None:
    read = TensorConsumer.read

    def early(self: Any, w: Any, block: int, left: int, columns: int) -> Any:
        if left == 0:
            TensorConsumer.done(self, w)
        return read(self, w, block, left, columns)

    patch.setattr(TensorConsumer, "read", early)
    patch.setattr(BlockConsumer, "done", lambda self, w: None)


def _one_stage_for_all(patch: pytest.MonkeyPatch) -> None:
    k_block = BlockProducer.k_block

    @contextmanager
    def same(self: Any) -> Iterator[Any]:
        with k_block(self):
            yield self._address

    patch.setattr(BlockProducer, "k_block", same)


PLANTED: list[tuple[str, Plant, ScaledProduct]] = [
    ("scales of other rows", _wrong_row, TALL),
    ("scales of the first k-block", _first_block_only, TALL),
    ("bytes that are not expected", _bytes_not_expected, TALL),
    ("groups that begin anywhere", _no_shift, ENDS),
    ("a block of columns that ends late", _boundary_late, WIDE),
    ("a block of columns that ends late, tensor memory", _boundary_late, TENSOR),
    ("neighbours' scales", _columns_swapped, SWAPPED),
    ("rows' scales", _columns_swapped, TALL),
    ("scales of B that stay", _not_ahead, TALL),
    ("scales of A that stay", _not_ahead, DIRECT),
    ("scales that stay, tensor memory", _not_ahead, TENSOR),
    ("groups that begin apart", _groups_of_rows_forgotten, COUNTS),
    ("scales of the first group", _one_group_of_b, ENDS),
    ("scales of the first group, in a stage", _first_group_of_staged, replace(ENDS, k=1536)),
    ("scales of B that stay, in a stage", _first_of_a_box, STAGED),
    ("a stage that is not waited for", _always_ready, TALL),
    ("a block that is read while it is written", _no_wait_between_blocks, TALL),
    ("a stage that is read when it is given back", _read_after_release, WIDE),
    ("blocks that end early", _blocks_end_early, ENDS),
    ("blocks that end early, of counted groups", _blocks_end_early, COUNTS),
    ("stages that a warpgroup without rows keeps", _stages_kept, TWO),
    ("sums of the tile before", _sums_kept, TENSOR),
    ("one stage for every k-block", _one_stage_for_all, TENSOR),
    ("a stage that is given back before it is read", _given_back_early, TENSOR),
]


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize(("plant", "case"), [one[1:] for one in PLANTED], ids=[one[0] for one in PLANTED])
def test_a_planted_defect_is_found(plant: Plant, case: ScaledProduct, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same case is right without it, and with it wrong, or stopped by a check."""
    compiled.cache_clear()
    case.run(seed=1)
    plant(monkeypatch)
    compiled.cache_clear()
    try:
        assert not all(_right(case, seed) for seed in range(3))
    finally:
        compiled.cache_clear()


def _right(case: ScaledProduct, seed: int) -> bool:
    """Whether a run gives the right numbers, and no check stops it or finds anything."""
    try:
        case.run(seed=seed)
    except (AssertionError, EmulatorError, FindingWarning):
        return False
    return True
