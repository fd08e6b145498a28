"""Mutations of the matmuls for AMD chips whose waves all load and multiply: what orders or addresses something."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest

import tilekit.compose as tk
from tests.compose.amd_schedules import matmul
from tests.compose.composed import integers, padded, run
from tests.mutations.gcn import Mutation, mutations
from tilekit.emulator import EmulatorError

KERNELS = {
    "ping-pong, past registers": ("gfx950", "ping_pong", tk.BufferToLdsLoader),
    "ping-pong, through registers": ("gfx942", "ping_pong", tk.BufferLoader),
    "interleaved": ("gfx950", "interleaved", tk.BufferToLdsLoader),
}
HARMLESS = ("elected drivers/roles.py", "setup Cluster.sync", "_Phases._through_registers drivers/ping_pong.py")
"""Where nothing depends on what is broken: the set-up, which writes nothing here."""


def kernel(name: str) -> tk.ComposedKernel:
    """One of them, with the smallest tile that its waves share out."""
    target, driver, load = KERNELS[name]
    return matmul(target, driver, load=load, tile=(128, 128), out=tk.F32)


def places(text: str) -> list[Mutation]:
    """Changes of the loop and what is around it; the text's lines stay where they are."""
    plain = [re.sub(r"^ +(?=\w)", "\t", re.sub(r" *//.*", "", line)) for line in text.splitlines()]
    return [one for one in mutations("\n".join(plain)) if one.family != "leaves"]


def noticed(name: str, mutation: Mutation) -> bool:
    """Whether a mutated kernel is refused, stopped, reported, or wrong."""
    made = kernel(name)
    made.__dict__["traced"] = replace(made.traced, text=mutation.apply(made.assembly.splitlines()))
    rng = np.random.default_rng(1)
    a, b, d = integers(rng, 2, 130, 264), integers(rng, 2, 120, 264), np.zeros((130, 120), np.float32)
    try:
        run(made, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=1)
    except (AssertionError, EmulatorError, ArithmeticError, ValueError):
        return True
    return not np.array_equal(d, a.astype(np.float32) @ b.astype(np.float32).T)


def chosen(name: str, count: int) -> list[Mutation]:
    """Some mutations of a kernel, always the same."""
    lines = kernel(name).assembly.splitlines()
    found = [one for one in places(kernel(name).assembly) if not any(word in lines[one.line] for word in HARMLESS)]
    return random.Random(name).sample(found, min(count, len(found)))


@pytest.mark.parametrize("name", KERNELS)
def test_some_mutations(name: str) -> None:
    """Four of each kernel are noticed."""
    assert all(noticed(name, one) for one in chosen(name, 4))


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_mutations(name: str) -> None:
    """Of 25 of each kernel nine in ten are noticed."""
    found = chosen(name, 25)
    missed = [one for one in found if not noticed(name, one)]
    print(f"{name}: {len(found) - len(missed)} of {len(found)} noticed; missed: {missed}")
    assert 10 * len(missed) <= len(found)
