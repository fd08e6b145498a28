"""Runs cases on the emulator, each family's module loaded once, and knows what the H200 gave."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.ptx.hardware.cases import Case, all_cases, module_text
from tilekit.emulator import Device, Module

RECORDS = Path(__file__).parent / "h200.npz"
EXACT = ("matrix", "product")
"""Families of matrix products, for which the emulator's tensor core rounds as the hardware's."""


@cache
def records() -> dict[str, np.ndarray[Any, Any]]:
    """What the H200 gave, by case name."""
    with np.load(RECORDS) as file:
        return {name: file[name] for name in file.files}


@cache
def recorded_cases() -> dict[str, list[Case]]:
    """The cases that were recorded, by family."""
    known = records()
    return {family: [case for case in cases if case.name in known] for family, cases in all_cases().items()}


class Runner:
    """Devices and modules of the families, made when first needed."""

    def __init__(self) -> None:
        self._modules: dict[str, tuple[Device, Module]] = {}

    def run(self, case: Case) -> np.ndarray[Any, Any]:
        """The bytes that the emulator leaves in the case's output."""
        if case.family not in self._modules:
            device = Device("sm_90a", exact=case.family in EXACT)
            self._modules[case.family] = device, device.load(module_text(recorded_cases()[case.family]))
        device, module = self._modules[case.family]
        inputs = [device.buffer(array) for array in case.inputs]
        out = device.buffer(np.zeros(case.output, np.uint8))
        module[case.symbol].launch(
            grid=case.cluster,
            block=case.block,
            cluster=case.cluster,
            shared_bytes=case.shared_bytes,
            args=[*inputs, out],
        )
        result = out.read()
        for buffer in (*inputs, out):
            buffer.free()
        return result

    def recorded(self, case: Case) -> np.ndarray[Any, Any]:
        """The bytes that the H200 left there."""
        return records()[case.name]
