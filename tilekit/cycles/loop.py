"""From a text to a report: the loop is found, its paths are walked, its clocks replayed until they repeat."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from tilekit.cycles.machine import FIGURES, Machine
from tilekit.cycles.path import Flow, Path
from tilekit.cycles.replay import Run, WavePath, run
from tilekit.cycles.report import LoopReport, summarise
from tilekit.cycles.steps import BARRIER, BRANCH, LDS, LOAD, PRIORITY, SCALAR_LOAD, WAIT, Step, steps_of
from tilekit.emulator.core.errors import LaunchError, TextError, nearest
from tilekit.emulator.gcn.chips import CHIPS
from tilekit.emulator.gcn.language.parser import parse
from tilekit.emulator.gcn.language.syntax import Instruction, KernelText, ModuleText
from tilekit.errors import ArgumentError

__all__ = ["read_loop", "replay_loop"]

CODE, UNREADABLE, STUCK = "TK-CYCLES-001", "TK-CYCLES-005", "TK-CYCLES-006"
_KEPT_BEFORE: Final = {LDS, LOAD, SCALAR_LOAD, WAIT, BARRIER, PRIORITY}
"""What counts of the way to the loop: the order of waves, and what is outstanding when the loop begins."""
_TRIES: Final = ((4, 2), (10, 4), (32, 16))
"""Turns replayed, and how many of them are measured: more where they do not repeat soon."""
_ALIKE: Final = 500
_MOST_WAVES, _MOST_TURNS = 32, 4096


def replay_loop(
    text: str,
    *,
    kernel: str | None = None,
    loop: str | None = None,
    chip: str | None = None,
    waves: int | range | None = None,
    workgroups: int = 1,
    k_tiles: int = 1,
    lds_ways: int | Mapping[int, int] = 1,
    taken: Mapping[str, bool] | None = None,
    turns: Mapping[str, int] | None = None,
    **figures: int,
) -> LoopReport:
    """Replay a loop of AMDGCN text on all waves of a compute unit, and say how fast it is and what stalls.

    Parameters
    ----------
    text
        Assembly of any origin; a whole module, or instructions alone.
    kernel
        Its name; None for the only one.
    loop
        Label, or line, of the loop's first instruction; None for the innermost loop with MFMAs that each wave comes to.
    chip
        ``gfx942`` or ``gfx950``; None for that of ``.amdgcn_target``.
    waves
        Waves of a workgroup, or the numbers of those that are replayed, such as those that multiply; None for what the
        metadata says, 4 without.
    workgroups
        How many share the compute unit.
    k_tiles
        K-blocks that a turn of the loop works off.
    lds_ways
        How often LDS must be read for one access because of bank conflicts: for all, or by line. 1 without conflicts.
    taken
        Branches that the text does not decide, by the label that they go to.
    turns
        Loops within the loop, by label: how often they go round.
    **figures
        Figures of `Machine` that shall be others, such as ``load_latency``.

    Raises
    ------
    ArgumentError
        If an argument is not legal, there is no loop, or the text does not say what a wave executes.
    """
    module = _parsed(text)
    name = _kernel(module, kernel)
    target = _chip(module, chip)
    machine = _machine(target, figures)
    entry = module.kernels.get(name)
    numbers = waves if isinstance(waves, range) else range(_waves(entry, waves))
    count = len(numbers)
    for what, value in (("workgroups", workgroups), ("k_tiles", k_tiles)):
        _whole(what, value, 1, _MOST_WAVES)
    if count * workgroups > _MOST_WAVES:
        legal = f"at most {_MOST_WAVES // count} workgroups of {count} waves on a compute unit"
        raise ArgumentError.of("workgroups", workgroups, legal=legal, nearest=_MOST_WAVES // count, code=CODE)
    for label, often in (turns or {}).items():
        _whole(f"turns of {label}", often, 1, _MOST_TURNS)
    ways = lds_ways.values() if isinstance(lds_ways, Mapping) else [lds_ways]
    for value in ways:
        _whole("lds_ways", value, 1, 64)
    flow = _flow(module, name, entry)
    goal = None if loop is None else flow.named(loop)
    paths = [flow.path(wave, goal, taken, turns) for wave in numbers]
    built = _Builder(machine, flow.accumulators, lds_ways)
    replayed = [
        WavePath((group * count + wave) % machine.simds, group, *built.steps(path))
        for group in range(workgroups)
        for wave, path in enumerate(paths)
    ]
    for turns_made, measured in _TRIES:
        made = run(machine, replayed, turns_made)
        if any(len(starts) <= turns_made for starts in made.starts):
            late = [number for number, starts in enumerate(made.starts) if len(starts) <= turns_made]
            raise ArgumentError(
                f"waves {', '.join(map(str, late))} wait at an s_barrier that the others never reach: waves of a "
                "workgroup must meet equally often in a turn",
                code=STUCK,
            )
        if _settled(made, measured, machine):
            break
    return summarise(machine, name, paths * workgroups, replayed, made, measured, k_tiles)


def _settled(made: Run, measured: int, m: Machine) -> bool:
    """Whether the turns that are measured are alike, and loads from before the loop are over."""
    for starts in made.starts:
        turns = [after - before for before, after in pairwise(starts[-2 - measured :])]
        if (max(turns) - min(turns)) * _ALIKE > max(turns) or starts[-1 - measured] < 2 * m.load_latency:
            return False
    return True


def read_loop(
    text: str, loop: str | None, chip: str | None, figures: Mapping[str, int]
) -> tuple[Machine, int, list[Step]]:
    """Return the machine, the row of register a0, and the steps of a turn of wave 0's loop."""
    module = _parsed(text)
    name = _kernel(module, None)
    machine = _machine(_chip(module, chip), figures)
    flow = _flow(module, name, module.kernels.get(name))
    path = flow.path(0, None if loop is None else flow.named(loop))
    _, turn = _Builder(machine, flow.accumulators, 1).steps(path)
    return machine, flow.accumulators, turn


