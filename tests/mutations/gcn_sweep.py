"""Break kernels for AMD chips one place at a time: `python -m tests.mutations.gcn_sweep [word …]`.

Writes the tables of docs/mutations.md about them, and every single verdict to `results_gcn.md`. With words, the kernels
whose names have one of them are judged, and nothing is written.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

CORPUS = Path(__file__).parents[1] / "emulator" / "gcn" / "corpus"
sys.path[:0] = [str(CORPUS), str(CORPUS.parents[1] / "ptx" / "corpus")]

from corpus_case import compare  # noqa: E402
from hip_corpus import HipCase, emulate  # noqa: E402

from tests.assembly.gcn.smoke import SMOKE, Smoke  # noqa: E402
from tests.generated import with_tables  # noqa: E402
from tilekit.emulator import Device, EmulatorError, LaunchReport  # noqa: E402
from tilekit.emulator.gcn.chips import CHIPS  # noqa: E402
from tilekit.emulator.gcn.launch import Launch  # noqa: E402

from .gcn import ORDER, Mutation, covered, mutations  # noqa: E402

__all__ = ["KERNELS", "Verdict", "judge", "verdicts_of"]

PAGE = Path(__file__).parents[2] / "docs" / "mutations.md"
RESULTS = Path(__file__).with_name("results_gcn.md")
ORDERS = (("adversarial", 0), ("random", 1), ("fair", 0))
_BUDGET = 200_000
"""Basic blocks, counted in waves, after which a mutated kernel is taken to go round for ever."""
Run = Callable[[str, Any, int], tuple[LaunchReport, bool]]


@dataclass(frozen=True)
class Kernel:
    """A text, and what runs one like it under a schedule and a seed: the report, and whether the result is right."""

    text: str
    run: Run


def _foreign(name: str, chip: str) -> Kernel:
    case = HipCase(name, chip)
    return Kernel(case.text, partial(_run, case))


def _run(case: HipCase, text: str, schedule: Any, seed: int) -> tuple[LaunchReport, bool]:
    report, launch = emulate(case, seed=seed, drawn=0, schedule=schedule, image=text, step_budget=_BUDGET)
    try:
        compare(launch, report.printed)
    except AssertionError:
        return report, False
    return report, True


def _own(name: str, chip: str) -> Kernel:
    smoke = SMOKE[name](chip)
    # As compilers lay their texts out: a tab before an instruction, and no origins behind it.
    text = re.sub(r"^ +(?=\w)", "\t", re.sub(r" *//.*", "", smoke.text), flags=re.MULTILINE)
    return Kernel(text, partial(_run_own, smoke, chip))


def _run_own(smoke: Smoke, chip: str, text: str, schedule: Any, seed: int) -> tuple[LaunchReport, bool]:
    device = Device(chip, schedule=schedule, seed=seed)
    arguments = [argument.copy() if isinstance(argument, np.ndarray) else argument for argument in smoke.arguments]
    report = device.load(text)[smoke.entry].launch(smoke.grid, smoke.block, arguments, step_budget=_BUDGET)
    return report, np.array_equal(arguments[smoke.output], smoke.expected)


_NAMES = (
    ("softmax", "gfx942"), ("transpose", "gfx950"), ("amd_options_4", "gfx950"), ("amd_options_f64", "gfx950"),
    ("gluon_global_to_lds", "gfx950"), ("gluon_padded", "gfx942"), ("amd_last_block", "gfx950"),
    ("amd_matmul_16_rows", "gfx950"), ("amd_log_sum_exp", "gfx942"), ("amd_mx_e5m2_e4m3", "gfx950"),
    ("gluon_lds_ring_3", "gfx950"), ("spin_lock", "gfx942"), ("amd_decode_split", "gfx950"),
    ("gluon_scaled", "gfx950"), ("amd_matmul_16_rows", "gfx942"),
)  # fmt: skip
KERNELS: dict[str, Callable[[], Kernel]] = {f"{name}-{chip}": partial(_foreign, name, chip) for name, chip in _NAMES}
KERNELS |= {f"{name}-{chip}": partial(_own, name, chip) for chip in CHIPS for name in ("mfma_tile", "double_buffer")}
"""What is broken: a line for each kernel, of whatever origin."""


REASONS = {
    (
        "amd_options_f64-gfx950",
        "s_barrier",
        "removed",
    ): "harmless: the ring has two stages, and the barrier at the head of "
    "the loop lies between the reads of a stage and the writes of the turn after",
    (
        "gluon_global_to_lds-gfx950",
        "s_waitcnt vmcnt(1)",
        "vmcnt one more",
    ): "harmless: four stores of the turn before lie "
    "behind the load that is waited for, so that five operations may be under way",
    (
        "amd_mx_e5m2_e4m3-gfx950",
        "s_waitcnt lgkmcnt(0)",
        "lgkmcnt one more",
    ): "harmless: the last of the reads is of bytes that nothing writes afterwards",
    **{
        ("spin_lock-gfx942", "s_waitcnt vmcnt(0)", change): "**a gap**: stores that an `s_barrier` came after count as "
        "complete, with a remark, since Triton's kernels wait for those of one wave only: the kernel does so unbroken"
        for change in ("removed", "vmcnt one more")
    },
}
"""Why what goes unnoticed is harmless, where only an argument about the kernel says so: kernel, instruction, change."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutation: the kind of report, `wrong result`, `harmless` or `not caught`, and the words."""

    mutation: Mutation
    caught: str
    words: str = ""

    @property
    def reported(self) -> bool:
        """Whether the emulator said what is wrong."""
        return self.caught not in ("wrong result", "harmless", "not caught", "not executed")


