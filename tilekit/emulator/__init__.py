"""An emulator for PTX: runs the text that ptxas assembles, on the CPU, and explains what is wrong with it.

It knows nothing of who wrote the text::

    device = Device("sm_90a")
    module = device.load(ptx_text)
    a = device.buffer(array)
    report = module["kernel"].launch(grid=(2, 1, 1), block=(128, 1, 1), args=[a, np.int32(7)])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checks.findings import Finding
    from .device import Buffer, Device, EncodedTensorMap
    from .errors import (
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
    from .execution.device_runtime import AssertionFailedError
    from .explore import Exploration, Failure
    from .kernel import Kernel
    from .language.forms import coverage
    from .memory.tensor_map import TensorMap
    from .module import Module
    from .observation.debugger import Debugger
    from .observation.statistics import Statistics
    from .observation.stops import Stop
    from .ops.control import TrapError
    from .report import LaunchReport

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
    "Kernel",
    "LaunchError",
    "LaunchReport",
    "Livelock",
    "MemoryFault",
    "Module",
    "ProtocolError",
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
    "observation.debugger": ("Debugger",),
    "device": ("Buffer", "Device", "EncodedTensorMap"),
    "execution.device_runtime": ("AssertionFailedError",),
    "explore": ("Exploration", "Failure"),
    "checks.findings": ("Finding",),
    "language.forms": ("coverage",),
    "kernel": ("Kernel",),
    "module": ("Module",),
    "ops.control": ("TrapError",),
    "report": ("LaunchReport",),
    "observation.statistics": ("Statistics",),
    "observation.stops": ("Stop",),
    "memory.tensor_map": ("TensorMap",),
}
"""Where names live; all others are errors. They load on first use: a launch on a GPU wants the tensor map only."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tilekit.emulator' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "errors")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return value