class _Builder:
    """Steps of paths; waves that execute the same share them."""

    def __init__(self, machine: Machine, accumulators: int, lds_ways: int | Mapping[int, int]) -> None:
        self.machine, self.accumulators, self.lds_ways = machine, accumulators, lds_ways
        self.known: dict[tuple[bool, tuple[tuple[int, bool], ...]], list[Step]] = {}

    def steps(self, path: Path) -> tuple[list[Step], list[Step]]:
        """The steps before the loop that matter to it, and those of a turn."""
        before = self._of(path.before, cyclic=False)
        return [step for step in before if step.kind in _KEPT_BEFORE], self._of(path.turn, cyclic=True)

    def _of(self, path: list[tuple[Instruction, bool]], *, cyclic: bool) -> list[Step]:
        key = (cyclic, tuple((id(i), goes) for i, goes in path))
        if key not in self.known:
            code = [i for i, _ in path]
            ways = self.lds_ways
            each = ways if isinstance(ways, int) else [ways.get(i.line, 1) for i in code]
            steps = steps_of(code, self.machine, accumulators=self.accumulators, ways=each, cyclic=cyclic)
            for step, (_, goes) in zip(steps, path, strict=True):
                if step.kind == BRANCH:
                    step.extra = int(goes)
            self.known[key] = steps
        return self.known[key]


# -- what was given --------------------------------------------------------------------------------------------------


def _parsed(text: str) -> ModuleText:
    try:
        module = parse(text)
    except TextError as error:
        where = f"line {error.line}: " if error.line else ""
        raise ArgumentError(f"the text is not AMDGCN assembly: {where}{error.message}", code=UNREADABLE) from None
    if not module.instructions:
        raise ArgumentError("the text has no instructions", code=UNREADABLE)
    if not module.kernels:
        last = module.instructions[-1]
        if last.name not in ("s_endpgm", "s_branch"):
            module.instructions.append(Instruction("s_endpgm", "", (), {}, last.line, last.column, "s_endpgm"))
    return module


def _flow(module: ModuleText, name: str, entry: KernelText | None) -> Flow:
    try:
        return Flow(module, name, entry.fields.get("accum_offset", 256) if entry else 256)
    except (TextError, LaunchError) as error:
        where = f"line {error.line}: " if error.line else ""
        raise ArgumentError(f"the kernel's code cannot be followed: {where}{error.message}", code=UNREADABLE) from None


def _kernel(module: ModuleText, kernel: str | None) -> str:
    names = list(module.kernels)
    if kernel is None and len(names) == 1:
        return names[0]
    if kernel is None and not names:
        return _whole_text(module)
    if kernel in names or (not names and kernel in module.labels):
        assert kernel is not None
        return kernel
    close = nearest(kernel, names) or names[0] if kernel and names else names[0] if names else None
    legal = f"one of {', '.join(names)}" if names else "a label of the text"
    raise ArgumentError.of("kernel", kernel, legal=legal, nearest=close, code=CODE)


def _whole_text(module: ModuleText) -> str:
    """The label of the first instruction; one is made where there is none."""
    for label, index in module.labels.items():
        if index == 0:
            return label
    module.labels["the text"] = 0
    return "the text"


def _chip(module: ModuleText, chip: str | None) -> str:
    target = chip or module.target
    if target in CHIPS:
        return target
    name = "chip" if chip else "chip (of .amdgcn_target)"
    close = nearest(target, CHIPS) or "gfx950"
    raise ArgumentError.of(name, target or None, legal=", ".join(CHIPS), nearest=close, code=CODE)


def _machine(chip: str, figures: Mapping[str, int]) -> Machine:
    names = [figure.name for figure in FIGURES]
    for name, value in figures.items():
        if name not in names:
            legal = f"a figure of the model: {', '.join(names)}"
            raise ArgumentError.of(name, value, legal=legal, nearest=nearest(name, names) or None, code=CODE)
        _whole(name, value, 0 if name in ("matrix_result", "packed_after_matrix", "barrier") else 1, 1_000_000)
    return Machine.of(chip, **figures)


def _waves(entry: KernelText | None, waves: int | None) -> int:
    if waves is None:
        return -(-(entry.threads or 256) // 64) if entry else 4
    _whole("waves", waves, 1, 16)
    return waves


def _whole(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        close = min(max(value, least), most) if isinstance(value, int) else least
        raise ArgumentError.of(name, value, legal=f"a whole number, {least} to {most}", nearest=close, code=CODE)
