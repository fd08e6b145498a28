"""Each instruction of what the family has of its own is broken once: the result is wrong, or the emulator says why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.block_scaled.operands import draw, laid_out
from tilekit.emulator import EmulatorError
from tilekit.errors import FindingWarning, TilekitError

OWN = re.compile(r"//@ \w+ (BoundScaleLoader|BoundBlockScaled)\.|\.block_scale\.")
"""Comments of lines that the components emitted."""

SAMPLE = 8
"""Mutants of each kernel, spread over its text: all of them take minutes."""

PAIR = tilekit.BlackwellConfig(tile=(128, 128), accumulator_stages=1, clc_stages=0, stages=2)
SINGLE = replace(PAIR, cta_group=1, cluster=(1, 1))


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """What was broken, and the text: an instruction left out, a number that is another, scales that change places."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        code, _, _ = line.partition("//")
        if not OWN.search(line) or not code.strip().endswith(";"):
            continue

        def broken(instead: str, at: int = at) -> str:
            return "\n".join([*lines[:at], instead, *lines[at + 1 :]])

        words = code.strip()
        if words.startswith(("tcgen05.cp", "cp.async.bulk")):
            yield f"left out: {words}", broken("")
        number = re.search(r"(?<=[ ,])(\d+)(?=;)", words)
        # Bits that nothing reads, and another free column of tensor memory for copies and instructions alike.
        same = words.startswith(("and", "or", "tcgen05")) or "BoundBlockScaled.__init__ " in line
        if number is not None and not same:
            value = int(number[1])
            for other in (value + (16 if value > 1000 else 1), value * 2):
                yield f"{number[1]} is {other}: {words}", broken(f"{words[: number.start()]}{other};")
        scales = re.search(r"(\[\w+\]), (\[\w+\]), (\w+;)", words)
        if words.startswith("tcgen05.mma") and scales:
            yield (
                f"scales change places: {words}",
                broken(words.replace(scales[0], f"{scales[2]}, {scales[1]}, {scales[3]}")),
            )
        for bit in (4, 29) if words.startswith("tcgen05.mma") else ():
            idesc = re.search(r" (\d{6,}),", words)
            assert idesc is not None
            yield f"bit {bit} of {words}", broken(words.replace(idesc[1], str(int(idesc[1]) ^ 2 << bit)))


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("config", [SINGLE, PAIR], ids=["single", "pair"])
@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
def test_no_defect_stays_unnoticed(kind: str, config: Any) -> None:
    """Every mutant of a sample is noticed, on several k-blocks, tiles, and blocks of 128 rows and columns."""
    p = draw(kind, 260, 260, 416, seed=11)
    kernel = tilekit.scaled_kernel_for(*p.call, out_dtype="f32", config=config)
    scales = laid_out(p.scale_a), laid_out(p.scale_b)
    survivors, tried = [], 0
    every = list(mutants(kernel.ptx))
    for what, text in every[:: max(1, len(every) // SAMPLE)]:
        tried += 1
        spoiled = copy(kernel)
        spoiled.text = replace(kernel.text, assembly=text)
        try:
            found = spoiled.bind(p.a, p.b, *scales)()
        except (EmulatorError, FindingWarning, TilekitError):
            continue
        if np.array_equal(found, p.exact):
            survivors.append(what)
    assert tried >= SAMPLE
    assert survivors == []
