"""Where a role stands in a ring: the stage and the lap's parity, in registers of the role."""

from __future__ import annotations

from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer


class RingPosition:
    """Stage and parity of a role going round a ring of `stages`.

    A role waits for `phase` on the barrier that says its stage is ready for it. Stages start empty: one that `fills`
    them begins with parity 1, for which a barrier that has completed no phase lets it pass.
    """

    def __init__(self, w: Writer, stages: int, *, fills: bool = False) -> None:
        self._w = w
        self._stages = stages
        self.stage = w.variable(U32, 0, "stage")
        self.phase = w.variable(U32, int(fills), "phase")

    def advance(self) -> None:
        """Go on to the next stage."""
        w = self._w
        after = self.stage + 1
        wrapped = after == self._stages
        self.stage.assign(w.select(wrapped, 0, after))
        self.phase.assign(w.select(wrapped, self.phase ^ 1, self.phase))

    def before(self) -> Value:
        """The stage ahead of this one in the ring."""
        return self._w.select(self.stage == 0, self._stages, self.stage) - 1

    def exchange(self, other: RingPosition) -> None:
        """Take the place of `other`, a position in a ring of as many stages, and give it this one's."""
        w = self._w
        for mine, theirs in ((self.stage, other.stage), (self.phase, other.phase)):
            before = w.constant(U32, mine)
            mine.assign(theirs)
            theirs.assign(before)

    def skip(self, count: Value) -> None:
        """Go on by `count` stages, which are other roles' or warpgroups'.

        A barrier tells a lap from the one before it, but not from the one before that: a role that skips stages must
        not wait again until all of them have been waited for.
        """
        reached = self.stage + count
        laps = reached // self._stages
        self.stage.assign(reached - laps * self._stages)
        self.phase.assign(self.phase ^ (laps & 1))
