"""Clocks of a k-tile of drivers without roles, as the cycle model replays their kernels.

A replay takes longer than a call has, so each chip has a table of the configs that the picker tries;
``tests/kernels/test_cdna_loops.py`` replays them, and writes it (``python -m tests.kernels.test_cdna_loops``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilekit.kernels.matmul.cdna.config import CdnaConfig, Driver
    from tilekit.kernels.matmul.spec import MatmulSpec

SCHEDULES: Final[tuple[tuple[Driver, tuple[int, int], int], ...]] = (
    ("ping_pong", (256, 256), 4),
    ("ping_pong", (256, 192), 2),
    ("ping_pong", (256, 128), 2),
    ("ping_pong", (128, 256), 4),
    ("ping_pong", (128, 128), 4),
    ("interleaved", (256, 256), 2),
    ("interleaved", (256, 192), 2),
    ("interleaved", (192, 256), 4),
    ("interleaved", (256, 128), 2),
    ("interleaved", (128, 256), 4),
    ("interleaved", (192, 128), 4),
    ("interleaved", (128, 192), 2),
    ("interleaved", (128, 128), 2),
    ("interleaved", (256, 64), 1),
    ("interleaved", (64, 256), 4),
    ("interleaved", (128, 64), 2),
    ("interleaved", (64, 128), 4),
)
"""Driver, tile, and waves side by side: of each tile the quickest grid."""

Clocks = dict[str, dict[tuple[str, tuple[int, int], int], int]]
"""A chip's table, by `multiplied`: clocks by driver, tile and stages, of one slice of K."""


def multiplied(spec: MatmulSpec) -> str:
    """What a loop multiplies: operands of so many bits, or a format of scales, which it reads beside them."""
    return getattr(spec, "scaled", f"{spec.a_dtype.bits} bits")


def loop_clocks(config: CdnaConfig, factors: str, stages: int, matrix: float) -> float:
    """Clocks of a k-tile; of a config that is not in the table, with as much beside the `matrix` cores' as the nearest.

    A slice of K more takes as long again.
    """
    table = config.CLOCKS[factors]

    def far(entry: tuple[str, tuple[int, int], int]) -> tuple[bool, bool, int]:
        driver, tile, its = entry
        apart = sum(abs(ours - theirs) for ours, theirs in zip(config.tile, tile, strict=True))
        return driver != config.driver, its != stages, apart

    nearest = min(table, key=far)
    of_slice = matrix / config.k_group
    products = of_slice * nearest[1][0] * nearest[1][1] / (config.tile[0] * config.tile[1])
    return config.k_group * (of_slice + table[nearest] - products)
