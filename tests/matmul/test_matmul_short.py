"""Tiles of fewer rows than an instruction: what is legal, what their cases cover, and what B behind A is for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.matmul.matmul_short import ROWS, short_cases, short_cases_on_gpu
from tilekit import ElementwiseSpec, MatmulConfig, MatmulSpec
from tilekit.dtypes import BF16
from tilekit.emulator import EmulatorError
from tilekit.errors import ConfigError
from tilekit.targets import SM_90A
from tilekit.tile_pipeline.payload import StandardPayload

SHORT = MatmulConfig(tile=(16, 48), cluster=(1, 1), consumers=1, stages=3)


@pytest.mark.parametrize(
    ("config", "spec", "text"),
    [
        (
            replace(SHORT, tile=(12, 48)),
            MatmulSpec(),
            "tile M=12: a consumer warpgroup takes a multiple of 64 rows, or",
        ),
        (replace(SHORT, tile=(0, 48)), MatmulSpec(), "tile M=0"),
        (replace(SHORT, consumers=2), MatmulSpec(), "each of 2 consumer warpgroups takes a multiple of 64 rows"),
        (replace(SHORT, tile=(16, 40)), MatmulSpec(), "multiplied with the 40 of B behind them; 48 are read"),
        (replace(SHORT, swap_ab=True), MatmulSpec(), "swap_ab=True with tile M=16"),
        (replace(SHORT, split_k=2), MatmulSpec(), "split_k=2 with tile M=16"),
        (replace(SHORT, stream_k=2), MatmulSpec(), "stream_k=2 with tile M=16"),
        (replace(SHORT, cluster_k=2), MatmulSpec(), "cluster_k=2 with tile M=16"),
        (SHORT, MatmulSpec(a_major="mn"), "are loaded where K is A's contiguous dimension"),
        (SHORT, MatmulSpec(store="direct"), "come and go by TMA"),
        (SHORT, MatmulSpec(groups="counts"), "come and go by TMA"),
        (SHORT, MatmulSpec(functions=ElementwiseSpec(residual=BF16)), "come and go by TMA"),
        (replace(SHORT, cluster=(1, 3), tile=(16, 64)), MatmulSpec(), "fetched in 3 equal slices"),
    ],
)
def test_what_cannot_be_built_is_named(config: MatmulConfig, spec: MatmulSpec, text: str) -> None:
    """Each rule says what is wrong and what comes nearest, and that is legal."""
    with pytest.raises(ConfigError, match="nearest") as caught:
        tilekit.compile(spec, config=config)
    assert text in str(caught.value)


def test_columns_or_slices_may_lie_behind() -> None:
    """Few columns of many slices do as well as many columns."""
    assert not replace(SHORT, tile=(16, 16), k_group=4).problems(SM_90A)
    assert replace(SHORT, tile=(16, 16), k_group=2).problems(SM_90A)
    assert not replace(SHORT, tile=(48, 16)).problems(SM_90A)


def test_the_cases_cover_their_axes() -> None:
    """Rows, types, clusters, slices and both ways along K are all there, and no case twice."""
    for cases in (short_cases(), short_cases_on_gpu()):
        assert len({str(case) for case in cases}) == len(cases)
        configs = [case.kernel.config for case in cases if isinstance(case.kernel.config, MatmulConfig)]
        assert all(config.m_below_atom for config in configs)
        assert {config.tile[0] for config in configs} >= set(ROWS)
        assert {config.cluster for config in configs} == {(1, 1), (2, 1), (1, 2)}
        assert {config.k_group for config in configs} == {1, 2, 4}
        assert {case.kernel.a for case in cases} >= {"bf16", "f16", "e4m3", "e5m2", "f32"}
        assert any(case.kernel.majors[1] != "k" for case in cases)
        assert any(case.m > config.tile[0] for case, config in zip(cases, configs, strict=True))


def test_stages_that_are_not_together_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ring of A's beside a ring of B's, the instruction reads stages that are being loaded."""
    monkeypatch.setattr("tilekit.kernels.matmul.config._payload", lambda a, b, **_: StandardPayload(a, b))
    from tilekit.kernels.matmul.compiled import compiled

    compiled.cache_clear()
    try:
        with pytest.raises(EmulatorError, match=r"race|never written|uninitialised"):
            _run(SHORT)
    finally:
        compiled.cache_clear()


def _run(config: MatmulConfig) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (16, 520)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-2, 3, (200, 520)).astype(ml_dtypes.bfloat16).T
    out = np.full((16, 200), np.nan, ml_dtypes.bfloat16)
    plan: Any = tilekit.compile(MatmulSpec(), config=config).bind(
        a, b, out, multiprocessors=4, schedule="random", seed=0
    )
    plan()
    assert np.array_equal(out.astype(np.float32), a.astype(np.float32) @ b.astype(np.float32))


def test_explain_says_whose_rows_they_are() -> None:
    """The rows that come from A, and what is stored."""
    text = tilekit.compile(MatmulSpec(), config=SHORT).explain()
    assert "instructions of 64 rows: 16 of A, the others of B, whose sums are not stored" in text
    assert "1536 B of output in 16-row subtiles" in text
