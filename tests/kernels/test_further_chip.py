"""A further chip is a folder with its name: no shipped file changes for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tilekit.kernels.matmul as family
from tilekit.assembly.writer import Writer
from tilekit.kernels.matmul import platforms
from tilekit.kernels.matmul.compose import compose
from tilekit.kernels.matmul.picker import candidates, closest, default_config, pick, ranked
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A, TARGETS, Target
from tilekit.tuning.table import config_of

FOLDER = '''
"""A chip like Hopper, with half the shared memory and two tiles."""

from dataclasses import dataclass
from types import SimpleNamespace

from tilekit.kernels.matmul.platforms import Platform
from tilekit.kernels.matmul.sm_90a import components, model, notes
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig


@dataclass(frozen=True)
class SmallConfig(MatmulConfig):
    TARGET = "sm_small"
    tile: tuple[int, int] = (64, 64)
    consumers: int = 1
    cluster: tuple[int, int] = (1, 1)


def candidates(spec, target):
    return [c for c in (SmallConfig(), SmallConfig(tile=(64, 128))) if c.legal(target, spec)]


own = {"candidates": candidates, "default": lambda spec: SmallConfig(), "tuning_candidates": lambda spec, target: ()}
PLATFORM = Platform(SmallConfig, components, SimpleNamespace(**{**vars(model), **own}), notes)
'''


@pytest.fixture
def chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A chip that only this test has."""
    (tmp_path / "sm_small").mkdir()
    (tmp_path / "sm_small" / "__init__.py").write_text("")
    (tmp_path / "sm_small" / "platform.py").write_text(FOLDER)
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    small = replace(SM_90A, name="sm_small", product="none", shared_bytes=SM_90A.shared_bytes // 2, multiprocessors=20)
    monkeypatch.setitem(TARGETS, small.name, small)
    yield small
    platforms.platform.cache_clear()


def test_a_folder_is_enough(chip: Target) -> None:
    """Rules, picks, tuned configs and the composition of a chip come from its folder, its limits from its target."""
    spec = MatmulSpec()
    assert set(platforms.platforms()) == {*TARGETS.values()}
    assert len(candidates(spec, chip)) == len(ranked(spec, chip, m=512, n=512, k=512)) == 2
    config = pick(spec, chip, m=64, n=4096, k=4096)
    assert config in candidates(spec, chip)
    assert closest(spec, chip, {"tile": (64, 128), "stages": 2}, m=9, n=9, k=9).stages == 2
    assert type(config_of("matmul", {"tile": [64, 128]}, chip)) is type(config)
    assert MatmulConfig().problems(chip, spec) == ["MatmulConfig is for sm_90a; for sm_small pass a SmallConfig"]
    assert "SmallConfig is for sm_small" in config.problems(SM_90A, spec)[0]
    assert 1 < config.resolved_stages(chip, spec) < default_config(spec, SM_90A).changed(tile=(64, 64)).MAX_STAGES
    w = Writer("kernel", target="sm_90a", threads=config.warps(chip, spec).threads)
    kernel = compose(w, spec, config, chip)
    kernel.trace(w)
    w.shared.check(config.memory(spec).declared(kernel.inputs.stages), "kernel")
    assert w.shared.size <= chip.shared_bytes
    assert "wgmma.mma_async" in w.text()
