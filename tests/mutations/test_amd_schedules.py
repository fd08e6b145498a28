"""Mutations of the matmuls for AMD chips whose waves all load and multiply, judged as those of other kernels are."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilekit.compose as tk
from tests.compose.amd_schedules import matmul
from tests.compose.composed import integers, padded
from tests.mutations.gcn import Mutation, covered, mutations
from tests.mutations.gcn_sweep import Kernel, executed_lines, judge
from tilekit.emulator import LaunchReport
from tilekit.kernels.plan import EmulatedPlan

KERNELS = {
    "ping-pong, past registers": ("gfx950", "ping_pong", tk.BufferToLdsLoader),
    "ping-pong, through registers": ("gfx942", "ping_pong", tk.BufferLoader),
    "interleaved": ("gfx950", "interleaved", tk.BufferToLdsLoader),
}
HARMLESS = ("elected drivers/roles.py", "Cluster.sync tiles/cluster.py")
"""The set-up, which prepares nothing in these kernels: what it orders are other components' writes."""


def composed(name: str) -> tk.ComposedKernel:
    """One of them, with a small tile; it is traced when it is asked."""
    target, driver, load = KERNELS[name]
    return matmul(target, driver, load=load, tile=(128, 128), out=tk.F32)


@cache
def framed(name: str) -> Kernel:
    """The kernel as the frame has kernels: five k-tiles, the last one partial, and an output that ends inside tiles."""
    traced = composed(name).traced
    rng = np.random.default_rng(1)
    a, b = integers(rng, 2, 130, 312), integers(rng, 2, 120, 312)
    expected = a.astype(np.float32) @ b.astype(np.float32).T

    def run(text: str, schedule: Any, seed: int) -> tuple[LaunchReport, bool]:
        made, d = composed(name), np.zeros((130, 120), np.float32)
        made.__dict__["traced"] = replace(traced, text=text)
        plan = made.bind(padded(a), padded(b), d=d, seed=seed, emulator={"schedule": schedule})
        assert isinstance(plan, EmulatedPlan)
        return plan.emulate(), np.array_equal(d, expected)

    return Kernel("\n".join(plain(traced.text)), run)


def plain(text: str) -> Iterator[str]:
    """Lines as compilers lay them out: a tab before an instruction, and no origins behind it."""
    for line in text.splitlines():
        yield re.sub(r"^ +(?=\w)", "\t", re.sub(r" *//.*", "", line))


def chosen(name: str, count: int) -> list[Mutation]:
    """Some mutations of executed lines, always the same; none that the text alone says to change nothing."""
    kernel, origins = framed(name), composed(name).assembly.splitlines()
    lines, executed = kernel.text.splitlines(), executed_lines(kernel)
    found = [
        one
        for one in mutations(kernel.text)
        if one.line in executed
        and not any(words in origins[one.line] for words in HARMLESS)
        and not covered(lines, one)
    ]
    return random.Random(name).sample(found, min(count, len(found)))


def missed(name: str, count: int) -> list[Mutation]:
    """Those of the chosen ones that no check reports under any schedule, and whose results are right."""
    return [one for one in chosen(name, count) if judge(framed(name), one).caught == "not caught"]


def test_some_mutations() -> None:
    """Four of a kernel are noticed."""
    assert not missed("ping-pong, past registers", 4)


@pytest.mark.breadth
@pytest.mark.parametrize("name", KERNELS)
def test_mutations(name: str) -> None:
    """Of 25 of each kernel at most two pass, which change when something happens and not what."""
    assert len(missed(name, 25)) <= 2
