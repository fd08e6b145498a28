"""What the emulator costs: processor time of whole launches, by kernel, size and level of checking.

    python -m benchmarks.emulator                     # the table of docs/emulator.md, in two minutes
    python -m benchmarks.emulator add matmul-1024     # some of it

Run from the repository's root. A time is the best of several launches in one process, compilation of the kernel's
blocks left to the first; it is processor time, so what else runs on the machine matters little. No GPU is needed.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import typer

import tilekit
from tilekit.cli import common
from tilekit.emulator import Device, Kernel
from tilekit.emulator.ptx.device import Check
from tilekit.errors import ArgumentError

CORPUS = Path("tests/emulator/ptx/corpus/ptx")
HERE = Path(__file__).parent
CHECKS: tuple[Check, ...] = ("full", "off")
ENOUGH_SECONDS = 6.0
"""Launches of one case and level are repeated, five times at most, while they have taken less than this together."""

Prepared = Callable[[], int]
"""Launches once; returns the number of warp instructions."""


@dataclass(frozen=True)
class Case:
    """A kernel at a size."""

    name: str
    kernel: str
    size: str
    prepare: Callable[[Check], Prepared]


def matmul(m: int, n: int, k: int) -> Case:
    """tilekit's own kernel for sm_90a with its default config, which suits large outputs."""

    def prepare(check: Check) -> Prepared:
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-4, 5, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
        launch: Any = tilekit.compile(tilekit.MatmulSpec()).bind(a, b.T, check=check)

        def run() -> int:
            with tilekit.settings.override(emulator_limit=float("inf")):
                launch()
            steps: int = launch.report.steps
            return steps

        return run

    size, name = (f"{m}³", f"matmul-{m}") if m == n == k else (f"{m}x{n}x{k}", f"matmul-{m}x{n}x{k}")
    return Case(name, "matmul bf16, sm_90a, tilekit", size, prepare)


def elementwise(name: str, kernel: str, path: Path, entry: str, ctas: int, threads: int, count: int) -> Case:
    """A kernel z = f(x, y) over ``count`` numbers; ``threads`` a CTA."""

    def prepare(check: Check) -> Prepared:
        device = Device("sm_90a", check=check)
        loaded = device.load(path.read_text())[entry]
        x = device.buffer(np.arange(count, dtype=np.float32))
        z = device.buffer(np.zeros(count, np.float32))
        arguments = [x, x, z, np.int32(count), *[None] * (len(loaded.parameters) - 4)]
        return lambda: loaded.launch(ctas, threads, arguments).steps

    return Case(name, kernel, f"2²⁰ in {ctas} CTAs of {threads}", prepare)


def softmax(rows: int) -> Case:
    """Rows of 1024 numbers, one a CTA: shuffles, shared memory and barriers."""

    def prepare(check: Check) -> Prepared:
        device = Device("sm_90a", check=check)
        loaded = device.load((CORPUS / "triton/softmax.sm_90a.ptx").read_text())["softmax"]
        x = device.buffer(np.random.default_rng(0).standard_normal((rows, 1024), np.float32))
        out = device.buffer(np.zeros((rows, 1024), np.float32))
        arguments = [x, out, np.int32(1024), np.int32(1024), None, None]
        return lambda: loaded.launch(rows, 128, arguments, shared_bytes=16).steps

    return Case("softmax", "softmax of rows, Triton", f"{rows}x1024", prepare)


def tcgen05_roles(size: int) -> Case:
    """A warp-specialised matmul for sm_100a by Gluon: warps that load, multiply and store."""

    def prepare(check: Check) -> Prepared:
        device = Device("sm_100a", check=check)
        rng = np.random.default_rng(0)
        arguments: list[Any] = []
        for rows in (128, 64, 128):
            matrix = device.buffer(rng.integers(-4, 5, (size, size)).astype(np.float16))
            encoded = device.tensor_map_tiled(matrix, (64, rows), swizzle="128B")
            arguments += [encoded, np.int32(size), np.int32(size), np.int64(size), np.int64(1)]
        loaded: Kernel = device.load((CORPUS / "triton/gluon_tcgen05_roles.sm_100a.ptx").read_text())["tcgen05_roles"]
        arguments += [np.int32(size), *[None] * (len(loaded.parameters) - len(arguments) - 1)]
        grid = (size // 128, size // 128)
        return lambda: loaded.launch(grid, 256, arguments, shared_bytes=131148).steps

    return Case(f"tcgen05-{size}", "matmul f16, sm_100a, Gluon, warp-specialised", f"{size}³", prepare)


def amd(name: str, kernel: str, size: str, text: str) -> Case:
    """A kernel that Triton made for gfx950, with the launch and the reference of the corpus; loading included."""

    def prepare(check: Check) -> Prepared:
        sys.path += [str(CORPUS.parent), "tests/emulator/gcn/corpus"]
        hip_corpus = importlib.import_module("hip_corpus")
        case = hip_corpus.HipCase(text, "gfx950")

        def run() -> int:
            steps: int = hip_corpus.emulate(case, check=check)[0].steps
            return steps

        return run

    return Case(name, kernel, size, prepare)


TRITON_ADD, NVCC_ADD = CORPUS / "triton/add.sm_90a.ptx", HERE / "ptx/scale_add.sm_90a.ptx"
CASES = {
    case.name: case
    for case in (
        *(matmul(size, size, size) for size in (512, 1024, 2048)),
        *(matmul(512, 512, k) for k in (4096, 8192, 16384)),
        tcgen05_roles(512),
        elementwise("add", "x + y, Triton", TRITON_ADD, "add", 4096, 128, 1 << 20),
        elementwise("add-256", "2x + y, nvcc", NVCC_ADD, "scale_add", 4096, 256, 1 << 20),
        elementwise("add-128", "2x + y, nvcc", NVCC_ADD, "scale_add", 8192, 128, 1 << 20),
        softmax(4096),
        amd("amd-matmul", "matmul bf16, gfx950, Triton", "512³", "amd_matmul_bf16_512"),
        amd("amd-add", "x + y, gfx950, Triton", "2²⁰", "amd_add_million"),
    )
}
LONG = {"matmul-4096": matmul(4096, 4096, 4096)}
"""Run when named."""


def best_seconds(prepared: Prepared) -> tuple[float, int]:
    """Processor seconds of the best launch, and the warp instructions it executed."""
    times: list[float] = []
    steps = 0
    while not times or (len(times) < 5 and sum(times) < ENOUGH_SECONDS):
        start = time.process_time()
        steps = prepared()
        times.append(time.process_time() - start)
    return min(times), steps


def rows(cases: Sequence[Case]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield "| kernel | size | warp instructions | full, s | µs an instruction | off, s | name |"
    yield "|---|---|--:|--:|--:|--:|---|"
    for case in cases:
        (full, steps), (off, _) = (best_seconds(case.prepare(check)) for check in CHECKS)
        times = f"{full:.2g} | {1e6 * full / steps:.2g} | {off:.2g}"
        yield f"| {case.kernel} | {case.size} | {steps:,} | {times} | `{case.name}` |"


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join((*CASES, *LONG))}; by default the first.")
    ] = None,
) -> None:
    """Time launches on the emulator and print a table."""
    every = CASES | LONG
    with common.presented():
        for name in names or ():
            if name not in every:
                raise ArgumentError.of("NAMES", name, legal=", ".join(every))
        for line in rows([every[name] for name in names] if names else list(CASES.values())):
            typer.echo(line)


if __name__ == "__main__":
    typer.run(main)
