"""Kernels that clang compiles from C to PTX run unchanged, and compute what NumPy and Python do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device
from tilekit.runtime.amd_toolchain import find_amd_tools

SOURCE = Path(__file__).with_name("clang_kernels.c")
LANES = 64
Array = np.ndarray[Any, Any]
PART = np.dtype(
    {
        "names": ["count", "weight", "codes", "level", "sums"],
        "formats": ["i4", "f8", ("i1", 5), "i2", ("f4", 3)],
        "offsets": [0, 8, 16, 22, 24],
        "itemsize": 40,
    }
)


@pytest.fixture(scope="module", params=["-O0", "-O1", "-O3"])
def text(request: pytest.FixtureRequest) -> str:
    """The PTX of all the kernels, at a level of optimisation."""
    tools = find_amd_tools()
    assert tools.name == "ziglang"
    chip = ("-Xclang", "-target-cpu", "-Xclang", "sm_80", "-Xclang", "-target-feature", "-Xclang", "+ptx80")
    command = [tools.assembler[0], "clang", "--target=nvptx64-nvidia-cuda", *chip, "-nogpulib", "-ffreestanding", "-w"]
    command += [request.param, "-S", "-o", "-", str(SOURCE)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def signed(value: int, bits: int = 32) -> int:
    """A number as so many bits hold it."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def choice(x: int, i: int) -> int:
    """What the switch stores for a case; -1 where it returns before."""
    cases = {0: 5, 1: 3 * i, 2: 4, 3: 11, 4: i * (i - 1) // 2, 5: i // 3, 6: i % 5}
    return -1 if x == 7 else 2 * cases.get(x, -1)


def wide(a: int, b: int) -> list[int]:
    """Words of results of 128 bits."""
    by = b & 127
    found = [a * b, a - b, a << by, a >> by, signed(a, 128) >> by, a ^ b if a < b else ~a]
    return [word for value in found for word in (value & (1 << 64) - 1, value >> 64 & (1 << 64) - 1)]


def checked(a: int, b: int, i: int) -> list[int]:
    """Sums and products that may not fit, a rotation and a reversal."""
    low, high = -(1 << 31), (1 << 31) - 1
    exact = [value if low <= value <= high else -1 for value in (a + b, a * b)]
    turned = (a & 0xFFFFFFFF) << (i & 31)
    reversed_ = int(f"{b & 0xFFFFFFFF:032b}"[::-1], 2)
    return [*exact, min(max(a + b, low), high), signed((turned | turned >> 32) ^ reversed_)]


def hash_of(row: list[int], lane: int) -> int:
    """FNV-1a of the bytes as the kernel turns them."""
    turned = [0] * 40
    for k, byte in enumerate(row):
        turned[(k * 7 + lane) % 40] = byte
    found = 2166136261
    for byte in turned:
        found = (found ^ byte) * 16777619 & 0xFFFFFFFF
    return found


def ackermann(m: int, n: int) -> int:
    """The function of that name."""
    return n + 1 if m == 0 else ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))


def draw_choices(rng: np.random.Generator) -> tuple[Array, Array]:
    x = rng.integers(-2, 10, LANES).astype(np.int32)
    return x, np.array([choice(v, i) for i, v in enumerate(x.tolist())], np.int32)


def draw_wide(rng: np.random.Generator) -> tuple[Array, Array]:
    x = rng.integers(0, 1 << 64, (LANES, 4), np.uint64)
    x[::3, 1] = 0
    return x, np.array([wide(h << 64 | g, q << 64 | p) for g, h, p, q in x.tolist()], np.uint64)


def draw_checked(rng: np.random.Generator) -> tuple[Array, Array]:
    x = rng.integers(-(1 << 31), 1 << 31, (LANES, 2)).astype(np.int32)
    x[::2] >>= 17
    return x, np.array([checked(a, b, i) for i, (a, b) in enumerate(x.tolist())], np.int32)


def draw_hashes(rng: np.random.Generator) -> tuple[Array, Array]:
    x = rng.integers(0, 256, (LANES, 40)).astype(np.uint8)
    return x, np.array([hash_of(row, lane) for lane, row in enumerate(x.tolist())], np.uint32)


def draw_through_a_table(rng: np.random.Generator) -> tuple[Array, Array]:
    x = rng.integers(0, 3, LANES).astype(np.int32)
    table: list[Callable[[int, int], int]] = [int.__add__, int.__mul__, ackermann]
    return x, np.array([table[which](i % 3, i % 5) for i, which in enumerate(x.tolist())], np.int32)


DRAWN = {
    "choices": draw_choices, "wide": draw_wide, "checked": draw_checked, "hashes": draw_hashes,
    "through_a_table": draw_through_a_table,
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_results(name: str, text: str) -> None:
    """With every check nothing is found, and the results are exact."""
    x, want = DRAWN[name](np.random.default_rng(len(name)))
    out = np.full_like(want, -1) if want.dtype.kind == "i" else np.zeros_like(want)
    report = Device("sm_80").load(text)[name].launch(1, LANES, [out, x])
    np.testing.assert_array_equal(out, want)
    assert report.clean, str(report)


def test_structures_by_value(text: str) -> None:
    """A structure is the kernel's argument, another function's, and its result: what is changed is a copy."""
    given = np.array((7, 1.5, [1, 2, 3, 4, 5], -3, [0.5, 1, 2]), PART)
    device = Device("sm_80")
    out = device.buffer(np.zeros(LANES * PART.itemsize, np.uint8))
    report = device.load(text)["structures"].launch(1, LANES, [given.tobytes(), out])
    found, want = out.read().view(PART), np.repeat(given[None], LANES)
    for i in range(LANES):
        want["count"][i] += i + 7
        want["weight"][i] *= i
        want["codes"][i, i % 5] = i
        want["level"][i] -= i
        want["sums"][i, i % 3] = i * 0.5
    for name in PART.names or ():
        np.testing.assert_array_equal(found[name], want[name], err_msg=name)
    assert report.clean, str(report)
