"""The gradient of filters as one product whose K goes over output pixels: the images' loader is all that is swapped.

Row m of its A is a filter, whose K are the pixels of the result's gradient; column n of its B a channel at a place of
the filter, and its K the pixels that this place meets. Both lie in memory with K apart, as the instruction reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.kernels.conv2d.chips import OfImages
from tilekit.kernels.conv2d.im2col import NOWHERE, Im2colLoader
from tilekit.kernels.conv2d.images import Images, corner, images_of
from tilekit.kernels.problem import MatmulProblem
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.payload_loader import OperandLoader, PrefetchedCopies
from tilekit.tile_io.tma import BoundTmaLoader, Box
from tilekit.tiles.call import Call
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage

CHUNK, NARROW_CHUNK = 64, 32
"""Channels of a copy, at most, and of those of narrower tiles."""


@dataclass(frozen=True, kw_only=True)
class MetImages(Images):
    """Images whose output pixels are K, in parts of so many that are summed apart: a batch.

    Attributes
    ----------
    part
        Output pixels of a part.
    """

    part: int

    @property
    def depth(self) -> int:
        """Channels of a pixel."""
        return self.channels


@dataclass(frozen=True)
class OverPixels(MatmulProblem):
    """A product whose `b` are `MetImages`."""

    multiplied = "images"

    @property
    def read_b(self) -> float:
        """The part of B that lies in memory once: a pixel is part of several columns."""
        x: Any = self.b
        return float(min(1.0, x.count * x.y.extent * x.x.extent * x.channels / max(1, self.n * self.k * self.batches)))


@dataclass(frozen=True)
class OverPixelsSpec(OfImages):
    """The gradient of filters: ``A`` is that of the result, and ``B`` are images.

    Attributes
    ----------
    channels
        What copies of B divide: a place of a filter has whole copies.
    """

    channels: int = CHUNK

    @property
    def place_channels(self) -> int:
        """The same."""
        return self.channels

    def loader(
        self, operand: str, w: Writer, tile: OperandTile, copies: CopyPlan | None, stages: int, **tma: Any
    ) -> OperandLoader:
        """The loader of the images, or the matmul's."""
        if operand == "b":
            return MetLoader(w, tile, batched=self.batched, **tma)
        return super().loader(operand, w, tile, copies, stages, **tma)

    @property
    def finds(self) -> tuple[bool, bool]:
        """The copy engine looks for the pixels of B one by one."""
        return False, True

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        return ("MetLoader for TmaLoader of b: the copy engine goes over images, along K",)

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile."""
        return super().name.replace("matmul", "conv2d_filter_gradient", 1)


class MetLoader(Im2colLoader):
    """Loads the images of a filters' gradient: a row of a copy has the channels of a pixel that one place meets."""

    def __init__(self, w: Writer, tile: OperandTile, **how: Any) -> None:
        super().__init__(w, tile, **how)
        self.n["part"] = w.parameter(f"{tile.name}_part", U32, lambda call: images_of(call, tile.name).number("part"))

    def describe(self, call: Call, channels: int = 0, pixels: int = 0) -> TensorMap:
        """The im2col map of the call's images: a copy has a chunk's channels, and as many pixels as a slice."""
        return super().describe(call, channels or self.tile.chunk, pixels or self.k_per_copy)

    def copies(  # type: ignore[override]  # of other pixels at each k-block
        self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand, k: Operand
    ) -> PrefetchedCopies:
        """The copies of the channels and places from `row` on."""
        return Met(w, bound, row, batch)


class Met:
    """The copies of one tile: for each chunk a channel and a place of the filter; pixels follow from K."""

    def __init__(self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand) -> None:
        self._bound, self._tile, loader = bound, bound.loader.tile, bound.loader
        assert isinstance(loader, MetLoader)
        self._n = n = loader.n
        own = bound.first_k
        self._first: Operand = 0 if own is None else own
        if isinstance(batch, Value):
            self._first = batch * n["part"] + self._first
        narrow = w.isa.convert.narrow_u16
        self._chunks = []
        for first in range(0, loader.extent, self._tile.chunk):
            place = (row + first) // n["channels"]
            line = place // n["taps_x"]
            down = line * n["apart_y"]
            behind = down >= n["end_y"]  # the tile ends behind the last place
            channel = w.select(behind, NOWHERE, (row + first) - place * n["channels"])
            right = narrow(wide=(place - line * n["taps_x"]) * n["apart_x"])
            self._chunks.append((first, {"c": channel, "right": right, "down": narrow(wide=w.select(behind, 0, down))}))

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start filling this CTA's part of `stage`: a copy a chunk of each slice."""
        self._bound.load(w, stage, self._boxes(w, k))

    def prefetch(self, w: Writer, k: Operand) -> None:
        """Bring what :meth:`load` would load into L2."""
        self._bound.prefetch(w, self._boxes(w, k))

    def _boxes(self, w: Writer, k: Operand) -> Iterator[Box]:
        n, pixel = self._n, self._first + (k if isinstance(k, Value) else w.constant(U32, k))
        for part in range(self._tile.slices):
            image, y, x = corner(n, pixel + part * self._tile.slice_k)
            at = {"x": x - n["pad_x"], "y": y - n["pad_y"], "image": image}
            for first, place in self._chunks:
                yield part, first, {**at, **place}
