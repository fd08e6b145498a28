"""Loads of halves of a stage's tiles, past registers: what schedules that overwrite a stage half by half start."""

from __future__ import annotations

from typing import Final, Protocol

from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.buffer import Along
from tilekit.tile_op.quadrants import HALVES
from tilekit.tiles.stage import AsyncWriter, Step

SIDES: Final = ("a", "b")

Place = dict[str, list[Along]]
"""Where a k-block is in each operand."""


class Loads(Protocol):
    """A tile's loads that pass no registers."""

    def image(self, w: Writer, stage: Value) -> Value:
        """Where a wave writes in a stage."""

    def along(self, w: Writer, k: Value) -> list[Along]:
        """Where a k-block is."""

    def steps(self, w: Writer, image: Value, along: list[Along], *, part: int, parts: int) -> list[Step]:
        """The loads of a part of the rows, one by one."""


class HalfLoads:
    """The loads of an output tile: halves are called ``a0``, ``a1``, ``b0`` and ``b1``.

    Parameters
    ----------
    w
        The writer.
    writer
        What groups them: a half's loads are a group.
    a, b
        The operands' loads.
    stages
        Stages of the ring.
    """

    def __init__(self, w: Writer, writer: AsyncWriter, a: Loads, b: Loads, stages: int) -> None:
        self._w, self._writer = w, writer
        self._loads = {"a": a, "b": b}
        self._images = {
            side: [loads.image(w, w.constant(U32, stage)) for stage in range(stages)]
            for side, loads in self._loads.items()
        }

    def along(self, k: Value) -> Place:
        """Where the k-block from element `k` on is."""
        return {side: loads.along(self._w, k) for side, loads in self._loads.items()}

    def held(self, place: Place) -> Place:
        """The same in registers that `turn` changes."""
        w = self._w
        return {
            side: [Along(*(w.variable(U32, value, "along") for value in each)) for each in along]
            for side, along in place.items()
        }

    def turn(self, held: Place, k: Value) -> None:
        """Go on to the k-block from element `k` on."""
        for side, along in self.along(k).items():
            for mine, theirs in zip(held[side], along, strict=True):
                for register, value in zip(mine, theirs, strict=True):
                    register.assign(value)

    def steps(self, half: str, stage: int | Value, place: Place) -> list[Step]:
        """The loads of a half to a stage, one by one; what calls them closes the group."""
        side, part = half[0], int(half[1])
        image = self._images[side][stage] if isinstance(stage, int) else self._loads[side].image(self._w, stage)
        return self._loads[side].steps(self._w, image, place[side], part=part, parts=HALVES)

    def start(self, half: str, stage: int | Value, place: Place) -> None:
        """Start a half's loads, a group of their own."""
        for step in self.steps(half, stage, place):
            step()
        self._writer.commit(self._w)
