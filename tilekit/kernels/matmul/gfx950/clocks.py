"""Clocks of a k-tile of drivers without roles: ``python -m tests.kernels.test_cdna_loops`` writes them."""

from __future__ import annotations

from typing import Final

from tilekit.kernels.matmul.cdna.loops import Clocks

CLOCKS: Final[Clocks] = {
    16: {
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
    8: {
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
"""By bits of an operand: clocks by driver, tile and stages, of one slice of K, as the cycle model replays them."""
