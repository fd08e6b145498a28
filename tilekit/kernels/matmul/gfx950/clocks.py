"""Clocks of a k-tile of drivers without roles: ``python -m tests.kernels.test_cdna_loops`` writes them."""

from __future__ import annotations

from typing import Final

from tilekit.kernels.matmul.cdna.loops import Clocks

CLOCKS: Final[Clocks] = {
    "16 bits": {
        ("ping_pong", (256, 256), 1): 2836,
        ("ping_pong", (256, 256), 2): 2104,
        ("ping_pong", (256, 192), 1): 2464,
        ("ping_pong", (256, 128), 1): 2336,
        ("ping_pong", (256, 128), 2): 1428,
        ("ping_pong", (128, 256), 1): 2400,
        ("ping_pong", (128, 256), 2): 1408,
        ("ping_pong", (128, 128), 1): 1928,
        ("ping_pong", (128, 128), 2): 1296,
        ("interleaved", (256, 256), 2): 2078,
        ("interleaved", (256, 192), 2): 1580,
        ("interleaved", (192, 256), 2): 1576,
        ("interleaved", (256, 128), 2): 1196,
        ("interleaved", (128, 256), 2): 1224,
        ("interleaved", (192, 128), 2): 988,
        ("interleaved", (128, 192), 2): 948,
        ("interleaved", (128, 128), 2): 746,
        ("interleaved", (256, 64), 2): 942,
        ("interleaved", (64, 256), 2): 936,
        ("interleaved", (128, 64), 2): 646,
        ("interleaved", (64, 128), 2): 638,
    },
    "8 bits": {
        ("ping_pong", (256, 256), 1): 2808,
        ("ping_pong", (256, 256), 2): 2080,
        ("ping_pong", (256, 192), 1): 2460,
        ("ping_pong", (256, 128), 1): 2332,
        ("ping_pong", (256, 128), 2): 1432,
        ("ping_pong", (128, 256), 1): 2396,
        ("ping_pong", (128, 256), 2): 1412,
        ("ping_pong", (128, 128), 1): 1936,
        ("ping_pong", (128, 128), 2): 1304,
        ("interleaved", (256, 256), 2): 2062,
        ("interleaved", (256, 192), 2): 1570,
        ("interleaved", (192, 256), 2): 1558,
        ("interleaved", (256, 128), 2): 1184,
        ("interleaved", (128, 256), 2): 1200,
        ("interleaved", (192, 128), 2): 978,
        ("interleaved", (128, 192), 2): 947,
        ("interleaved", (128, 128), 2): 746,
        ("interleaved", (256, 64), 2): 943,
        ("interleaved", (64, 256), 2): 936,
        ("interleaved", (128, 64), 2): 646,
        ("interleaved", (64, 128), 2): 638,
    },
    "mxfp8": {
        ("ping_pong", (256, 256), 2): 2140,
        ("ping_pong", (256, 128), 2): 1656,
        ("ping_pong", (128, 256), 2): 1612,
        ("ping_pong", (128, 128), 2): 1521,
    },
    "mxfp4": {
        ("ping_pong", (256, 256), 2): 2286,
        ("ping_pong", (256, 128), 2): 1810,
        ("ping_pong", (128, 256), 2): 1755,
        ("ping_pong", (128, 128), 2): 1608,
    },
}
"""By what a loop multiplies: clocks by driver, tile and stages, of one slice of K, as the cycle model replays them."""
