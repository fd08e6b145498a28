"""Clocks of a k-tile of drivers without roles: ``python -m tests.kernels.test_cdna_loops`` writes them."""

from __future__ import annotations

from typing import Final

from tilekit.kernels.matmul.cdna.loops import Clocks

CLOCKS: Final[Clocks] = {
    "16 bits": {
        ("ping_pong", (256, 256), 1): 4160,
        ("ping_pong", (256, 192), 1): 3264,
        ("ping_pong", (256, 128), 1): 2424,
        ("ping_pong", (128, 256), 1): 2492,
        ("ping_pong", (128, 128), 1): 2160,
        ("ping_pong", (128, 128), 2): 1728,
        ("interleaved", (128, 128), 2): 1143,
        ("interleaved", (128, 64), 2): 896,
        ("interleaved", (64, 128), 2): 876,
    },
    "8 bits": {
        ("ping_pong", (256, 256), 1): 4160,
        ("ping_pong", (256, 192), 1): 3264,
        ("ping_pong", (256, 128), 1): 2432,
        ("ping_pong", (128, 256), 1): 2508,
        ("ping_pong", (128, 128), 1): 2156,
        ("ping_pong", (128, 128), 2): 1712,
        ("interleaved", (128, 128), 2): 1138,
        ("interleaved", (128, 64), 2): 890,
        ("interleaved", (64, 128), 2): 872,
    },
}
"""By what a loop multiplies: clocks by driver, tile and stages, of one slice of K, as the cycle model replays them."""
