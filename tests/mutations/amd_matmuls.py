"""Break the matmul family's kernels for AMD chips: `python -m tests.mutations.amd_matmuls [word …]` writes their page.

Of each driver, chip, type and synchronisation a kernel, as `tilekit.matmul` or `tilekit.scaled_matmul` launches it; of
each some of the mutations of executed lines, drawn once and for all. Every verdict goes to `results_amd_matmuls.md`.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import tilekit
from tests.block_scaled.operands import draw, laid_out
from tests.mutations.gcn import Mutation, mutations
from tests.mutations.gcn_sweep import Kernel, Verdict, executed_lines, judge
from tilekit.dtypes import as_dtype
from tilekit.emulator import LaunchReport
from tilekit.kernels.plan import EmulatedPlan

RESULTS = Path(__file__).with_name("results_amd_matmuls.md")
OF_EACH = 16
"""Mutations of a kernel."""

M, N = 130, 136
"""Tiles that end inside of the output, two of them a workgroup of two."""

K = {1: 784, 2: 336}
"""By bytes of an element: k-blocks that a loop loads and multiplies later, the last one partial."""


def _product(a_type: str, config: Any, **how: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
    """Kernel, operands, further arguments of a bind, and the exact result, of a product of small integers."""
    rng = np.random.default_rng(1)
    dtype = as_dtype(a_type)
    a, b = (rng.integers(-2, 3, (extent, K[dtype.bytes])).astype(dtype.numpy) for extent in (M, N))
    bias = rng.integers(-9, 10, N).astype(np.float32)
    kernel = tilekit.kernel_for(a, b.T, bias=bias, out_dtype="f32", target=config.TARGET, config=config, **how)
    return kernel, (a, b.T), {"bias": bias}, a.astype(np.float32) @ b.astype(np.float32).T + bias


def _scaled(kind: str, config: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
    """The same of a block-scaled product."""
    p = draw(kind, M, N, K[2], seed=3)
    given = (p.a, p.b, laid_out(p.scale_a), laid_out(p.scale_b))
    kernel = tilekit.scaled_kernel_for(*given, out_dtype="f32", target=config.TARGET, config=config)
    return kernel, given, {}, p.exact.astype(np.float32)


_3, _4 = tilekit.Cdna3Config, tilekit.Cdna4Config
MADE: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any], Any]]] = {
    "gfx950 bf16, one counter": partial(_product, "bf16", _4(tile=(128, 64), stages=3)),
    "gfx942 f16, two counters": partial(_product, "f16", _3(tile=(64, 64), mma_waves=2, counters=2)),
    "gfx950 bf16, ping-pong": partial(_product, "bf16", _4(driver="ping_pong")),
    "gfx942 bf16, ping-pong through registers": partial(_product, "bf16", _3(driver="ping_pong", stages=1)),
    "gfx942 e4m3fnuz, ping-pong, shared sums": partial(_product, "e4m3fnuz", _3(driver="ping_pong", split_k=2)),
    "gfx950 e5m2, interleaved": partial(_product, "e5m2", _4(driver="interleaved")),
    "gfx942 bf16, interleaved": partial(_product, "bf16", _3(driver="interleaved")),
    "gfx950 mxfp8": partial(_scaled, "mxfp8", _4(tile=(64, 64), mma_waves=2)),
    "gfx950 mxfp4": partial(_scaled, "mxfp4", _4(tile=(64, 64), mma_waves=2)),
}
"""What is broken."""

SPECIAL = ("wrong result", "harmless", "not caught")
"""Verdicts that are no report."""

REASONS = {
    (
        "gfx950 bf16, ping-pong",
        "s_waitcnt vmcnt(0)",
        "removed",
        "LdsWriter.wait",
    ): "harmless: loads return in order, and the bias, which is loaded behind these, is waited for before the next "
    "tile",
    (
        "gfx950 mxfp8",
        "s_waitcnt vmcnt(0) lgkmcnt(6)",
        "vmcnt one more",
        "BoundMfma.multiply",
    ): "harmless: what is under way are a tile's stores, and the next tile's first k-block waits for them where its "
    "sums are cleared; the wait is for a k-block that would come first and clear none",
}
"""Why what goes unnoticed is harmless: kernel, instruction, change, and what emitted it."""

SET_UP = ("elected drivers/roles.py", "Cluster.sync tiles/cluster.py")
"""The set-up of drivers without roles prepares nothing: what it orders are other components' writes."""


