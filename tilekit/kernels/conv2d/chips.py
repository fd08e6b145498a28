"""Which chips convolutions are for, and what their specs have in common on chips that load in one way or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import TARGETS, Target

CHIPS = tuple(chip.name for chip in TARGETS.values() if chip.isa == "ptx")
"""Targets of convolutions."""


def goes_over_images(target: Target) -> bool:
    """Whether a chip's copy engine does, and its matrix instruction reads slices of channels as it brings them."""
    return target.has("copy_engine") and target.matrix_waves > 1


@dataclass(frozen=True)
class OfImages(MatmulSpec):
    """A matmul whose A are images."""

    own_loaders = True
    by_engine: ClassVar[bool] = True
    """Whether it is for chips with an engine that goes over images."""

    def check(self, target: Target) -> None:
        """Raise `ArgumentError` for what the components of `target` do not compute, and for chips of another kind."""
        if self.by_engine != goes_over_images(target):
            has = "has no engine that goes over images" if self.by_engine else "has an engine that goes over images"
            raise ArgumentError(
                f"a {type(self).__name__} for {target.name}, which {has}; nearest: the spec of "
                f"tilekit.conv2d_kernel_for(x, w, target={target.name!r})",
                code="TK-CONV-006",
            )
        super().check(target)
