"""Convolutions drawn from a documented distribution: layers that were tuned for here or elsewhere and layers that not.

- Images have 7 to 224 lines and as many pixels a line, log-uniform; two of five sizes are those of networks for 224 by
  224 or for latents of 64 by 64 (`SIZES`). There are 1 to 64 of them, in powers of two.
- Filters are 1x1 (two of five), 3x3 (two of five), or 2x2, 5x5, 7x7, 1x3 and 3x1. Three of four go from pixel to pixel
  (those of 2x2 never do), the others in strides of 2; what is padded keeps the size, as networks do, but of one in six
  nothing is. One 3x3 filter in ten is dilated.
- Channels and filters are, three times of four, of `WIDTHS`, and else free multiples of 8 from 8 to 1024, log-uniform,
  each by itself; one layer in sixteen is a stem of 3 or 4 channels. One in twelve has groups.
- Operands are bf16 (two of three) or f16. One in four has a bias and a relu behind, and half of those a residual.

Layers take at most `MOST_BYTES` of operands and results, and `MOST_FLOPS`.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any, Final

from tilekit.bench.conv2d import ConvWorkload
from tilekit.bench.drawn import DrawnSuite
from tilekit.dtypes import BF16, F16

__all__ = ["MOST_BYTES", "MOST_FLOPS", "SIZES", "SUITE", "WIDTHS"]

SIZES: Final = (7, 14, 28, 56, 112, 16, 32, 64, 128)
"""Lines of images, and pixels of a line, of networks' inner layers."""

WIDTHS: Final = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1280)
"""Channels of published networks."""

MOST_BYTES: Final = 4e8
MOST_FLOPS: Final = 4e11

_FILTERS: Final = ((1, 1), (3, 3), (2, 2), (5, 5), (7, 7), (1, 3), (3, 1))
_GROUPS: Final = (2, 4, 8)


def _drawn(random: Random) -> ConvWorkload | None:
    """A layer; None where filters are larger than the padded images, and of one that is too large."""
    images, size = 2 ** random.randrange(7), _size(random)
    down, along = random.choices(_FILTERS, (8, 8, 1, 1, 1, 0.5, 0.5))[0]
    step = 2 if (down, along) == (2, 2) or random.random() < 0.25 else 1
    apart = 2 if (down, along) == (3, 3) and random.random() < 0.1 else 1
    padded = (down, along) != (2, 2) and random.random() < 5 / 6
    pad = (apart * (down // 2), apart * (along // 2)) if padded else (0, 0)
    channels, filters, groups = _width(random), _width(random), 1
    shape = random.random()
    if shape < 1 / 16:
        channels = random.choice((3, 4))
    elif shape < 1 / 16 + 1 / 12:
        groups = random.choice(_GROUPS)
        channels, filters = (-(-width // (8 * groups)) * 8 * groups for width in (channels, filters))
    dtype = random.choices((BF16, F16), (2, 1))[0]
    fused = random.random() < 0.25
    residual = fused and random.random() < 0.5
    if size + 2 * min(pad) <= apart * (max(down, along) - 1):
        return None
    how: dict[str, Any] = {"stride": (step, step), "padding": pad, "dilation": (apart, apart), "groups": groups}
    how |= {"a_dtype": dtype, "b_dtype": dtype, "out_dtype": dtype}
    how |= {"bias": fused, "activation": "relu" if fused else None, "residual": residual}
    layer = ConvWorkload((images, size, size, channels), (filters, down, along), **how)
    return layer if layer.bytes <= MOST_BYTES and layer.flops <= MOST_FLOPS else None


def _size(random: Random) -> int:
    if random.random() < 0.4:
        return random.choice(SIZES)
    return round(math.exp(random.uniform(math.log(7), math.log(224))))


def _width(random: Random) -> int:
    if random.random() < 0.75:
        return random.choice(WIDTHS)
    return 8 * round(math.exp(random.uniform(math.log(8), math.log(1024))) / 8)


SUITE: Final = DrawnSuite("conv2d-random", count=40, aims=(1.05, 0.98, 0.95), salt="tilekit conv2d", one=_drawn)