@cache
def framed(name: str) -> Kernel:
    """A kernel as the frame has kernels."""
    kernel, operands, further, expected = MADE[name]()

    def run(text: str, schedule: Any, seed: int) -> tuple[LaunchReport, bool]:
        broken, d = copy(kernel), np.full((M, N), np.nan, np.float32)
        broken.text = replace(kernel.text, assembly=text)
        plan = broken.bind(*operands, d, **further, seed=seed, schedule=schedule, multiprocessors=2)
        assert isinstance(plan, EmulatedPlan)
        return plan.emulate(), np.array_equal(d, expected)

    return Kernel("\n".join(plain(kernel.assembly)), run)


@cache
def origins(name: str) -> list[str]:
    """Lines of a kernel with what emitted them."""
    return MADE[name]()[0].assembly.splitlines()  # type: ignore[no-any-return]


def plain(text: str) -> Iterator[str]:
    """Lines as compilers lay them out: a tab before an instruction, and no origins behind it."""
    for line in text.splitlines():
        yield re.sub(r"^ +(?=\w)", "\t", re.sub(r" *//.*", "", line))


def chosen(name: str, count: int) -> list[Mutation]:
    """Some mutations of executed lines, always the same."""
    kernel = framed(name)
    executed, came_from = executed_lines(kernel), origins(name)
    found = [
        one
        for one in mutations(kernel.text)
        if one.line in executed and not any(words in came_from[one.line] for words in SET_UP)
    ]
    return random.Random(name).sample(found, min(count, len(found)))


def verdicts_of(name: str, count: int = OF_EACH) -> list[Verdict]:
    """What became of the chosen ones of a kernel."""
    with np.errstate(all="ignore"):
        return [judge(framed(name), one) for one in chosen(name, count)]


def section(name: str, verdicts: list[Verdict]) -> str:
    """What became of a kernel's mutations."""
    rows = [f"## {name}\n\n| line | instruction | from | change | caught by |\n|---|---|---|---|---|"]
    lines = framed(name).text.splitlines()
    for one in sorted(verdicts, key=lambda verdict: verdict.mutation.line):
        at, change, caught = one.mutation.line, one.mutation.change, one.caught
        source = origins(name)[at].partition("//@")[2].strip()
        if caught == "not caught":
            caught += f": {REASONS.get((name, lines[at].strip(), change, source.split()[1]), '**a gap**')}"
        rows.append(f"| {at + 1} | `{lines[at].strip()}` | {source} | {change} | {caught} |")
    return "\n".join(rows)


def page(sections: dict[str, str]) -> str:
    """All of them, and how many were noticed."""
    count = Counter(
        found if found in SPECIAL else "reported"
        for text in sections.values()
        for found in re.findall(r"^\| \d+ \|.* \| ([\w ]+)(?:: [^|]*)? \|$", text, re.M)
    )
    effective = count.total() - count["harmless"]
    noticed = effective - count["not caught"]
    head = (
        f"Written by `python -m tests.mutations.amd_matmuls`: {count.total()} mutations of {len(sections)} kernels of "
        f"`tilekit.matmul` and `tilekit.scaled_matmul`, {count['harmless']} of them without effect by the text alone; "
        f"of the other {effective}, {count['reported']} are reported, {count['wrong result']} show in the result, "
        f"and {count['not caught']} are not noticed: {100 * noticed / effective:.1f} % are."
    )
    return "\n\n".join(["# Mutations of the matmuls for AMD chips", head, *sections.values()]) + "\n"


def main(words: tuple[str, ...]) -> None:
    """Write the page; with words, the sections of kernels whose names have one of them anew."""
    standing = re.split(r"\n\n(?=## )", RESULTS.read_text("utf-8").rstrip())[1:] if words else []
    sections = dict.fromkeys(MADE, "") | {text.split("\n")[0].removeprefix("## "): text for text in standing}
    for name in MADE:
        if not words or any(word in name for word in words):
            found = verdicts_of(name)
            sections[name] = section(name, found)
            print(name, Counter(one.caught for one in found), flush=True)
    RESULTS.write_text(page(sections), "utf-8")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
