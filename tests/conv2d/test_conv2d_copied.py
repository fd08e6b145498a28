"""Convolutions on chips whose matrix instruction is one warp's, by threads that copy pixels: on the emulator, and as
text for sm_80 on a GPU. The cases and what is asked of them are those of the other chips' convolutions.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conv2d.convolutions import WARP_CHIPS, Convolution, drawn
from tilekit.kernels.matmul.platforms import platform
from tilekit.targets import target

SEEDS = 3
"""Drawn cases of each chip in every run; 60 with ``-m breadth``, and 320 on a GPU."""


def _by_hand(chip: str) -> list[Convolution]:
    """Every way in which operands are loaded, at sizes that no tile divides."""
    last = {"seed": 1, "chip": chip, "types": ("bf16", "bf16"), "out": "f32"}
    ways = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    kind: Any = platform(target(chip)).config
    split = kind(tile=(64, 32), grid=(2, 1), split_k=3)
    found = [
        Convolution(x=(2, 9, 8, 64), w=(40, 3, 3, 64), **ways, **last),  # one place a k-block
        Convolution(x=(2, 9, 8, 96), w=(40, 3, 3, 96), data="places", config=split, **ways, **last),  # or two
        Convolution(x=(1, 9, 8, 72), w=(40, 3, 3, 72), gap=16, config=split, **ways, **last),  # at any channel
        Convolution(x=(3, 7, 7, 8), w=(24, 5, 5, 8), padding=(2, 2), beta=2.0, bias="bf16", **last),  # eight places
        Convolution(x=(1, 12, 9, 4), w=(24, 3, 3, 4), data="places", padding=(1, 1), **last),  # 8 bytes, over lines
        Convolution(x=(2, 7, 9, 6), w=(24, 3, 2, 6), config=split, **last),  # 4 bytes
        Convolution(x=(2, 15, 13, 3), w=(24, 7, 7, 3), stride=(2, 2), padding=(3, 3), activation="relu", **last),
        Convolution(x=(2, 15, 14, 3), w=(24, 7, 7, 3), stride=(2, 2), padding=(3, 3), config=split, **last),  # lines
        Convolution(x=(1, 5, 5, 64), w=(24, 3, 3, 64), dilation=(130, 1), padding=(130, 0), **last),
        Convolution(x=(2, 6, 5, 64), w=(48, 3, 3, 32), groups=2, bias="f32", beta=1.0, padding=(1, 1), **last),
        Convolution(x=(2, 6, 5, 20), w=(40, 3, 3, 4), groups=5, bias="f32", padding=(1, 1), **last),
        Convolution(x=(2, 7, 9, 64), w=(40, 1, 1, 64), stride=(2, 9), bias="f32", **last),
        Convolution(x=(2, 7, 9, 20), w=(40, 1, 1, 20), bias="f32", beta=1.0, **last),  # a plain product
        Convolution(x=(1, 1, 1, 32), w=(8, 1, 1, 32), padding=(1, 1), **last),  # an image below a pixel's tile
    ]
    if not target(chip).has("float8_matrix"):
        return found
    eight = {**last, "types": ("e4m3", "e5m2")}
    return [
        Convolution(x=(2, 9, 12, 3), w=(40, 4, 5, 3), stride=(1, 3), padding=(5, 4), dilation=(2, 1), **eight),
        Convolution(x=(2, 5, 8, 1), w=(4, 6, 3, 1), stride=(2, 1), padding=(130, 1), config=split, **eight),
        Convolution(x=(2, 6, 6, 48), w=(24, 3, 3, 48), padding=(1, 1), data="places", **eight),
        Convolution(
            x=(2, 6, 6, 12), w=(24, 3, 3, 12), padding=(1, 1), out="bf16", **{k: eight[k] for k in eight if k != "out"}
        ),
    ]


@pytest.mark.parametrize("case", [case for chip in ("sm_80", "sm_89") for case in _by_hand(chip)], ids=str)
def test_each_way_to_load(case: Convolution) -> None:
    """Exact, and clean under an adversarial schedule."""
    case.run(seed=case.x[3])


@pytest.mark.parametrize("case", [drawn(seed, chip) for seed in range(SEEDS) for chip in WARP_CHIPS], ids=str)
def test_drawn(case: Convolution) -> None:
    """Types, shapes, strides, padding, dilation, groups, layouts, configs and epilogues, all drawn."""
    case.run(seed=case.seed)


@pytest.mark.breadth
@pytest.mark.parametrize("chip", WARP_CHIPS)
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 60))
def test_more_drawn(seed: int, chip: str) -> None:
    """More of the same."""
    drawn(seed, chip).run(seed=seed)
