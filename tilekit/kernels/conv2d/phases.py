"""The gradient of images of a convolution with a stride, in one launch: a phase is an index of a batch.

With a stride of 2 pixels of even lines meet other places of a filter than those of odd lines. A phase are the pixels of
one remainder down and one along; its convolution has so many places of the filter, every stride-th, and goes over the
result's gradient without a stride. All phases have one matrix of rows, as many as the largest needs: loaders, schedule
and epilogue work out from the batch index where its pixels and places lie, and how long its K is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.epilogue.direct import DirectEpilogue
from tilekit.kernels.conv2d.im2col import NOWHERE, Im2colLoader, Places
from tilekit.kernels.conv2d.images import CORNERS, MAX_REACH, Axis, Images, corner, images_of
from tilekit.kernels.conv2d.turned import TurnedLoader
from tilekit.tile_io.payload_loader import PrefetchedCopies
from tilekit.tile_io.tma import BoundTmaLoader, Box
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tiles.call import Call, Schedule
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Tile


@dataclass(frozen=True)
class PhasedAxis(Axis):
    """How the places of all phases go over the result's gradient: without a stride, from before its first pixel.

    Attributes
    ----------
    stride
        Of the convolution: phases of this axis.
    origin
        Its padding.
    pixels
        Of an image of the gradient that is computed.
    """

    stride: int = 1
    origin: int = 0
    pixels: int = 1

    @classmethod
    def of(cls, axis: Axis) -> PhasedAxis | None:
        """That of a convolution; None where phases meet no place since stride and dilation have a divisor."""
        if gcd(axis.step, axis.apart) > 1:
            return None
        whole = cls(axis.name, axis.out, axis.taps, 1, 0, axis.apart, axis.step, axis.pad, axis.extent)
        firsts = [whole.first_read(tap) for tap in range(min(axis.step, axis.taps))]
        return cls(
            axis.name, axis.out, axis.taps, 1, max(0, -min(firsts)), axis.apart, axis.step, axis.pad, axis.extent
        )

    @property
    def shift(self) -> int:
        """The first pixel that place 0 meets, of all on both sides of an image's first."""
        return -self.origin % self.stride

    def first_read(self, tap: int) -> int:
        """Which pixel of the result's gradient the first pixel of the phase of place `tap` is made of first."""
        first = (tap * self.apart + self.shift) % self.stride
        taps = -(-(self.taps - tap) // self.stride)
        return (first + self.origin - tap * self.apart) // self.stride - self.apart * (taps - 1)

    @property
    def out(self) -> int:
        """Pixels of the longest phase."""
        return -(-self.pixels // self.stride)

    @property
    def corners(self) -> tuple[int, int]:
        """The engine's box: as many pixels as the longest phase has."""
        return -self.pad, self.out - self.extent - self.pad

    @property
    def beyond_engine(self) -> bool:
        """Whether a limit of the im2col engine is exceeded."""
        reach = self.pad + (self.stride - 1 + self.origin) // self.stride
        return reach > MAX_REACH or not all(CORNERS[0] <= corner <= CORNERS[1] for corner in self.corners)


@dataclass(frozen=True, kw_only=True)
class PhasedImages(Images):
    """The result's gradient, over which the filters of each phase go."""

    @property
    def depth(self) -> int:
        """Channels of a pixel: all phases read the same."""
        return self.channels


PLACES, PIXELS = ("taps",), ("shift", "apart")
"""What the places of a phase follow from, beside the stride, and what its pixels do."""


def declare_phases(w: Writer, name: str, of: tuple[str, ...], *more: str) -> dict[str, Value]:
    """Declare what phases follow from as kernel parameters that begin with `name`, and `more` of the images."""
    fields = [f"{field}_{axis}" for axis in "yx" for field in ("stride", *of)]
    return {field: w.parameter(f"{name}_{field}", U32, partial(_number, field)) for field in (*fields, *more)}


def _number(field: str, call: Call) -> int:
    return images_of(call, "a").number(field)


class Along:
    """A phase along one axis.

    Attributes
    ----------
    tap
        The first place of the filter that it meets; `stride` places on is the next one.
    """

    def __init__(self, n: dict[str, Value], axis: str, tap: Value) -> None:
        self._n, self._axis, self.tap = n, axis, tap

    def taps(self) -> Value:
        """How many places of the filter it meets."""
        stride = self._n[f"stride_{self._axis}"]
        return (self._n[f"taps_{self._axis}"] + (stride - 1) - self.tap) // stride

    def first(self) -> Value:
        """Its first pixel."""
        stride = self._n[f"stride_{self._axis}"]
        place = self.tap * self._n[f"apart_{self._axis}"] + self._n[f"shift_{self._axis}"]
        return place - place // stride * stride


class Phase:
    """The phase of a batch index, down and along: those with more places come first."""

    def __init__(self, n: dict[str, Value], batch: Operand) -> None:
        assert isinstance(batch, Value), "phases are a batch"
        down = batch // n["stride_x"]
        self.y, self.x = Along(n, "y", down), Along(n, "x", batch - down * n["stride_x"])


class PhaseScheduler:
    """Tiles of a static schedule, each with the K of its phase.

    Parameters
    ----------
    w
        The writer.
    raster
        The tiles.
    """

    yields_early = True

    def __init__(self, w: Writer, raster: RasterOrder) -> None:
        self._tiles = StaticScheduler(raster)
        self._n = declare_phases(w, "phase", PLACES, "channels")

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output."""
        return self._tiles.schedule(call)

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def ask(self, w: Writer) -> None:
        """Nothing to ask for."""

    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles."""
        for tile in self._tiles.tiles(w, role):
            phase = Phase(self._n, tile.batch)
            # K begins in a register, so that the driver asks of each tile whether its sum is empty.
            first = w.variable(U32, 0, "k_first")
            yield Tile(tile.row, tile.column, tile.batch, first, phase.y.taps() * phase.x.taps() * self._n["channels"])


class PhasedImagesLoader(Im2colLoader):
    """Loads the result's gradient: the engine goes over its pixels from where the first place of a phase reads."""

    def __init__(self, w: Writer, tile: OperandTile, **how: Any) -> None:
        super().__init__(w, tile, **how)
        self.phases = declare_phases(w, f"{tile.name}_phase", (*PLACES, *PIXELS), "origin_y", "origin_x")

    def copies(  # type: ignore[override]  # of a phase
        self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand, k: Operand
    ) -> PrefetchedCopies:
        """The copies of the pixels from `row` on."""
        return PhasedPixels(w, bound, row, batch)


class PhasedPixels:
    """The copies of one tile: where its first pixel reads, and the place of the filter, of those that the phase has."""

    def __init__(self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand) -> None:
        loader = bound.loader
        assert isinstance(loader, PhasedImagesLoader)
        self._bound, self._tile, n = bound, loader.tile, dict(loader.n)
        image, y, x = corner(n, row)
        self._corner = {"x": x - n["pad_x"], "y": y - n["pad_y"], "image": image}
        phase, self._from = Phase(loader.phases, batch), {}
        for axis, along in (("y", phase.y), ("x", phase.x)):
            stride, apart, taps = loader.phases[f"stride_{axis}"], n[f"apart_{axis}"], along.taps()
            n[f"taps_{axis}"], n[f"end_{axis}"] = taps, taps * apart
            # What is divided is a multiple of the stride, and not below 0.
            met = (along.first() + loader.phases[f"origin_{axis}"] + (stride - along.tap) * apart) // stride
            self._from[axis] = n[f"pad_{axis}"] + met - n[f"end_{axis}"]
        self._n, self._at = n, Places(w, n, 0, self._tile.slice_k)

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start filling this CTA's part of `stage`: a copy a slice."""
        self._bound.load(w, stage, self._boxes(w, self._at))

    def prefetch(self, w: Writer, k: Operand) -> None:
        """Bring what :meth:`load` would load first into L2."""
        self._bound.prefetch(w, self._boxes(w, Places(w, self._n, 0, self._tile.slice_k)))

    def _boxes(self, w: Writer, at: Places) -> Iterator[Box]:
        narrow = w.isa.convert.narrow_u16
        for part in range(self._tile.slices):
            behind = at.down >= self._n["end_y"]  # a stage may end behind the last place
            offsets = {
                "right": narrow(wide=w.select(behind, 0, at.right + self._from["x"])),
                "down": narrow(wide=w.select(behind, 0, at.down + self._from["y"])),
            }
            yield part, 0, {"c": w.select(behind, NOWHERE, at.channel), **self._corner, **offsets}
            at.advance(w)


class PhasedFiltersLoader(TurnedLoader):
    """Loads filters with K apart, of the places of a phase, from the last one down."""

    def __init__(self, w: Writer, tile: OperandTile, **how: Any) -> None:
        super().__init__(w, tile, **how)
        self.phases = declare_phases(w, f"{tile.name}_phase", PLACES)

    def copies(self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand, k: Operand) -> PrefetchedCopies:
        """The copies of the channels from `row` on."""
        return PhasedFilters(w, bound, row, batch)


class PhasedFilters:
    """The copies of one tile: the next filter, and the place of its phase, counted down."""

    def __init__(self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand) -> None:
        loader = bound.loader
        assert isinstance(loader, PhasedFiltersLoader)
        self._bound, self._loader, self._row, n = bound, loader, row, loader.phases
        phase = Phase(n, batch)
        self._last = [
            along.tap + (along.taps() - 1) * n[f"stride_{axis}"]
            for axis, along in zip("yx", (phase.y, phase.x), strict=True)
        ]
        self._at = self._begin(w)

    def _begin(self, w: Writer) -> tuple[Value, Value, Value]:
        filter_ = w.variable(U32, 0, "filter")
        return filter_, w.variable(U32, self._last[0], "line"), w.variable(U32, self._last[1], "place")

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start filling this CTA's part of `stage`: a copy a chunk of each slice."""
        self._bound.load(w, stage, self._boxes(w, *self._at))

    def prefetch(self, w: Writer, k: Operand) -> None:
        """Bring what :meth:`load` would load first into L2."""
        self._bound.prefetch(w, self._boxes(w, *self._begin(w)))

    def _boxes(self, w: Writer, at: Value, line: Value, place: Value) -> Iterator[Box]:
        loader, tile, own, n = self._loader, self._loader.tile, self._bound.first_k, self._loader.phases
        for part in range(tile.slices):
            lies = line * n["taps_x"] + place  # behind the phase's last line there are zeros
            for first in range(0, loader.extent, tile.chunk):
                yield part, first, {"x": self._row + first, "y": lies, "z": at if own is None else at + own}
            following = at + tile.slice_k
            over = following >= loader.filters
            passed = over & (place < n["stride_x"])
            at.assign(w.select(over, 0, following))
            line.assign(w.select(passed, line - n["stride_y"], line))
            place.assign(w.select(passed, self._last[1], w.select(over, place - n["stride_x"], place)))


class PhasedEpilogue(DirectEpilogue):
    """Threads store the pixels of a phase where they lie, a stride apart."""

    def __init__(self, w: Writer, *args: Any, **how: Any) -> None:
        super().__init__(w, *args, **how | {"batched": False})  # rows are those of all phases
        more = [f"{field}_{axis}" for axis in "yx" for field in ("out", "pixels")]
        self.phases = declare_phases(w, "out_phase", PIXELS, "count", *more)

    def placed(self, w: Writer, rows: list[Value], tile: Tile) -> list[tuple[Value, Value]]:
        """Which pixels they are: a shorter phase has fewer pixels of a line, and lines of an image."""
        n, phase, found = self.phases, Phase(self.phases, tile.batch), []
        first = phase.y.first(), phase.x.first()
        for row in rows:
            lines = row // n["out_x"]
            image = lines // n["out_y"]
            y = (lines - image * n["out_y"]) * n["stride_y"] + first[0]
            x = (row - lines * n["out_x"]) * n["stride_x"] + first[1]
            inside = (image < n["count"]) & (y < n["pixels_y"]) & (x < n["pixels_x"])
            found.append(((image * n["pixels_y"] + y) * n["pixels_x"] + x, inside))
        return found
