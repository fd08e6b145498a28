"""Entries that hold one fragment and nothing else, and what ptxas says about a module of many of them."""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tilekit.assembly.fragment import Fragment, FragmentOperand, Immediate
from tilekit.assembly.fragment_files import every_fragment
from tilekit.assembly.instruction_sets import PTX
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.runtime.ptxas_log import diagnostics
from tilekit.runtime.toolchain import find_ptxas
from tilekit.targets import CHIPS, SM_90A, SM_100A, SM_120A

TARGETS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")

LACKING_ON_SM_120A = {"clusters", "cluster_launch_control", "tensor_memory"}
"""What earlier chips have, and RTX 50 has not, or has no use of here."""

CHIPS_BY_NAME = {
    **CHIPS,
    "sm_90": replace(SM_90A, name="sm_90", architectures=("sm_80", "sm_86", "sm_89", "sm_90")),
    "sm_100": replace(SM_100A, name="sm_100", architectures=("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")),
    "sm_120": replace(SM_120A, name="sm_120", architectures=("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")),
}
"""Also the chips without what is one generation's alone."""

_MESSAGE = re.compile(r"^ptxas .*$", re.MULTILINE)


def all_fragments() -> list[tuple[str, Fragment]]:
    """Every fragment with the name of its file."""
    return sorted(every_fragment(PTX), key=lambda found: found[0])


def claimed_targets(fragment: Fragment) -> list[str]:
    """The targets a fragment should assemble for: later ones too, unless the instruction is specific to one chip."""
    if fragment.target.endswith("a"):
        return [fragment.target]
    number = int(fragment.target.removeprefix("sm_"))
    return [
        t
        for t in TARGETS
        if int(re.sub(r"\D", "", t)) >= number
        and not (t == "sm_120a" and (number == 100 or fragment.needs & LACKING_ON_SM_120A))
    ]


@dataclass(frozen=True)
class Case:
    """A fragment with one choice of its immediates."""

    group: str
    fragment: Fragment
    immediates: tuple[tuple[str, Any], ...]

    @property
    def entry(self) -> str:
        """A symbol for the entry that holds it."""
        chosen = "_".join(str(value) for _, value in self.immediates)
        return f"{self.group}_{self.fragment.name}" + (f"_{chosen}" if chosen else "")


def cases(group: str, fragment: Fragment) -> Iterator[Case]:
    """The fragment at both ends of every range and at every alternative of its immediates."""
    names = [i.name for i in fragment.immediates]
    for choice in itertools.product(*(extremes(i) for i in fragment.immediates)):
        yield Case(group, fragment, tuple(zip(names, choice, strict=True)))


def extremes(immediate: Immediate) -> list[Any]:
    """Both ends of a range, or all alternatives."""
    values = immediate.values
    return [values[0], values[-1]] if isinstance(values, range) else list(values)


def module(chosen: list[Case], *, target: str, times: int = 1, version: tuple[int, int] | None = None) -> str:
    """A module with an entry for each case, holding its fragment `times` times on the same registers."""
    texts, newest = [], (0, 0)
    for case in chosen:
        w = Writer(case.entry, target=CHIPS_BY_NAME[target], threads=128)
        operands = {o.name: fresh(w, o, case) for o in case.fragment.operands if o.direction != "out"}
        for _ in range(times):
            w.place(case.fragment, **operands, **dict(case.immediates))
        head, entry, body = w.text().partition(".visible .entry")
        texts.append(entry + body)
        major, minor = re.search(r"\.version (\d+)\.(\d+)", head).groups()  # type: ignore[union-attr]
        newest = max(newest, (int(major), int(minor)))
    major, minor = version or newest
    head = f".version {major}.{minor}\n.target {target}\n.address_size 64\n"
    return head + ".extern .shared .align 1024 .b8 dynamic_smem[];\n" + "\n".join(texts)


def fresh(w: Writer, operand: FragmentOperand, case: Case) -> Value | RegisterTile:
    """Registers of the operand's type that nothing else uses."""
    if operand.length is None:
        return w.new(operand.type, operand.name, uniform=True)
    return w.tile(operand.type, operand.length or _registers(case), operand.name)


def _registers(case: Case) -> int:
    """Length of the one list of any length a fragment has, by its immediates: what one thread holds."""
    chosen = dict(case.immediates)
    if "n" in chosen:  # wgmma: an accumulator of 64 x n, spread over 128 threads
        return int(chosen["n"]) // 2
    return int(chosen["x"]) * (4 if "16x256b" in case.fragment.name else 1)


def ptxas_errors(text: str, target: str) -> list[str]:
    """What ptxas has against `text`, each message with the line it is about; empty if it assembles."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "module.ptx"
        source.write_text(text, encoding="utf-8")
        answer = subprocess.run(
            [find_ptxas().path, f"-arch={target}", source.name, "-o", "module.cubin"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if answer.returncode == 0:
        return []
    log = answer.stderr + answer.stdout
    lines = text.splitlines()
    return [
        f"{d.message} in {lines[d.line - 1].strip()!r}" if d.line else d.message for d in diagnostics(log)
    ] or _MESSAGE.findall(log)


@cache
def rejected(target: str, times: int) -> dict[str, list[str]]:
    """The errors of every fragment that claims `target`, by entry: one run of ptxas when there are none."""
    chosen = [c for g, f in all_fragments() if target in claimed_targets(f) for c in cases(g, f)]
    if not ptxas_errors(module(chosen, target=target, times=times), target):
        return {}
    single = {c.entry: ptxas_errors(module([c], target=target, times=times), target) for c in chosen}
    return {entry: errors for entry, errors in single.items() if errors}
