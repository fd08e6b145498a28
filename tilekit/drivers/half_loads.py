"""Loads of halves of a stage's tiles, past registers: what schedules that overwrite a stage half by half start."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.buffer import Finding
from tilekit.tile_io.buffer_to_lds import Along
from tilekit.tile_op.quadrants import HALVES
from tilekit.tiles.stage import AsyncWriter, Step

Place = dict[str, list[Along]]
"""Where a k-block is in each operand."""


Images = dict[str, Value]
"""Where a wave writes in a stage, for each operand."""


class Loads(Protocol):
    """A tile's loads that pass no registers."""

    def image(self, w: Writer, stage: Value) -> Value:
        """Where a wave writes in a stage."""

    def along(self, w: Writer, k: Value) -> list[Along]:
        """Where a k-block is."""

    def finds(self, w: Writer, k: Value) -> list[tuple[Finding, Finding]]:
        """The same, found step by step."""

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
    """

    def __init__(self, w: Writer, writer: AsyncWriter, a: Loads, b: Loads) -> None:
        self._w, self._writer = w, writer
        self._loads = {"a": a, "b": b}

    def images(self, stage: Value) -> Images:
        """Where this wave writes in a stage, by operand."""
        return {side: loads.image(self._w, stage) for side, loads in self._loads.items()}

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

    def turn(self, held: Place, k: Value) -> list[Step]:
        """Steps that go on to the k-block from element `k` on."""
        w = self._w
        steps: list[Step] = []
        for side, loads in self._loads.items():
            for mine, findings in zip(held[side], loads.finds(w, k), strict=True):
                for register, finding in zip(mine, findings, strict=True):
                    steps += (*finding.before, partial(_assign, register, finding))
        return steps

    def steps(self, half: str, images: Images, place: Place) -> list[Step]:
        """The loads of a half to a stage, one by one; what calls them closes the group."""
        side, part = half[0], int(half[1])
        return self._loads[side].steps(self._w, images[side], place[side], part=part, parts=HALVES)

    def start(self, half: str, images: Images, place: Place) -> None:
        """Start a half's loads, a group of their own."""
        for step in self.steps(half, images, place):
            step()
        self._writer.commit(self._w)


def _assign(register: Value, find: Finding) -> None:
    register.assign(find.last())
