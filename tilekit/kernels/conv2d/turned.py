"""The gradient of images as a convolution whose filters are turned as they are loaded, and not copied before.

The convolution goes over the gradient of the result; its K are places of the filter, and at each the filters. Column n
of its B is a channel: filters lie in memory with the channels behind each other, which the instruction takes, and
places are counted from the last one down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

from tilekit.arrays import ArrayView, c_strides
from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.chips import goes_over_images
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.problem import ConvProblem, one_pitch, read_convolution
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.payload_loader import OperandLoader, PrefetchedCopies
from tilekit.tile_io.tma import TMA_ALIGNMENT, BoundTmaLoader, Box, TmaBox, TmaLoader
from tilekit.tiles.call import Matrix
from tilekit.tiles.operand import SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage


@dataclass(frozen=True)
class TurnedSpec(ConvSpec):
    """A convolution over the gradient of a result, with turned filters."""

    def loader(
        self, operand: str, w: Writer, tile: OperandTile, copies: CopyPlan | None, stages: int, **tma: Any
    ) -> OperandLoader:
        """The loader of the result's gradient, or of the filters."""
        if operand == "b":
            return TurnedLoader(w, tile, **tma)
        return super().loader(operand, w, tile, copies, stages, **tma)

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        return *super().swaps, "TurnedLoader for TmaLoader of b: places of filters from the last one down"

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile."""
        return super().name.replace("conv2d", "conv2d_image_gradient", 1)


class TurnedLoader(TmaLoader):
    """Loads filters with K apart: a copy has channels of as many filters as a slice has K, at one place."""

    fragment = "load_3d"

    def __init__(self, w: Writer, tile: OperandTile, **how: Any) -> None:
        super().__init__(w, tile, **how)
        self.filters = w.parameter(f"{tile.name}_filters", U32, lambda call: call.matrix(tile.name).batches)
        self.places = w.parameter(f"{tile.name}_places", U32, lambda call: call.matrix(tile.name).extents[1])

    @property
    def box(self) -> TmaBox:
        """What one copy moves."""
        return replace(super().box, extents=(self.tile.chunk, 1, self.k_per_copy))

    def copies(self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand, k: Operand) -> PrefetchedCopies:
        """The copies of the channels from `row` on."""
        return Turned(w, bound, row, k)


class Turned:
    """The copies of one tile: the next filter, and the place, counted down."""

    def __init__(self, w: Writer, bound: BoundTmaLoader, row: Value, k: Operand) -> None:
        self._bound, self._row = bound, row
        self._at = self._begin(w, k)

    def _begin(self, w: Writer, k: Operand) -> tuple[Value, Value]:
        loader = self._bound.loader
        assert isinstance(loader, TurnedLoader)
        passed: Operand = k // loader.filters if isinstance(k, Value) else 0
        filter_ = k - passed * loader.filters if isinstance(passed, Value) else 0
        return w.variable(U32, filter_, "filter"), w.variable(U32, loader.places - 1 - passed, "place")

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start filling this CTA's part of `stage`: a copy a chunk of each slice."""
        self._bound.load(w, stage, self._boxes(w, *self._at))

    def prefetch(self, w: Writer, k: Operand) -> None:
        """Bring what :meth:`load` would load into L2."""
        self._bound.prefetch(w, self._boxes(w, *self._begin(w, k)))

    def _boxes(self, w: Writer, at: Value, place: Value) -> Iterator[Box]:
        loader, tile, own = self._bound.loader, self._bound.loader.tile, self._bound.first_k
        assert isinstance(loader, TurnedLoader)
        for part in range(tile.slices):
            for first in range(0, loader.extent, tile.chunk):
                yield part, first, {"x": self._row + first, "y": place, "z": at if own is None else at + own}
            following = at + tile.slice_k
            over = following >= loader.filters
            place.assign(w.select(over, place - 1, place))  # behind the first place there are zeros
            at.assign(w.select(over, 0, following))


@dataclass(frozen=True, kw_only=True)
class ImageGradientArguments(MatmulArguments):
    """The arguments of a convolution with turned filters."""

    @classmethod
    def turned(
        cls, dy: ArrayView, w: ArrayView, axes: Sequence[Axis], out: ArrayView, *, scale: Any = None, **more: Any
    ) -> Self | None:
        """Those of a call; None where operands have to be copied.

        Parameters
        ----------
        dy, w
            The result's gradient and the filters, channels last.
        axes
            How turned filters go over the former.
        out
            The images' gradient.
        scale
            As `tilekit.conv2d` takes it.
        more
            The other fields.
        """
        channels, places, size = w.shape[3], prod(w.shape[1:3]), w.dtype.bytes
        own = w.strides[0], w.strides[2], w.strides[3]
        flat = own == (places * channels, channels, 1) and (w.shape[1] == 1 or w.strides[1] == w.shape[2] * channels)
        turned = replace(w, shape=(channels, *w.shape[1:3], w.shape[0]))
        problem = read_convolution(dy, replace(turned, strides=c_strides(turned.shape)), axes[0], axes[1], 1)
        aligned = not (w.address | channels * size) % TMA_ALIGNMENT
        if not (isinstance(problem, ConvProblem) and problem.a.load == "tma" and flat and aligned):
            return None
        if problem.swizzle != SWIZZLE_BYTES or dy.shape[3] * size % SWIZZLE_BYTES or one_pitch(out) is None:
            return None
        b = Matrix("w", w.dtype, (channels, places), channels * size, places * channels * size, w.shape[0], "mn")
        rows = replace(out, shape=(prod(out.shape[:3]), channels), strides=(one_pitch(out) or 0, 1))
        given: EpilogueKeywords = {"scale": scale}
        return cls.of(replace(problem, b=b), dy, w, rows, out.dtype, given, **more)

    def spec_storing(self, store: str) -> MatmulSpec:
        """The convolution that stores in the way `store`."""
        return TurnedSpec(**vars(super().spec_storing(store)))


def turns_filters(w: ArrayView, groups: int, target: Target) -> bool:
    """Whether a chip loads such filters turned: they fill slices of K, and channels whole 16 bytes."""
    size = w.dtype.bytes
    fill = not (w.shape[0] * size % SWIZZLE_BYTES or w.shape[3] * size % TMA_ALIGNMENT)
    return groups == 1 and w.dtype.bits == 16 and fill and goes_over_images(target)
