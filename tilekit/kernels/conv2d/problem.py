"""A convolution as a product of matrices: how its operands are loaded, and what K is then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilekit.arrays import ArrayView, c_strides
from tilekit.kernels.conv2d.images import Axis, Images, Pitches
from tilekit.kernels.problem import MatmulProblem, load_width, read_problem
from tilekit.tile_io.copy_plan import PIECE, WORD
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tile_op.descriptors import K_BYTES
from tilekit.tiles.call import Load
from tilekit.tiles.operand import PLAIN_BYTES, SWIZZLE_BYTES, SwizzleBytes

SLICES: dict[SwizzleBytes, float] = {128: 1.0, 64: 1.1, 32: 1.5, 0: 2.5}
"""Swizzles by what a byte of K is taken to cost: the narrower its slices, the more lines the copy engine asks for.

Guessed from its rate of a line or so each clock, and not timed.
"""


def slice_for(channel_bytes: int, groups: int) -> SwizzleBytes:
    """The swizzle whose slices, filled up with zeros, cost least; of groups, channels fill them, or others' follow."""
    costs = {swizzle: -(-channel_bytes // (swizzle or PLAIN_BYTES)) * (swizzle or PLAIN_BYTES) for swizzle in SLICES}
    legal = [swizzle for swizzle, size in costs.items() if groups == 1 or size == channel_bytes]
    return min(legal, key=lambda swizzle: costs[swizzle] * SLICES[swizzle])


MOST_BLOCK_BYTES = 192
"""Of K in a stage of narrow slices, and of channels of 1x1 filters that are loaded so and not as a plain product."""


def block_for(slice_bytes: int, slices: int, places: int) -> int:
    """Bytes of K in a stage: of a filter of one place, whose slices are few and narrow, all there are.

    What would follow them in a stage of 128 bytes takes as long as they do. Of several places stages of 128 bytes are
    quicker, though slices lie behind the last one (H200: 32 channels, 3x3, 49.7 us, and 53.9 in stages of three).
    """
    block = -(-slices * slice_bytes // K_BYTES) * K_BYTES
    return block if places == 1 and slice_bytes < SWIZZLE_BYTES and block <= MOST_BLOCK_BYTES else SWIZZLE_BYTES


@dataclass(frozen=True)
class ConvProblem(MatmulProblem):
    """A product whose `a` are `Images`; a group is a matrix of a batch.

    Attributes
    ----------
    swizzle, im2col_b, block_bytes, lines
        As of a `ConvSpec`, or of a `ThreadSpec`.
    """

    swizzle: SwizzleBytes = SWIZZLE_BYTES
    im2col_b: bool = False
    block_bytes: int = SWIZZLE_BYTES
    lines: bool = False
    multiplied = "images"

    @property
    def read(self) -> float:
        """The part of A that lies in memory once: a pixel is part of several rows."""
        x: Any = self.a
        return float(min(1.0, x.count * x.y.extent * x.x.extent * x.channels / max(1, self.m * self.k)))


def read_convolution(x: ArrayView, w: ArrayView, y: Axis, along: Axis, groups: int) -> MatmulProblem:
    """Describe operands with channels last; a plain product where each output pixel is made of one pixel."""
    (count, *taps, channels), size = w.shape, w.dtype.bytes
    pitches, pitch = (pitches_of(x), pitches_of(w)), one_pitch(x)
    numbers = [[v.address, *(pitch * size for pitch in of)] for v, of in zip((x, w), pitches, strict=True)]
    filters, channel_bytes = (Axis("", taps[0], taps[0]), Axis("", taps[1], taps[1])), channels * size
    flat, filter_bytes = pitches[1][1:3] == (taps[1] * channels, channels), pitches[1].image * size
    tma = not (y.beyond_engine or along.beyond_engine or 0 in pitches[0][:3] or 0 in pitches[1][:3])
    tma = tma and not any(number % TMA_ALIGNMENT for of in numbers for number in of)
    narrow = slice_for(channel_bytes, 1) != SWIZZLE_BYTES and channel_bytes <= MOST_BLOCK_BYTES
    alone = taps == [1, 1] and (y.step, along.step, y.pad, along.pad) == (1, 1, 0, 0) and not narrow
    if tma and groups == 1 and alone and pitch:
        a = replace(x, shape=(prod(x.shape[:3]), channels), strides=(pitch, 1))
        return read_problem(a, replace(w, shape=(channels, count), strides=(1, pitches[1].image)))
    tma = tma and (groups == 1 or (flat and channel_bytes % TMA_ALIGNMENT == 0))
    swizzle = slice_for(channel_bytes, groups) if tma else SWIZZLE_BYTES
    im2col_b = tma and (not flat or bool(channel_bytes % (swizzle or PLAIN_BYTES) > 0))  # of a symbol it is one
    if im2col_b and any(axis.beyond_engine for axis in filters):
        tma, im2col_b, swizzle = False, False, SWIZZLE_BYTES
    row = (swizzle or PLAIN_BYTES) // size
    k = taps[0] * taps[1] * (-(-channels // row) * row if tma else channels)
    loads: list[Load] = ["tma" if tma else load_width([*of, channel_bytes]) for of in numbers]
    m, n = x.shape[0] * y.out * along.out, count // groups
    a_images = Images(
        name="x", dtype=x.dtype, extents=(k, m), pitch=pitches[0].pixel * size, batches=groups, load=loads[0],
        y=y, x=along, count=x.shape[0], channels=channels, pitches=pitches[0]._replace(group=channels),
    )  # fmt: skip
    b_images = Images(
        name="w", dtype=w.dtype, extents=(k, n), pitch=filter_bytes, batch_pitch=n * filter_bytes, batches=groups,
        load=loads[1], y=filters[0], x=filters[1], count=n, channels=channels,
        pitches=pitches[1]._replace(group=n * pitches[1].image),
    )  # fmt: skip
    block = block_for(row * size, k // row, taps[0] * taps[1]) if tma else SWIZZLE_BYTES
    problem = ConvProblem(m, n, k, groups, groups > 1, a_images, b_images, swizzle, im2col_b, block)
    return _by_lines(problem) if _in_lines(x, w, along) and groups == 1 and isinstance(loads[0], int) else problem


def _in_lines(x: ArrayView, w: ArrayView, along: Axis) -> bool:
    """Whether lines of images and filters are runs of elements, of words those of images, and pixels are no words."""
    size, channels = x.dtype.bytes, x.shape[3]
    if not channels * size % WORD or along.apart > 1 or x.strides[2] != channels or w.strides != c_strides(w.shape):
        return False
    of_images = [pitch * size for pitch in (*x.strides[:2], x.shape[2] * channels)]
    return not any(number % WORD for number in (x.address, w.address, prod(w.shape) * size, *of_images))


def _by_lines(problem: ConvProblem) -> ConvProblem:
    """The same product, K over lines of the filter instead of places: an element is a pixel of one channel."""
    images: Any = (problem.a, problem.b)
    piece = PIECE // images[0].dtype.bytes
    k = images[1].y.taps * -(-images[1].x.taps * images[0].channels // piece) * piece
    a, b = (
        replace(
            one,
            extents=(k, one.extents[1]),
            load=WORD,
            channels=1,
            pitches=one.pitches._replace(pixel=1),
            x=replace(
                one.x, **{name: getattr(one.x, name) * one.channels for name in ("extent", "taps", "step", "pad")}
            ),
        )
        for one in images
    )
    return replace(problem, k=k, a=a, b=b, lines=True)


def one_pitch(view: ArrayView) -> int | None:
    """Elements from pixel to pixel, if all are equally far apart."""
    pitch, passed = None, 1
    for extent, stride in reversed(list(zip(view.shape[:3], view.strides[:3], strict=True))):
        if extent > 1:
            pitch = stride if pitch is None else pitch
            if stride != pitch * passed and 0 not in view.shape:
                return None
        passed *= extent
    return view.shape[3] if pitch is None else pitch


def pitches_of(view: ArrayView) -> Pitches:
    """Elements from image, line and pixel to the next; where there is but one, as if packed, in whole 16 bytes."""
    (count, height, width, channels), unit = view.shape, TMA_ALIGNMENT // view.dtype.bytes
    pixel = view.strides[2] if width > 1 else -(-channels // unit) * unit
    line = view.strides[1] if height > 1 else width * pixel
    return Pitches(view.strides[0] if count > 1 else height * line, line, pixel)
