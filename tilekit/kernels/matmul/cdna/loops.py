"""Clocks of a k-tile of drivers without roles, as the cycle model replays their kernels.

A replay takes longer than a call has, so the figures of the configs that the picker tries stand here;
``tests/kernels/test_cdna_loops.py`` replays them, and writes this table (``python -m tests.kernels.test_cdna_loops``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilekit.targets import Target

if TYPE_CHECKING:
    from tilekit.kernels.matmul.cdna.config import CdnaConfig, Driver

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

_Entry = tuple[str, tuple[int, int], int]

CLOCKS: Final[dict[tuple[str, int], dict[_Entry, int]]] = {
    ("gfx942", 16): {
        ("ping_pong", (256, 256), 1): 4160,
        ("ping_pong", (256, 192), 1): 3264,
        ("ping_pong", (256, 128), 1): 2424,
        ("ping_pong", (128, 256), 1): 2492,
        ("ping_pong", (128, 128), 1): 2160,
        ("ping_pong", (128, 128), 2): 1728,
        ("interleaved", (128, 128), 2): 1168,
        ("interleaved", (128, 64), 2): 910,
        ("interleaved", (64, 128), 2): 892,
    },
    ("gfx942", 8): {
        ("ping_pong", (256, 256), 1): 4160,
        ("ping_pong", (256, 192), 1): 3264,
        ("ping_pong", (256, 128), 1): 2432,
        ("ping_pong", (128, 256), 1): 2508,
        ("ping_pong", (128, 128), 1): 2156,
        ("ping_pong", (128, 128), 2): 1712,
        ("interleaved", (128, 128), 2): 1160,
        ("interleaved", (128, 64), 2): 904,
        ("interleaved", (64, 128), 2): 887,
    },
    ("gfx950", 16): {
        ("ping_pong", (256, 256), 1): 2836,
        ("ping_pong", (256, 256), 2): 2104,
        ("ping_pong", (256, 192), 1): 2464,
        ("ping_pong", (256, 128), 1): 2336,
        ("ping_pong", (256, 128), 2): 1428,
        ("ping_pong", (128, 256), 1): 2400,
        ("ping_pong", (128, 256), 2): 1408,
        ("ping_pong", (128, 128), 1): 1928,
        ("ping_pong", (128, 128), 2): 1296,
        ("interleaved", (256, 256), 2): 2170,
        ("interleaved", (256, 192), 2): 1658,
        ("interleaved", (192, 256), 2): 1658,
        ("interleaved", (256, 128), 2): 1226,
        ("interleaved", (128, 256), 2): 1258,
        ("interleaved", (192, 128), 2): 1064,
        ("interleaved", (128, 192), 2): 961,
        ("interleaved", (128, 128), 2): 766,
        ("interleaved", (256, 64), 2): 944,
        ("interleaved", (64, 256), 2): 939,
        ("interleaved", (128, 64), 2): 654,
        ("interleaved", (64, 128), 2): 654,
    },
    ("gfx950", 8): {
        ("ping_pong", (256, 256), 1): 2808,
        ("ping_pong", (256, 256), 2): 2080,
        ("ping_pong", (256, 192), 1): 2460,
        ("ping_pong", (256, 128), 1): 2332,
        ("ping_pong", (256, 128), 2): 1432,
        ("ping_pong", (128, 256), 1): 2396,
        ("ping_pong", (128, 256), 2): 1412,
        ("ping_pong", (128, 128), 1): 1936,
        ("ping_pong", (128, 128), 2): 1304,
        ("interleaved", (256, 256), 2): 2108,
        ("interleaved", (256, 192), 2): 1610,
        ("interleaved", (192, 256), 2): 1596,
        ("interleaved", (256, 128), 2): 1216,
        ("interleaved", (128, 256), 2): 1234,
        ("interleaved", (192, 128), 2): 1006,
        ("interleaved", (128, 192), 2): 956,
        ("interleaved", (128, 128), 2): 752,
        ("interleaved", (256, 64), 2): 944,
        ("interleaved", (64, 256), 2): 938,
        ("interleaved", (128, 64), 2): 652,
        ("interleaved", (64, 128), 2): 644,
    },
}
"""By chip and bits of an operand: clocks by driver, tile and stages, of one slice of K."""


def loop_clocks(config: CdnaConfig, target: Target, bits: int, stages: int, matrix: float) -> float:
    """Clocks of a k-tile; of a config that is not in the table, with as much beside the `matrix` cores' as the nearest.

    A slice of K more takes as long again.
    """
    table = CLOCKS[target.name, bits]

    def far(entry: _Entry) -> tuple[bool, bool, int]:
        driver, tile, its = entry
        apart = sum(abs(ours - theirs) for ours, theirs in zip(config.tile, tile, strict=True))
        return driver != config.driver, its != stages, apart

    nearest = min(table, key=far)
    of_slice = matrix / config.k_group
    products = of_slice * nearest[1][0] * nearest[1][1] / (config.tile[0] * config.tile[1])
    return config.k_group * (of_slice + table[nearest] - products)