def executed_lines(kernel: Kernel) -> set[int]:
    """The lines, from 0, that a run of the unbroken text comes to."""
    seen: set[int] = set()
    original = Launch.run

    def run(self: Launch) -> Any:
        report = original(self)
        for block, count in zip(self.program.blocks, self.counts, strict=True):
            if count:
                seen.update(i.line - 1 for i in block.instructions)
        return report

    Launch.run = run  # type: ignore[method-assign]
    try:
        report, right = kernel.run(kernel.text, *ORDERS[0])
    finally:
        Launch.run = original  # type: ignore[method-assign]
    assert right, "the unbroken kernel is wrong"
    assert report.clean, str(report)
    return seen


def judge(kernel: Kernel, mutation: Mutation) -> Verdict:
    """Run a mutated text until something is reported."""
    lines = kernel.text.splitlines()
    wrong = False
    for schedule, seed in ORDERS:
        try:
            report, right = kernel.run(mutation.apply(lines), schedule, seed)
        except EmulatorError as error:
            if error.title == "emulator defect":
                raise
            return Verdict(mutation, error.title, error.message)
        if report.findings:
            return Verdict(mutation, report.findings[0].kind, str(report.findings[0]))
        wrong |= not right
    if wrong:
        return Verdict(mutation, "wrong result")
    why = covered(lines, mutation)
    return Verdict(mutation, "harmless" if why else "not caught", why)


def verdicts_of(name: str) -> list[Verdict]:
    """The verdicts on the mutations of one kernel that it executes."""
    kernel = KERNELS[name]()
    with np.errstate(all="ignore"):
        executed = executed_lines(kernel)
        return [judge(kernel, mutation) for mutation in mutations(kernel.text) if mutation.line in executed]


def by_kernel(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """What became of the mutations of each kernel."""
    order = [v for found in verdicts.values() for v in found if v.mutation.family in ORDER]
    effective = [v for v in order if v.caught != "harmless"]
    noticed = sum(v.caught != "not caught" for v in effective)
    yield (
        f"{sum(map(len, verdicts.values()))} mutations of {len(verdicts)} kernels that are executed; {len(order)} of "
        f"them break order, {len(order) - len(effective)} of these without effect by the text alone; of the other "
        f"{len(effective)}, {sum(v.reported for v in effective)} are reported and {noticed} noticed "
        f"({100 * noticed / max(len(effective), 1):.1f} %).\n"
    )
    yield "| kernel | mutations | reported | wrong result | harmless | unnoticed: order | unnoticed: data |"
    yield "|---|---|---|---|---|---|---|"
    for name, found in verdicts.items():
        count = Counter("reported" if v.reported else v.caught for v in found)
        missed = Counter(v.mutation.family in ORDER for v in found if v.caught == "not caught")
        numbers = (
            f"{count['reported']} | {count['wrong result']} | {count['harmless']} | {missed[True]} | {missed[False]}"
        )
        yield f"| `{name}` | {len(found)} | {numbers} |"


def by_family(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """What caught the mutations of each family."""
    yield "| family | mutations | caught by |"
    yield "|---|---|---|"
    families: dict[str, Counter[str]] = {}
    for found in verdicts.values():
        for v in found:
            families.setdefault(f"{v.mutation.family}: {v.mutation.change}", Counter())[v.caught] += 1
    for family, caught in sorted(families.items()):
        yield f"| {family} | {caught.total()} | {', '.join(f'{what} ({n})' for what, n in caught.most_common())} |"


def unnoticed(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """What breaks order by its text, and nothing noticed, with the reason."""
    yield "| kernel | line | instruction | change | |"
    yield "|---|---|---|---|---|"
    for name, found in verdicts.items():
        lines = KERNELS[name]().text.splitlines()
        for v in found:
            m = v.mutation
            if v.caught == "not caught" and m.family in ORDER:
                instruction = lines[m.line].split(";")[0].strip()
                why = REASONS.get((name, instruction, m.change), "**a gap**")
                yield f"| `{name}` | {m.line + 1} | `{instruction}` | {m.change} | {why} |"


def results(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """All of them."""
    yield "# Every mutation of kernels for AMD chips\n"
    yield "Written by `python -m tests.mutations.gcn_sweep`; [docs/mutations.md](../../docs/mutations.md) tells of it."
    for name, found in verdicts.items():
        yield f"\n## {name}\n\n| line | instruction | change | caught by |\n|---|---|---|---|"
        lines = KERNELS[name]().text.splitlines()
        for v in found:
            m = v.mutation
            yield f"| {m.line + 1} | `{lines[m.line].split(';')[0].strip()}` | {m.change} | {v.caught} |"


def main(words: tuple[str, ...]) -> None:
    """Run the sweep."""
    chosen = [name for name in KERNELS if not words or any(word in name for word in words)]
    verdicts = {}
    for name in chosen:
        verdicts[name] = found = verdicts_of(name)
        missed = [v for v in found if v.caught == "not caught" and v.mutation.family in ORDER]
        print(f"{name}: {len(found)} mutations, {len(missed)} that break order unnoticed", flush=True)
        lines = KERNELS[name]().text.splitlines()
        for v in missed:
            print(f"  line {v.mutation.line + 1}: {lines[v.mutation.line].strip()}: {v.mutation.change}", flush=True)
    if words:
        return
    RESULTS.write_text("\n".join(results(verdicts)) + "\n", "utf-8")
    tables = {"gcn": by_kernel(verdicts), "gcn-families": by_family(verdicts), "gcn-unnoticed": unnoticed(verdicts)}
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), tables), "utf-8")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
