"""A gradient of filters, read once: as a product over pixels, in as many parts as the model finds quickest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Self

from tilekit.arrays import ArrayView
from tilekit.dtypes import F32
from tilekit.kernels.conv2d.chips import goes_over_images
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.over_pixels import CHUNK, NARROW_CHUNK, MetImages, OverPixels, OverPixelsSpec
from tilekit.kernels.conv2d.problem import one_pitch, pitches_of
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.picker import Extents, candidates, quickest
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.call import Matrix

SHORTEST = 256
"""Pixels of a part, at least."""

ADDITION_CLOCKS = 2000
"""What adding parts takes, beside their bytes: a kernel that is there when the last one ends."""

ADDITION_BYTES_PER_CLOCK = 1500
"""How fast they are written and read (ten gradients in 5 to 17 ways, H200: what is picked loses 1.7 %)."""


@dataclass(frozen=True, kw_only=True)
class FilterGradientArguments(MatmulArguments):
    """The arguments of a product over pixels."""

    @classmethod
    def over_pixels(
        cls, x: ArrayView, dy: ArrayView, axes: Sequence[Axis], out: ArrayView, *, scale: Any = None, **more: Any
    ) -> Self:
        """Those of a sum into a matrix, or into one a part.

        Parameters
        ----------
        x, dy, axes
            Images, the result's gradient, and how filters go over those.
        out
            Filters by places and channels; in front of both may be the parts.
        scale
            As `tilekit.conv2d` takes it.
        more
            The other fields.
        """
        problem = read_over_pixels(x, dy, axes, out.shape[0] if len(out.shape) == 3 else 1)
        given: EpilogueKeywords = {"scale": scale}
        return cls.of(problem, dy, x, out, out.dtype, given, **more)

    def spec_storing(self, store: str) -> MatmulSpec:
        """What computes it."""
        return OverPixelsSpec(**vars(super().spec_storing(store)), channels=copied_channels(self.b.shape[3]))


def copied_channels(channels: int) -> int:
    """Channels of a copy, that places of a filter have a whole number of; 0 where there is none."""
    return next((count for count in (CHUNK, NARROW_CHUNK) if channels % count == 0), 0)


def goes_over_pixels(x: ArrayView, dy: ArrayView, axes: Sequence[Axis], groups: int, target: Target) -> bool:
    """Whether the copy engine of a chip finds the images' pixels, and channels fill its copies."""
    copied = copied_channels(x.shape[3])
    if groups > 1 or not copied or not goes_over_images(target) or x.dtype.bits != 16 or 0 in x.shape:
        return False
    pitches, pitch = pitches_of(x)[:3], one_pitch(dy) or 0
    numbers = x.address, dy.address, *(each * x.dtype.bytes for each in (pitch, *pitches))
    if any(number % TMA_ALIGNMENT for number in numbers) or 0 in (pitch, *pitches):
        return False
    spec = OverPixelsSpec(a_dtype=dy.dtype, b_dtype=x.dtype, a_major="mn", b_major="mn", channels=copied)
    return not any(axis.beyond_engine for axis in axes) and (copied == CHUNK or bool(candidates(spec, target)))


def read_over_pixels(x: ArrayView, dy: ArrayView, axes: Sequence[Axis], parts: int = 1) -> OverPixels:
    """Describe the product: filters by pixels, and pixels by channels at places."""
    pixels, filters, size = prod(dy.shape[:3]) // parts, dy.shape[3], dy.dtype.bytes
    pitch, places = (one_pitch(dy) or 0) * size, prod(axis.taps for axis in axes)
    batch = pixels * pitch if parts > 1 else 0
    a = Matrix("dy", dy.dtype, (filters, pixels), pitch, batch, parts, "mn")
    b = MetImages(
        name="x", dtype=x.dtype, extents=(places * x.shape[3], pixels), pitch=pitches_of(x).pixel * size,
        batch_pitch=batch, batches=parts, major="mn", y=axes[0], x=axes[1], count=x.shape[0], channels=x.shape[3],
        pitches=pitches_of(x), part=pixels,
    )  # fmt: skip
    return OverPixels(filters, places * x.shape[3], pixels, parts, parts > 1, a, b)


@lru_cache(maxsize=256)
def parts_of(spec: MatmulSpec, target: Target, m: int, n: int, pixels: int, read_b: float = 1.0) -> int:
    """In how many parts a sum over pixels is quickest, added by a kernel behind where there are several.

    Parameters
    ----------
    spec
        That of a whole sum.
    target, m, n, pixels
        The chip, and extents of the product.
    read_b
        The part of its B that lies in memory once.
    """
    several = replace(spec, batched=True, out_dtype=F32)
    best, least = 1, quickest(spec, target, Extents(m, n, pixels, read_b=read_b)).total
    for parts in range(2, min(target.multiprocessors, pixels // SHORTEST) + 1):
        if pixels % parts == 0:
            found = quickest(several, target, Extents(m, n, pixels // parts, parts, read_b=read_b))
            clocks = found.total + ADDITION_CLOCKS + 4 * m * n * parts / ADDITION_BYTES_PER_CLOCK
            whole = (
                pixels // parts % found.config.k_block(spec.a_dtype) == 0
            )  # else images of two parts meet in a block
            if clocks < least and (whole or not spec.own_loaders):
                best, least = parts, clocks
    return best
