"""The GPU behind the double: each launch goes to an emulated device of its chip, over the double's own memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.runtime.hip_double.double import Double, Gpu, Launch
from tilekit.emulator import Deadlock, Device, EmulatorError, GcnDevice, LaunchReport, Livelock, MemoryFault, Module

INVALID_IMAGE, NO_BINARY = 200, 209
ILLEGAL_ADDRESS, TIME_OUT, FAILURE = 700, 702, 719


@dataclass
class Emulation(Gpu):
    """Devices for the chips of a double.

    Attributes
    ----------
    reports
        Of every launch that ended.
    error
        What the emulator said of the latest launch, or code object, that did not go well.
    """

    double: Double
    seed: int = 0
    step_budget: int = 1_000_000
    reports: list[LaunchReport] = field(default_factory=list)
    error: str = ""

    def __post_init__(self) -> None:
        self.double.gpu = self
        self._devices: list[GcnDevice] = []
        self._modules: dict[tuple[int, bytes], Module] = {}
        for features in self.double.chips:
            device = Device(features.partition(":")[0], seed=self.seed)
            assert isinstance(device, GcnDevice)
            device.memory = self.double.memory
            self._devices.append(device)

    def load(self, image: bytes, ordinal: int) -> int | None:
        """Load a code object on a device, as the runtime does: one for another chip is refused."""
        try:
            self._modules[ordinal, image] = self._devices[ordinal].load(image)
        except EmulatorError as error:
            self.error = str(error)
            return NO_BINARY if "the module is for" in error.message else INVALID_IMAGE
        return None

    def launch(self, launch: Launch) -> int | None:
        """Run a launch; a fault, and a report that is not clean, is the hipError_t nearest to it."""
        kernel = self._modules[launch.ordinal, launch.image][launch.kernel]
        try:
            report = kernel.launch(
                launch.grid, launch.block, params=launch.kernarg, shared_bytes=launch.shared_bytes,
                step_budget=self.step_budget,
            )  # fmt: skip
        except EmulatorError as error:
            self.error = str(error)
            if isinstance(error, MemoryFault):
                return ILLEGAL_ADDRESS
            return TIME_OUT if isinstance(error, Deadlock | Livelock) else FAILURE
        self.reports.append(report)
        if not report.clean:
            self.error = str(report)
            return FAILURE
        return None

    def report(self) -> str:
        """What the emulator said."""
        return self.error or super().report()
