"""How many tiles groups of rows are expected to take, where their sizes are only known on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit import MatmulConfig, MatmulSpec
from tilekit.kernels.matmul import estimates
from tilekit.kernels.matmul.estimates import Grids
from tilekit.kernels.matmul.picker import estimate, pick
from tilekit.kernels.matmul.sm_90a import model
from tilekit.targets import SM_90A

SPEC = MatmulSpec(groups="ends")
CONFIGS = [
    MatmulConfig(tile=(128, 128), cluster=(1, 1), consumers=2),
    MatmulConfig(tile=(64, 128), cluster=(1, 2), consumers=1),
    MatmulConfig(tile=(256, 128), cluster=(1, 1), consumers=2),
]


def grids(m: int, groups: int, n: int = 4096) -> Any:
    """The tiles of each config over `m` rows in so many groups."""
    spec = SPEC if groups else MatmulSpec()
    configs = model.collect(CONFIGS, spec)
    resident = np.maximum(model.resident(configs, SM_90A.multiprocessors), 1)
    return Grids.of(configs, spec, m=m, n=n, k=4096, batches=1, resident=resident, groups=groups)


def test_one_group_is_a_product() -> None:
    """All rows are its."""
    one, none = grids(1311, 1), grids(1311, 0)
    for name in ("rows", "tiles", "rounds", "waves", "active"):
        assert (getattr(one, name) == getattr(none, name)).all(), name


@pytest.mark.parametrize("groups", [4, 16])
def test_expected_tiles(groups: int) -> None:
    """As the formula of exponentially distributed sizes has it, within 6 %; rounds up to two more, one for caution."""
    found, heights = grids(1311, groups), np.array([config.tile[0] for config in CONFIGS])
    expected = groups / (1 - np.exp(-heights * groups / 1311))
    assert np.abs(found.rows / expected - 1).max() < 0.06
    resident = np.array([132, 132, 132])
    assert (found.rounds >= found.tiles / resident - 1e-9).all()
    assert (found.rounds <= found.tiles / resident + 2).all()


def test_small_groups_take_a_tile_each() -> None:
    """Of 64 groups of two rows on average, next to all have a row of tiles, and none has two."""
    found = grids(128, 64)
    assert ((found.rows > 45) & (found.rows <= 64)).all()


def test_a_spill_into_another_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """128x224 mostly just fits four rounds, and else a fifth longer, which counts; below one round nothing changes."""
    shape = {"m": 4485, "n": 3072, "k": 8192, "groups": 4, "sms": SM_90A.multiprocessors}
    configs = (
        MatmulConfig(tile=(128, 224), cluster=(1, 2)),
        MatmulConfig(tile=(128, 128), cluster=(1, 2), schedule="pingpong"),
    )

    def slower() -> float:
        large, small = (estimate(config, SPEC, SM_90A, **shape).total for config in configs)
        return large / small

    careful, many, few = slower(), grids(1311, 4).rounds, grids(100, 2).rounds
    monkeypatch.setattr(estimates, "CAUTION", 0.0)
    assert careful > 1.05 * slower()
    assert few.max() <= 1 < many.min()
    assert (grids(100, 2).rounds == few).all()
    assert (grids(1311, 4).rounds <= many).all()
    assert (grids(1311, 4).rounds < many).any()


def test_rounds_that_groups_just_fill() -> None:
    """Two products of the sizes of 82 to 669 rows: tiles that two rounds hold are preferred to many small ones."""
    config: Any = pick(SPEC, SM_90A, m=1311, n=4096, k=11008, groups=4)
    assert config.tile[0] >= 128
    config = pick(SPEC, SM_90A, m=721, n=3840, k=6576, groups=8)
    assert config.tile[0] * config.tile[1] >= 128 * 104
