"""An emulator for PTX and AMDGCN: runs the text that assemblers take, on the CPU, and explains what is wrong with it.

It knows nothing of who wrote the text::

    device = Device("sm_90a")
    module = device.load(ptx_text)
    a = device.buffer(array)
    report = module["kernel"].launch(grid=(2, 1, 1), block=(128, 1, 1), args=[a, np.int32(7)])

For AMD chips the text is assembly of the amdgcn target: ``Device("gfx950").load(text)``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilekit.emulator.core.checks.findings import Finding
    from tilekit.emulator.core.errors import (
        BarrierFault,
        Deadlock,
        EmulatorError,
        LaunchError,
        Livelock,
        MemoryFault,
        ProtocolError,
        PtxSyntaxError,
        RaceError,
        StepBudgetExceeded,
        UnsupportedInstruction,
    )
    from tilekit.emulator.core.explore import Exploration, Failure
    from tilekit.emulator.core.memory.buffer import Buffer
    from tilekit.emulator.core.observation.debugger import Debugger
    from tilekit.emulator.core.observation.stops import Stop
    from tilekit.emulator.core.report import LaunchReport
    from tilekit.emulator.core.room import Kernel, Module
    from tilekit.emulator.core.statistics import Statistics
    from tilekit.emulator.door import Device, GcnDevice, PtxDevice
    from tilekit.emulator.gcn.errors import GcnSyntaxError, MissingWait
    from tilekit.emulator.ptx.device import EncodedTensorMap
    from tilekit.emulator.ptx.execution.device_runtime import AssertionFailedError
    from tilekit.emulator.ptx.memory.tensor_map import TensorMap
    from tilekit.emulator.ptx.ops.control import TrapError
    from tilekit.emulator.ptx.ops.table import coverage

__all__ = [
    "AssertionFailedError",
    "BarrierFault",
    "Buffer",
    "Deadlock",
    "Debugger",
    "Device",
    "EmulatorError",
    "EncodedTensorMap",
    "Exploration",
    "Failure",
    "Finding",
    "GcnDevice",
    "GcnSyntaxError",
    "Kernel",
    "LaunchError",
    "LaunchReport",
    "Livelock",
    "MemoryFault",
    "MissingWait",
    "Module",
    "ProtocolError",
    "PtxDevice",
    "PtxSyntaxError",
    "RaceError",
    "Statistics",
    "StepBudgetExceeded",
    "Stop",
    "TensorMap",
    "TrapError",
    "UnsupportedInstruction",
    "coverage",
]

_HOMES = {
    "core.checks.findings": ("Finding",),
    "core.explore": ("Exploration", "Failure"),
    "core.report": ("LaunchReport",),
    "core.room": ("Kernel", "Module"),
    "core.memory.buffer": ("Buffer",),
    "door": ("Device", "GcnDevice", "PtxDevice"),
    "gcn.errors": ("GcnSyntaxError", "MissingWait"),
    "ptx.device": ("EncodedTensorMap",),
    "ptx.execution.device_runtime": ("AssertionFailedError",),
    "ptx.ops.table": ("coverage",),
    "ptx.memory.tensor_map": ("TensorMap",),
    "core.statistics": ("Statistics",),
    "core.observation.debugger": ("Debugger",),
    "core.observation.stops": ("Stop",),
    "ptx.ops.control": ("TrapError",),
}
"""Where names live; all others are errors. They load on first use: a launch on a GPU wants the tensor map only."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tilekit.emulator' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "core.errors")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return value
