"""The operands of a convolution as matrices: a row an output pixel, or a filter; K goes over a filter's places."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.call import Call, Matrix, fits
from tilekit.tiles.operand import OperandTile

MAX_STEP, MAX_REACH, CORNERS = 8, 255, (-128, 127)
"""Limits of the im2col engine with images: stride, how far a filter reaches, corners (cuTensorMapEncodeIm2col)."""


@dataclass(frozen=True)
class Axis:
    """How filters go along lines of an image, or across them.

    Attributes
    ----------
    name
        For messages.
    extent, taps
        Pixels of an image, and places of a filter.
    step, pad, apart
        Stride, padding at either end, and dilation.
    """

    name: str
    extent: int
    taps: int
    step: int = 1
    pad: int = 0
    apart: int = 1

    @property
    def end(self) -> int:
        """How far behind a filter's first place the one after its last would be."""
        return self.taps * self.apart

    @property
    def out(self) -> int:
        """Output pixels; less than one where the filter is larger than the padded image."""
        return (self.extent + 2 * self.pad - (self.end - self.apart) - 1) // self.step + 1

    @property
    def corners(self) -> tuple[int, int]:
        """The engine's box: where a filter's first place reads first, and how far before the image's end last."""
        return -self.pad, self.pad - (self.end - self.apart)

    @property
    def beyond_engine(self) -> bool:
        """Whether a limit of the im2col engine is exceeded."""
        inside = all(CORNERS[0] <= corner <= CORNERS[1] for corner in self.corners)
        return self.step > MAX_STEP or self.end - self.apart > MAX_REACH or not inside


class Pitches(NamedTuple):
    """Elements from one image, line and pixel to the next; and from one group's channels, or filters."""

    image: int
    line: int
    pixel: int
    group: int = 0


@dataclass(frozen=True, kw_only=True)
class Images(Matrix):
    """Images as filters go over them: a matrix of pixels by places and channels that is nowhere in memory.

    Filters are images too, of which each has one output pixel.

    Attributes
    ----------
    y, x
        How filters go down and along.
    count, channels
        Images, and their channels, of a group.
    pitches
        How far apart they lie.
    """

    y: Axis
    x: Axis
    count: int
    channels: int
    pitches: Pitches

    @property
    def depth(self) -> int:
        """Channels of a pixel, those of all groups."""
        return self.channels * self.batches

    def number(self, name: str) -> int:
        """A number as a kernel counts it: ``count``, ``channels``, ``step_y`` of an axis, ``line_pitch`` and so on."""
        field, _, of = name.rpartition("_")
        owner = {"y": self.y, "x": self.x, "pitch": self.pitches}[of] if field else self
        return fits(f"{self.name}: {name}", getattr(owner, field or name), code="TK-CONV-004")


def declare(w: Writer, tile: OperandTile, *more: str) -> dict[str, Value]:
    """Declare the numbers of a call's `Images` as kernel parameters: those of both axes, channels, and `more`."""
    axes = [f"{field}_{axis}" for axis in "yx" for field in ("end", "apart", "out", "step", "pad")]
    names = (*axes, "taps_x", "channels", "group_pitch", *more)
    return {name: w.parameter(f"{tile.name}_{name}", U32, partial(_number, tile.name, name)) for name in names}


def _number(matrix: str, name: str, call: Call) -> int:
    return images_of(call, matrix).number(name)


def images_of(call: Call, name: str) -> Images:
    """The call's operand `name`."""
    return cast(Images, call.matrix(name))


def corner(n: dict[str, Value], row: Value) -> tuple[Value, Value, Value]:
    """The image of an output pixel, and from where its filter reads, but for the padding: down and along."""
    lines = row // n["out_x"]
    image = lines // n["out_y"]
    return image, (lines - image * n["out_y"]) * n["step_y"], (row - lines * n["out_x"]) * n["step_x"]
