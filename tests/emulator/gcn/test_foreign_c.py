"""Kernels that clang compiles from C run from their code objects, and compute what NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator.gcn.llvm import compiled
from tilekit.emulator import Device, RaceError

SOURCE = Path(__file__).with_name("foreign.c").read_text()
LANES = 256
Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator], tuple[list[Array], list[Array]]]


def source_of(name: str) -> str:
    """What stands before the kernels, and one of them."""
    start = SOURCE.index(f"KERNEL {name}(")
    end = SOURCE.find("\nKERNEL ", start)
    return SOURCE[: SOURCE.index("\nKERNEL ")] + "\n" + SOURCE[start : end if end > 0 else None]


def sorts(rng: np.random.Generator) -> tuple[list[Array], list[Array]]:
    x = rng.integers(-99, 99, (LANES, 16)).astype(np.int32)
    return [np.zeros_like(x), x], [np.sort(x, 1)]


def divides(rng: np.random.Generator) -> tuple[list[Array], list[Array]]:
    x = rng.integers(-(2**62), 2**62, (LANES, 2)) >> rng.integers(0, 60, (LANES, 2))
    x[:, 1][(x[:, 1] == 0) | (x[:, 1] == -1)] = 3
    a, b = x.T
    quotient = np.sign(a) * np.sign(b) * (abs(a) // abs(b))
    unsigned = (a.astype(np.uint64) // b.astype(np.uint64)).view(np.int64)
    return [np.zeros((LANES, 4), np.int64), x], [np.stack([quotient, a - quotient * b, unsigned, a * b], 1)]


def greatest(rng: np.random.Generator) -> tuple[list[Array], list[Array]]:
    x = rng.integers(-99, 99, LANES).astype(np.float32)
    return [np.array([-1e9, 0], np.float32), x], [np.array([x.max(), x.sum()])]


def dots(rng: np.random.Generator) -> tuple[list[Array], list[Array]]:
    x = rng.integers(-(2**31), 2**31, (LANES, 2)).astype(np.int32)
    a, b = (np.ascontiguousarray(column) for column in x.T)

    def parts(words: Array, kind: str) -> Array:
        return words.view(kind).reshape(LANES, -1).astype(np.int64)

    want = [
        (parts(a, "i1") * parts(b, "i1")).sum(1) + 5, (parts(a, "i2") * parts(b, "i2")).sum(1) + 9,
        abs(parts(a, "u1") - parts(b, "u1")).sum(1) + 7,
    ]  # fmt: skip
    return [np.zeros((LANES, 3), np.int32), x], [np.stack(want, 1).astype(np.uint32).view(np.int32)]


def waits(rng: np.random.Generator) -> tuple[list[Array], list[Array]]:
    return [np.zeros(2, np.int32), np.zeros(1, np.int32)], [np.array([41, 42]), np.array([1])]


def polls(rng: np.random.Generator) -> tuple[list[Array], list[Array]]:
    return [np.zeros(1, np.int32), np.zeros(1, np.int32)], [np.array([7])]


CASES: dict[str, tuple[Draw, int]] = {
    "sorts": (sorts, 2), "divides": (divides, 2), "greatest": (greatest, 2), "dots": (dots, 2), "waits": (waits, 1),
    "polls": (polls, 1),
}  # fmt: skip
UNTOLD = ("polls", "-O0")
"""The address that is polled is made anew in every round, so that nothing tells the load from others."""
RUN = [(name, level) for name in CASES for level in ("-O0", "-O1", "-O3") if (name, level) != UNTOLD]


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("name", "level"), RUN)
def test_results(name: str, level: str, chip: str, tmp_path: Path) -> None:
    """Under three orders, with every check, nothing is found and the results are right."""
    image = compiled(source_of(name), chip, tmp_path, level, "-w")
    draw, groups = CASES[name]
    for schedule, seed in (("adversarial", 0), ("random", 1), ("fair", 2)):
        arrays, expected = draw(np.random.default_rng(seed))
        device = Device(chip, schedule=schedule, seed=seed)  # type: ignore[arg-type]
        buffers = [device.buffer(array) for array in arrays]
        report = device.load(image)[name].launch(groups, 128, buffers)
        assert report.clean, str(report)
        for buffer, want in zip(buffers, expected, strict=False):
            np.testing.assert_array_equal(buffer.read(), want.reshape(buffer.read().shape))


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_a_look_is_no_wait(chip: str, tmp_path: Path) -> None:
    """A word of LDS that is read once, not polled, orders nothing."""
    device = Device(chip)
    kernel = device.load(compiled(source_of("looks"), chip, tmp_path, "-O1", "-w"))["looks"]
    with pytest.raises(RaceError, match="read by wave 1"):
        kernel.launch(1, 128, [device.buffer(np.zeros(1, np.int32)) for _ in range(2)])
