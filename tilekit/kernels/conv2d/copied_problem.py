"""A convolution as a product, where threads copy pixels: K has no gaps, and whole pieces of filters a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tilekit.arrays import ArrayView, c_strides
from tilekit.kernels.conv2d.chips import goes_over_images
from tilekit.kernels.conv2d.copied_spec import CopiedSpec
from tilekit.kernels.conv2d.images import Axis, Images
from tilekit.kernels.conv2d.problem import ConvProblem, one_pitch, read_convolution
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.conv2d.threads import ThreadSpec
from tilekit.kernels.matmul.platforms import loaded_by
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.problem import MatmulProblem, load_width, read_problem
from tilekit.targets import Target
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.call import Load
from tilekit.tiles.operand import SWIZZLE_BYTES


class CopiedProblem(ConvProblem):
    """A `ConvProblem` for chips without an engine that goes over images."""


def read_on(target: Target, x: ArrayView, w: ArrayView, y: Axis, along: Axis, groups: int) -> MatmulProblem:
    """Describe operands as `read_convolution` does, as a chip can load them."""
    problem = read_convolution(x, w, y, along, groups)
    if goes_over_images(target):
        return problem
    pitch, (count, *taps, channels) = one_pitch(x), w.shape
    alone = taps == [1, 1] and (y.step, along.step, y.pad, along.pad, groups) == (1, 1, 0, 0, 1)
    if alone and pitch:  # whatever the pitch is a multiple of
        a = replace(x, shape=(prod(x.shape[:3]), channels), strides=(pitch, 1))
        return loaded_by(target, read_problem(a, replace(w, shape=(channels, count), strides=(1, w.strides[0]))))
    assert isinstance(problem, ConvProblem), "products have filters of one place"
    return _copied(problem, x, w)


def _copied(problem: ConvProblem, x: ArrayView, w: ArrayView) -> CopiedProblem:
    """The same convolution without slices, but for lines of a filter, which are filled up as threads load them."""
    a: Any = problem.a
    b: Any = problem.b
    if problem.lines:
        return CopiedProblem(**vars(problem))
    k, packed = prod(w.shape[1:]), c_strides(w.shape)
    apart = any(w.shape[axis] > 1 and w.strides[axis] != packed[axis] for axis in (1, 2))
    matrix = not apart and _width([w.address, b.pitch, k * w.dtype.bytes]) == "tma"
    a = replace(a, extents=(k, problem.m), load=_width(_pitches(a, x)))
    b = replace(b, extents=(k, problem.n), load="tma" if matrix else _width(_pitches(b, w)))
    whole: dict[str, Any] = {"swizzle": SWIZZLE_BYTES, "block_bytes": SWIZZLE_BYTES, "im2col_b": not matrix}
    return CopiedProblem(**vars(problem) | whole | {"k": k, "a": a, "b": b})


def _pitches(images: Images, view: ArrayView) -> list[int]:
    """Address and pitches, and the length of what lies at one place, in bytes."""
    return [view.address, *(number * view.dtype.bytes for number in (*images.pitches[:3], images.channels))]


def _width(numbers: Sequence[int]) -> Load:
    """How much threads copy at once of what lies at an address, is so far apart and so long; 16 bytes: ``"tma"``."""
    return load_width(numbers) if any(number % TMA_ALIGNMENT for number in numbers) else "tma"


def by_threads(plain: MatmulSpec, problem: ConvProblem) -> ConvSpec | None:
    """The convolution like a matmul, where threads load images; None where an engine does."""
    if isinstance(problem, CopiedProblem):
        return CopiedSpec(**vars(plain), im2col_b=problem.im2col_b, lines=problem.lines)
    return ThreadSpec(**vars(plain), lines=problem.lines) if plain.copies else None
