"""The spec and the arguments of the images' gradient in phases: one launch, whatever the stride."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

from tilekit.arrays import ArrayView
from tilekit.assembly.writer import Writer
from tilekit.kernels.conv2d.images import Axis
from tilekit.kernels.conv2d.phases import (
    PhasedAxis,
    PhasedEpilogue,
    PhasedFiltersLoader,
    PhasedImages,
    PhasedImagesLoader,
    PhaseScheduler,
)
from tilekit.kernels.conv2d.problem import ConvProblem, one_pitch, pitches_of
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.call import Matrix
from tilekit.tiles.operand import OperandTile

OF_PHASES = OwnComponents(scheduler=PhaseScheduler, epilogue=PhasedEpilogue)
"""What stands for the schedule of a raster, and for stores of rows that follow each other."""


@dataclass(frozen=True)
class PhasedSpec(ConvSpec):
    """A convolution over the gradient of a result for each remainder of the stride."""

    own_ranges = True

    def loader(
        self, operand: str, w: Writer, tile: OperandTile, copies: CopyPlan | None, stages: int, **tma: Any
    ) -> OperandLoader:
        """The loader of the result's gradient, or of the filters."""
        return (PhasedImagesLoader if operand == "a" else PhasedFiltersLoader)(w, tile, batched=self.batched, **tma)

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        return (
            "PhasedImagesLoader for TmaLoader of a: the copy engine goes over the result's gradient, for each phase",
            "PhasedFiltersLoader for TmaLoader of b: every stride-th place of filters, from the last one down",
            "PhaseScheduler for StaticScheduler: a phase's K",
            "PhasedEpilogue for StagedEpilogue: pixels a stride apart",
        )

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile."""
        own = "_own_scheduler_own_epilogue"
        return super().name.replace("conv2d", "conv2d_image_gradient", 1).replace(own, "_phases")


@dataclass(frozen=True, kw_only=True)
class PhasedArguments(MatmulArguments):
    """The arguments of a gradient of images in phases."""

    @classmethod
    def phased(
        cls, dy: ArrayView, w: ArrayView, axes: Sequence[Axis], out: ArrayView, *, scale: Any = None, **more: Any
    ) -> Self | None:
        """Those of a call; None where operands would have to be copied.

        Parameters
        ----------
        dy, w, axes
            The result's gradient and the filters, channels last, and how filters go over images.
        out
            The images' gradient, in C order.
        scale
            As `tilekit.conv2d` takes it.
        more
            The other fields.
        """
        (filters, *taps, channels), size, pitches = w.shape, w.dtype.bytes, pitches_of(dy)
        y, x = (PhasedAxis.of(axis) for axis in axes)
        if y is None or x is None or y.beyond_engine or x.beyond_engine or 0 in out.shape:
            return None
        numbers = dy.address, w.address, *(pitch * size for pitch in pitches[:3])
        flat = (taps[0] == 1 or w.strides[1] == taps[1] * channels) and w.strides[0] == prod(taps) * channels
        flat = flat and (taps[1] == 1 or w.strides[2] == channels) and w.strides[3] == 1
        if not flat or 0 in pitches[:3] or any(number % TMA_ALIGNMENT for number in numbers):
            return None
        phases, m = y.stride * x.stride, out.shape[0] * y.out * x.out
        k = -(-prod(taps) * filters // phases)  # of a phase, in the mean
        a = PhasedImages(
            name="dy", dtype=dy.dtype, extents=(k, m), pitch=pitches.pixel * size, batches=phases, y=y, x=x,
            count=out.shape[0], channels=filters, pitches=pitches,
        )  # fmt: skip
        b = Matrix("w", w.dtype, (channels, prod(taps)), channels * size, prod(taps) * channels * size, filters, "mn")
        problem = ConvProblem(m, channels, k, phases, True, a, b)
        rows = replace(out, shape=(prod(out.shape[:3]), channels), strides=(one_pitch(out) or 0, 1))
        given: EpilogueKeywords = {"scale": scale}
        more |= {"shape": rows.shape, "components": OF_PHASES}
        return cls.of(problem, dy, w, rows, out.dtype, given, **more)

    def spec_storing(self, store: str) -> MatmulSpec:
        """The convolution that stores in the way `store`."""
        return PhasedSpec(**vars(super().spec_storing(store)))
