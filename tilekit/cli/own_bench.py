"""``tilekit bench mine.py:kernel``: a composed kernel on this GPU, beside the library's product where it is one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from tilekit.cli import common, own_kernel
from tilekit.cli.progress import waiting

if TYPE_CHECKING:
    from tilekit.bench.contest import Pace
    from tilekit.bench.machine import Machine
    from tilekit.compose.kernel import ComposedKernel

SHAPES: Final = ("1024x1024x1024", "4096x4096x4096", "8192x8192x8192")
"""M, N and K where nothing is said; of letters that a kernel does not have nothing is taken."""

LAUNCHES: Final = 4
"""Launches in a pass, each with arrays of its own, so that none finds its operands in L2."""


def bench(
    kernel: str, shapes: Sequence[str], *, seconds: float, pace: Pace, seed: int, json_file: Path | None, as_json: bool
) -> None:
    """Time a kernel of a file on each shape; print microseconds a launch, the median of the rounds."""
    from tilekit.bench.clocks import ClockSampler
    from tilekit.bench.contest import hold
    from tilekit.bench.machine import require_machine

    with common.presented(as_json):
        found = own_kernel.load(kernel)
        wanted = [_extents(found, text) for text in shapes or SHAPES]
        wanted = [one for index, one in enumerate(wanted) if one not in wanted[:index]]
        machine = require_machine()
        records: list[dict[str, Any]] = []
        with ClockSampler(machine.uuid) as sampler, waiting("measuring", as_json):
            for extents in wanted:
                passes = _contestants(machine, found, extents, seed)
                timings = hold(machine, passes, LAUNCHES, seconds / len(wanted), sampler, pace, with_bursts=False)
                own = statistics.median(timings[found.name].rounds)
                for who, timing in timings.items():
                    us = statistics.median(timing.rounds)
                    flops = _flops(found, extents)
                    records.append(
                        {
                            "kernel": found.name,
                            "extents": own_kernel.spelled(extents),
                            "contestant": who,
                            "us": us,
                            "tflops": flops / us / 1e6 if flops else None,
                            "gigabytes_per_second": _bytes(found, extents) / us / 1e3,
                            "ratio": us / own,
                            "sm_mhz": timing.sm_mhz,
                        }
                    )
        if json_file is not None:
            json_file.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    typer.echo(json.dumps({"device": machine.device, "records": records}) if as_json else _table(records, machine))


def _extents(found: ComposedKernel, text: str) -> dict[str, int]:
    """Read ``MxNxK``; a letter that the kernel does not have is nothing to it."""
    from tilekit.errors import ArgumentError

    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part[:18]) > 0 for part in parts):
        legal = "three whole numbers from 1 on as MxNxK: extents of the letters m, n and k"
        raise ArgumentError.of("--shape", text, legal=legal, nearest="4096x4096x4096", code="TK-CLI-002")
    usual = {letter: int(part[:18]) for letter, part in zip("mnk", parts, strict=True)}
    return own_kernel.extents_of(found, {}, usual)


def _contestants(
    machine: Machine, found: ComposedKernel, extents: Mapping[str, int], seed: int
) -> dict[str, Callable[[], None]]:
    """One pass of each over all sets of arrays; each has run once."""
    from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32

    plans, products = [], []
    for one in range(LAUNCHES):
        whole = found.example(seed + one, **extents)
        inputs = {
            operand.name: machine.normal(whole[operand.name].shape, operand.dtype, seed + one)
            if operand.dtype in (BF16, F16, F32, E4M3, E5M2)
            else machine.upload(whole[operand.name])
            for operand in found.operands
            if operand.name in whole
        }
        plans.append(found.bind(**inputs))
        product = _product(found)
        if product is not None:
            a, b, dtype = product
            right = inputs[b] if found.operands[1].shape == "kn" else inputs[b].T
            out = machine.empty((extents["m"], extents["n"]), dtype)
            products.append((inputs[a], right, out))

    def own() -> None:
        for plan in plans:
            plan()

    def library() -> None:
        for a, b, out in products:
            machine.matmul(a, b, out)

    passes: dict[str, Callable[[], None]] = {found.name: own}
    if products:
        passes[f"{machine.library.partition(' ')[0]}'s product"] = library
    for launch in passes.values():
        launch()
    machine.synchronize()
    return passes


def _product(found: ComposedKernel) -> tuple[str, str, Any] | None:
    """Return the names of A and B and their type, where the kernel begins with a product that the library has."""
    from tilekit.dtypes import BF16, F16, F32

    shapes = [one.shape for one in found.operands]
    if shapes[0] != "mk" or shapes[1] not in ("nk", "kn") or "mn" not in shapes[2:]:
        return None
    a, b = found.operands[:2]
    return (a.name, b.name, a.dtype) if a.dtype is b.dtype and a.dtype in (BF16, F16, F32) else None


def _flops(found: ComposedKernel, extents: Mapping[str, int]) -> float:
    """Of a product, where the operands' letters are one's."""
    if not {"m", "n", "k"} <= extents.keys():
        return 0.0
    batch = next((one.shape[0] for one in found.operands if len(one.shape) == 3), "")
    return 2.0 * extents["m"] * extents["n"] * extents["k"] * (extents[batch] if batch else 1)


def _bytes(found: ComposedKernel, extents: Mapping[str, int]) -> float:
    """Of all operands, each once."""
    return float(sum(prod(extents[letter] for letter in one.shape) * one.dtype.bytes for one in found.operands))


def _table(records: Sequence[Mapping[str, Any]], machine: Machine) -> str:
    rows = [("extents", "contestant", "us", "TFLOP/s", "GB/s", "to the kernel")]
    for one in records:
        pace = f"{one['tflops']:.1f}" if one["tflops"] else "-"
        figures = f"{one['us']:.1f}", pace, f"{one['gigabytes_per_second']:.0f}", f"{one['ratio']:.3f}"
        rows.append((one["extents"], one["contestant"], *figures))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{word:<{width}}" if place < 2 else f"{word:>{width}}" for place, (word, width) in row).rstrip()
        for row in (enumerate(zip(line, widths, strict=True)) for line in rows)
    ]
    return "\n".join([f"{machine.device}, {machine.library}", *lines])
