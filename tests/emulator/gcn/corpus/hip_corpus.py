"""Foreign kernels for AMD chips: the PTX corpus' Triton kernels, compiled for gfx942 and gfx950, with its references.

A case draws its inputs and says what must come out (``corpus_case``, ``cases_*.py`` of the PTX corpus); here are the
texts that Triton made of the same kernels (``asm/*.s.xz``, compressed as they are), and how they are launched.
"""

from __future__ import annotations

import importlib
import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hip_cases
import numpy as np
from corpus_case import CASES, Addresses, Array, Launch, header

from tilekit.emulator import Device, LaunchReport
from tilekit.emulator.gcn.kernel import DEFAULT_STEP_BUDGET

ASM = Path(__file__).parent / "asm"
for _source in ("elementwise", "reductions", "memory", "matmul", "models"):
    importlib.import_module(f"cases_{_source}")
for _source in ("numbers", "memory", "matmul", "models", "gluon"):
    importlib.import_module(f"hip_cases_{_source}")

CHIPS = ("gfx942", "gfx950")
DRAWS = {case.name.removeprefix("triton/"): case.draw for case in CASES} | hip_cases.DRAWS


@dataclass(frozen=True)
class HipCase:
    """A kernel for one chip."""

    name: str
    chip: str
    folder: Path = ASM

    def __str__(self) -> str:
        return f"{self.name}-{self.chip}"

    @property
    def text(self) -> str:
        """The assembly, as the compiler wrote it, below a header."""
        return lzma.decompress((self.folder / f"{self.name}.{self.chip}.s.xz").read_bytes()).decode()


def cases(folder: Path = ASM) -> list[HipCase]:
    """Every text that lies there and has a reference."""
    found = []
    for path in sorted(folder.glob("*.s.xz")):
        name, chip = path.name.removesuffix(".s.xz").rsplit(".", 1)
        if name in DRAWS:
            found.append(HipCase(name, chip, folder))
    return found


def fields(text: str) -> dict[str, Any]:
    """What the header of a text says of its launch."""
    lines = (line.replace("; ", "// ", 1) for line in text.splitlines() if line.startswith("; "))
    found: dict[str, Any] = json.loads(header("\n".join(lines))["launch"])
    return found


def emulate(
    case: HipCase,
    *,
    seed: int = 0,
    drawn: int | None = None,
    schedule: Any = "adversarial",
    check: Any = "full",
    image: str | bytes | None = None,
    step_budget: int = DEFAULT_STEP_BUDGET,
) -> tuple[LaunchReport, Launch]:
    """Run a case's text unchanged, or another form of it; the launch's arrays hold the results afterwards."""
    text = case.text
    compiled = fields(text)
    launch = DRAWS[case.name](np.random.default_rng(seed if drawn is None else drawn))
    device = Device(case.chip, seed=seed, schedule=schedule, check=check)
    buffers: dict[int, tuple[Array, Any]] = {}

    def upload(array: Array) -> Any:
        return buffers.setdefault(id(array), (array, device.buffer(array)))[1]

    def argument(value: Any) -> Any:
        match value:
            case np.ndarray():
                return upload(value)
            case Addresses():
                return device.buffer(np.array([upload(a).address for a in value.arrays], np.uint64))
        return value

    args = [argument(value) for value in launch.args]
    for size in compiled.get("scratch", ()):
        count = size * int(np.prod(launch.grid))
        args.append(device.buffer(np.zeros(count, np.uint8)) if count else None)
    report = device.load(text if image is None else image)[compiled["entry"]].launch(
        launch.grid, compiled["threads"], args, shared_bytes=compiled["shared_bytes"], step_budget=step_budget
    )
    for array, buffer in buffers.values():
        array[...] = buffer.read()
    return report, launch
