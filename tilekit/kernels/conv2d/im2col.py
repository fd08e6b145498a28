"""TileIO of convolutions on the copy engine: a box is a column of output pixels, at one place of the filter.

A k-block is a slice of channels at one place of the filter, or several slices where there are few channels. The loader
counts them as it goes, channels first, then columns and lines of the filter: a counter of mixed radix, whose digits are
found by division once a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.kernels.conv2d.images import corner, declare, images_of
from tilekit.tile_io.tma import MAP_SWIZZLES, BoundTmaLoader, Box, TmaLoader, describing
from tilekit.tiles.call import Call
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage

NOWHERE = 1 << 30
"""A channel that no image has; a copy begins at a multiple of 16 bytes."""


class Places:
    """Where in the filter a loader is: at a channel, and so many pixels right of the first place and below it.

    Parameters
    ----------
    w
        The writer.
    n
        The operand's numbers.
    k, step
        The first element of K, and how far the counter goes at once. Each place of the filter has whole steps.
    """

    def __init__(self, w: Writer, n: dict[str, Value], k: Operand, step: int) -> None:
        self._n, self._step = n, step
        digits: list[Operand] = [0, 0, 0]
        if isinstance(k, Value):
            steps, each = k // step, (n["channels"] + (step - 1)) // step
            place = steps // each
            line = place // n["taps_x"]
            digits = [(steps - place * each) * step, (place - line * n["taps_x"]) * n["apart_x"], line * n["apart_y"]]
        self.channel, self.right, self.down = (w.variable(U32, digit, "place") for digit in digits)

    def advance(self, w: Writer) -> None:
        """Go on by a step."""
        following = self.channel + self._step
        over = following >= self._n["channels"]
        self.channel.assign(w.select(over, 0, following))
        following = w.select(over, self.right + self._n["apart_x"], self.right)
        over = following >= self._n["end_x"]
        self.right.assign(w.select(over, 0, following))
        self.down.assign(w.select(over, self.down + self._n["apart_y"], self.down))


class Im2colLoader(TmaLoader):
    """Loads an operand of a convolution: its rows are output pixels, or filters, which the engine finds by itself."""

    fragment = "load_im2col"

    def __init__(self, w: Writer, tile: OperandTile, **how: Any) -> None:
        super().__init__(w, tile, **how)
        self.n = declare(w, tile)

    def describe(self, call: Call, channels: int = 0, pixels: int = 0) -> TensorMap:
        """The im2col map of the call's images; a copy has a slice's channels and a tile's pixels, or others."""
        images, tile = images_of(call, self.tile.name), self.tile
        with describing(images):
            return TensorMap.im2col(
                call.address(tile.name),
                images.dtype.tensor_map,
                (images.depth, images.x.extent, images.y.extent, images.count),
                [pitch * images.dtype.bytes for pitch in reversed(images.pitches[:3])],
                lower=(images.x.corners[0], images.y.corners[0]),
                upper=(images.x.corners[1], images.y.corners[1]),
                channels_per_pixel=channels or tile.slice_k,
                pixels_per_column=pixels or self.extent,
                element_strides=(1, images.x.step, images.y.step, 1),
                swizzle=MAP_SWIZZLES[tile.swizzle_bytes],
                l2_promotion=self.l2_promotion,
            )

    def copies(self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand, k: Operand) -> Pixels:
        """The copies of the pixels from `row` on."""
        return Pixels(w, bound, row, batch, k)


class Pixels:
    """The copies of one tile: the image, line and column of its first pixel, and the place of the filter."""

    def __init__(self, w: Writer, bound: Any, row: Value, batch: Operand, k: Operand) -> None:
        self._bound, self._tile, n = bound, bound.loader.tile, bound.loader.n
        image, y, x = corner(n, row)
        self._corner = {"x": x - n["pad_x"], "y": y - n["pad_y"], "image": image}
        self._group = batch * n["group_pitch"] if isinstance(batch, Value) else 0
        self._at = Places(w, n, k, self._tile.slice_k)

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start filling this CTA's part of `stage`: a copy a slice."""
        self._bound.load(w, stage, self._boxes(w, self._at))

    def prefetch(self, w: Writer, k: Operand) -> None:
        """Bring what :meth:`load` would load into L2."""
        self._bound.prefetch(w, self._boxes(w, Places(w, self._bound.loader.n, k, self._tile.slice_k)))

    def _boxes(self, w: Writer, at: Places) -> Iterator[Box]:
        for part in range(self._tile.slices):
            channel, down = at.channel + self._group, at.down
            if self._tile.slices > 1:  # a stage may end behind the last place
                behind = down >= self._bound.loader.n["end_y"]
                channel, down = w.select(behind, NOWHERE, channel), w.select(behind, 0, down)
            offsets = {"right": w.isa.convert.narrow_u16(wide=at.right), "down": w.isa.convert.narrow_u16(wide=down)}
            yield part, 0, {"c": channel, **self._corner, **offsets}
            at.advance(w)
