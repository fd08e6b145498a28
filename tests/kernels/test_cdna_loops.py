"""The picker's clocks of a k-tile are those of the cycle model; run as a module, this writes their table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tilekit
from tilekit.dtypes import E2M1X2, E4M3, E4M3FNUZ
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.matmul.cdna.loops import SCHEDULES, multiplied
from tilekit.kernels.matmul.cdna.model import STAGE_CLOCKS, BlockClocks
from tilekit.kernels.matmul.cdna.notes import replayed
from tilekit.kernels.matmul.gfx942.config import Cdna3Config
from tilekit.kernels.matmul.gfx950.config import Cdna4Config
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target, target

KINDS: tuple[tuple[type[CdnaConfig], tuple[MatmulSpec, ...]], ...] = (
    (Cdna3Config, (MatmulSpec(), MatmulSpec(E4M3FNUZ, E4M3FNUZ))),
    (
        Cdna4Config,
        (MatmulSpec(), MatmulSpec(E4M3, E4M3), BlockScaledSpec(), BlockScaledSpec(E2M1X2, E2M1X2, scaled="mxfp4")),
    ),
)

Case = tuple[Target, MatmulSpec, CdnaConfig, int]


def cases() -> Iterator[Case]:
    """Every legal schedule with each number of stages that it may have."""
    for kind, specs in KINDS:
        chip = target(kind.TARGET)
        for spec in specs:
            for driver, tile, across in SCHEDULES:
                for stages in (1, 2):
                    config = kind(tile=tile, driver=driver, mma_columns=across, stages=stages)
                    if config.legal(chip, spec):
                        yield chip, spec, config, stages


def clocks(chip: Target, spec: MatmulSpec, config: CdnaConfig) -> int:
    """Those of a k-tile, by the cycle model."""
    return round(replayed(config, trace(spec, config, chip)).clocks_per_k_tile)


def check(case: Case) -> None:
    """A case's clocks stand in the table."""
    chip, spec, config, stages = case
    listed = config.CLOCKS[multiplied(spec)][config.driver, config.tile, stages]
    assert abs(clocks(chip, spec, config) - listed) <= 0.01 * listed, config


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("number", range(0, 80, 11))
def test_a_sample_of_the_table(number: int) -> None:
    """Some of the clocks that the picker goes by, within 1 % of the kernels' as they are."""
    check(list(cases())[number % len(list(cases()))])


@pytest.mark.breadth
def test_the_table() -> None:
    """All of them."""
    for case in cases():
        check(case)


def test_the_table_is_whole() -> None:
    """There is an entry for each schedule that the picker may take, and for nothing else."""
    listed = {
        (kind.TARGET, factors, *entry)
        for kind, _ in KINDS
        for factors, entries in kind.CLOCKS.items()
        for entry in entries
    }
    assert listed == {
        (chip.name, multiplied(spec), config.driver, config.tile, stages) for chip, spec, config, stages in cases()
    }


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("kind", [Cdna3Config, Cdna4Config])
@pytest.mark.parametrize(
    ("tile", "load", "mma"), [((256, 128), 4, 8), ((256, 64), 4, 4), ((128, 64), 4, 4), ((128, 128), 2, 2)]
)
def test_waves_that_multiply_alone(kind: type[CdnaConfig], tile: tuple[int, int], load: int, mma: int) -> None:
    """Of waves whose stages are full, the picker's clocks are within a fifth of the cycle model's."""
    chip, spec, config = target(kind.TARGET), MatmulSpec(), kind(tile=tile, load_waves=load, mma_waves=mma)
    assert BlockClocks.of(config, spec, chip).loop == pytest.approx(clocks(chip, spec, config), rel=0.2)
    assert BlockClocks.of(config, spec, chip).loop > STAGE_CLOCKS


def _write() -> None:
    """Write the tables anew."""
    found: dict[str, dict[str, list[str]]] = {}
    for chip, spec, config, stages in cases():
        entry = f'        ("{config.driver}", {config.tile}, {stages}): {clocks(chip, spec, config)},'
        found.setdefault(chip.name, {}).setdefault(multiplied(spec), []).append(entry)
    for chip_name, tables in found.items():
        path = Path(tilekit.__file__).parent / "kernels" / "matmul" / chip_name / "clocks.py"
        text = path.read_text("utf-8")
        first, last = text.index("= {") + len("= {"), text.index('}\n"""By what')
        blocks = [f'    "{factors}": {{\n' + "\n".join(lines) + "\n    }," for factors, lines in tables.items()]
        path.write_text(text[:first] + "\n" + "\n".join(blocks) + "\n" + text[last:], "utf-8")


if __name__ == "__main__":
    _write()
