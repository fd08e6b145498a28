"""What a replay comes to: clocks a turn, the matrix cores' share, what they waited for, and a picture of the turn."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tilekit.cycles.drawing import draw
from tilekit.cycles.machine import Machine
from tilekit.cycles.path import Path
from tilekit.cycles.replay import CAUSES, Run, Stall, WavePath
from tilekit.cycles.steps import MATRIX, product_of

__all__ = ["LoopReport", "Lost", "summarise"]

_ISSUE: Final = "issue"
"""The cause of clocks in which the wave did not wait: it issued what stands between two MFMAs."""
_SHOWN: Final = 8


@dataclass(frozen=True)
class Lost:
    """Clocks of a turn that went to one cause at one instruction.

    Attributes
    ----------
    cause
        A word of `tilekit.cycles.replay.CAUSES`, or ``issue``: instructions between two MFMAs took their slots.
    line, text
        The instruction that waited.
    clocks
        A turn, on average over SIMDs or waves.
    """

    cause: str
    line: int
    text: str
    clocks: float


@dataclass(frozen=True)
class LoopReport:
    """How a loop runs on a compute unit, by the model.

    Attributes
    ----------
    chip, kernel, loops
        What was replayed; the loop of every wave, by its label or line.
    waves, workgroups
        Waves of a workgroup, and workgroups on the compute unit.
    clocks
        Of a turn: the mean of the waves that multiply.
    k_tiles
        K-blocks of a turn, as the caller said.
    busy
        Share of the clocks in which each SIMD's matrix core works.
    flop
        FLOP of a turn, of all waves.
    peak_share
        FLOP a clock, over the most that the chip's matrix cores do with factors of these types.
    instructions
        Of a turn of the first wave.
    idle
        What the matrix cores lost, a turn of a SIMD: cause and instruction, the largest first.
    waits
        What waves waited for beside the matrix core, a turn of a wave, the largest first.
    remarks
        Branches that the text does not decide.
    schedule
        A turn, drawn wave by wave.
    """

    chip: str
    kernel: str
    loops: tuple[str, ...]
    waves: int
    workgroups: int
    clocks: float
    k_tiles: int
    busy: tuple[float, ...]
    flop: int
    peak_share: float
    instructions: int
    idle: tuple[Lost, ...]
    waits: tuple[Lost, ...]
    remarks: tuple[str, ...]
    schedule: str

    @property
    def clocks_per_k_tile(self) -> float:
        """Clocks of a k-block."""
        return self.clocks / self.k_tiles

    @property
    def utilisation(self) -> float:
        """Share of the clocks in which a matrix core works, the mean of the SIMDs."""
        return sum(self.busy) / len(self.busy)

    def idle_by_cause(self) -> dict[str, float]:
        """Clocks of a turn that a matrix core lost to each cause, the largest first."""
        return _by_cause(self.idle)

    def facts(self) -> dict[str, Any]:
        """Everything, as JSON takes it."""
        return {
            **asdict(self),
            "clocks_per_k_tile": self.clocks_per_k_tile,
            "utilisation": self.utilisation,
            "idle_by_cause": self.idle_by_cause(),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        loops = ", ".join(dict.fromkeys(self.loops))
        groups = f" of {self.workgroups} workgroups" if self.workgroups > 1 else ""
        yield f"{self.kernel} on {self.chip}: loop {loops}, {self.waves} waves{groups}, by the model"
        per = f", {self.clocks_per_k_tile:.0f} a k-block" if self.k_tiles > 1 else ""
        yield f"  {self.clocks:.0f} clocks a turn{per}; {self.instructions} instructions a wave"
        if not any(self.busy):
            yield "  there is no MFMA in the loop"
        else:
            rate = f"{self.flop / self.clocks:.0f} FLOP a clock, {self.peak_share:.1%} of peak"
            yield f"  matrix cores busy {self.utilisation:.1%}; {rate}"
        for title, lost in (("matrix cores idle", self.idle), ("waves wait", self.waits)):
            total = sum(one.clocks for one in lost)
            if total < 0.05:
                continue
            causes = ", ".join(f"{cause} {clocks:.0f}" for cause, clocks in _by_cause(lost).items() if clocks >= 0.5)
            yield f"  {title} {total:.0f} clocks a turn: {causes}"
            for one in lost[:_SHOWN]:
                yield f"    {one.clocks:7.1f}  {one.cause:17}  line {one.line}: {one.text}"
        for remark in self.remarks:
            yield f"  {remark}"
        yield from self.schedule.split("\n")


def _by_cause(lost: Sequence[Lost]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for one in lost:
        found[one.cause] += one.clocks
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def summarise(
    m: Machine,
    kernel: str,
    paths: Sequence[Path],
    replayed: Sequence[WavePath],
    made: Run,
    measured: int,
    k_tiles: int,
) -> LoopReport:
    """Make a report of a replay, from its last `measured` turns."""
    periods = [(starts[-1] - starts[-1 - measured]) / measured for starts in made.starts]
    multiplying = [number for number, path in enumerate(paths) if path.loop.products] or list(range(len(paths)))
    clocks = sum(periods[number] for number in multiplying) / len(multiplying)
    busy = [0.0] * m.simds
    flop, share = 0, 0.0
    for wave, period in zip(replayed, periods, strict=True):
        for step in wave.turn:
            if step.kind == MATRIX:
                busy[wave.simd] += step.busy / period
                product = product_of(step.instruction, m.chip)
                if product:
                    flop += product.flop
                    share += product.flop / product.peak / period
    workgroups = max(wave.workgroup for wave in replayed) + 1
    used = sorted({wave.simd for wave in replayed})
    return LoopReport(
        m.chip,
        kernel,
        tuple(path.loop.name for path in paths),
        len(paths) // workgroups,
        workgroups,
        clocks,
        k_tiles,
        tuple(busy),
        flop,
        share,
        len(replayed[0].turn),
        _idle(m, replayed, made, measured, used),
        _waits(replayed, made, measured),
        tuple(dict.fromkeys(remark for path in paths for remark in path.remarks)),
        draw(m, replayed, made, measured),
    )


def _idle(m: Machine, replayed: Sequence[WavePath], made: Run, measured: int, used: Sequence[int]) -> tuple[Lost, ...]:
    """What the gaps between MFMAs went to: what the wave whose MFMA ends a gap waited for in it, or its issue."""
    found: dict[tuple[str, int, str], float] = defaultdict(float)
    ends = [[stall.end for stall in stalls] for stalls in made.stalls]
    for simd in used:
        own = [number for number, wave in enumerate(replayed) if wave.simd == simd]
        first = made.starts[own[0]][-1 - measured]
        last = made.starts[own[0]][-1]
        for start, end, number, place in made.gaps[simd]:
            start, end = max(start, first), min(end, last)
            if start >= end:
                continue
            rest = end - start
            stalls = made.stalls[number]
            for stall in stalls[bisect_left(ends[number], start) :]:
                if stall.start >= end:
                    break
                common = min(stall.end, end) - max(stall.start, start)
                if common > 0:
                    rest -= common
                    found[_key(replayed[number], stall)] += common
            if rest > 0:
                i = replayed[number].turn[place].instruction
                found[_ISSUE, i.line, i.text] += rest
    return _sorted(found, measured * len(used))


def _waits(replayed: Sequence[WavePath], made: Run, measured: int) -> tuple[Lost, ...]:
    found: dict[tuple[str, int, str], float] = defaultdict(float)
    for wave, stalls, starts in zip(replayed, made.stalls, made.starts, strict=True):
        first, last = starts[-1 - measured], starts[-1]
        for stall in stalls:
            common = min(stall.end, last) - max(stall.start, first)
            if common > 0 and stall.cause:
                found[_key(wave, stall)] += common
    return _sorted(found, measured * len(replayed))


def _key(wave: WavePath, stall: Stall) -> tuple[str, int, str]:
    i = wave.turn[stall.place].instruction if stall.place >= 0 else wave.before[-1].instruction
    return CAUSES[stall.cause], i.line, i.text


def _sorted(found: dict[tuple[str, int, str], float], over: int) -> tuple[Lost, ...]:
    lost = [Lost(cause, line, text, clocks / over) for (cause, line, text), clocks in found.items()]
    return tuple(sorted(lost, key=lambda one: (-one.clocks, one.line, one.cause)))
