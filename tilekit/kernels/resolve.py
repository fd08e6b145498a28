"""Where a call's arrays are, and so which chip its kernel is for."""

from __future__ import annotations

from collections.abc import Sequence

from tilekit.arrays import ArrayView
from tilekit.errors import ArgumentError, DriverError, HipError
from tilekit.runtime import driver, hip
from tilekit.targets import DEFAULT, TARGETS, Target
from tilekit.targets import target as target_named


def resolve_target(a: ArrayView, target: str | None, *, memory: bool = True) -> tuple[Target, str | None]:
    """Return the chip to build for, and ``"cuda"`` or ``"hip"`` where arrays in host memory go to the GPU.

    Without `memory`, where arrays are layouts alone, those of a GPU that is not here count as the default chip's.
    """
    if a.device == "cpu":
        if target == "hip":
            return _first_amd_gpu(), "hip"
        if target != "cuda":
            return target_named(DEFAULT.name if target is None else target), None
        reason = driver.why_unavailable()
        if reason is not None:
            raise DriverError(
                f"target='cuda', but there is no GPU to use: {reason}; leave target out to run on the emulator",
                code="TK-API-002",
            )
        return target_of(driver.devices()[0], target), "cuda"
    if a.device[0] == "hip":
        return _amd_target_of(a.device[1], target), None
    if not memory and (driver.why_unavailable() is not None or a.device[1] >= len(driver.devices())):
        return DEFAULT, None
    return target_of(driver.devices()[a.device[1]], target), None


def target_of(device: driver.DeviceInfo, target: str | None) -> Target:
    """Return the chip of a device; `target` is what the caller asked for, to be checked against it."""
    chips = [t for t in TARGETS.values() if t.isa == "ptx"]
    asked = next((t for t in chips if t.name == target), None)
    if asked is not None and runs_text(asked, device.compute_capability):
        return asked
    chip = native_chip(chips, device)
    if chip is None:
        built = ", ".join(f"{t.name} ({t.product})" for t in chips)
        raise DriverError(
            f"{device.name} has compute capability {'.'.join(map(str, device.compute_capability))}; tilekit builds "
            f"kernels for {built}. Arrays in host memory can be computed on the emulator instead",
            code="TK-API-003",
        )
    if target not in (None, "cuda", chip.name):
        raise ArgumentError(
            f"target={target!r}, but the arrays are on {device.name}, which is {chip.name}: build the kernel for "
            f"that (leave target out), or pass arrays in host memory to emulate {target}",
            code="TK-API-001",
        )
    return chip


def machine_of(target: Target) -> str:
    """The architecture that PTX for `target` is assembled for: that of the GPUs here, where it is a later one.

    Cubins run on GPUs of their major number; text runs on every later one, if it is not for one chip alone.
    """
    devices = [] if driver.why_unavailable() is not None else driver.devices()
    if not devices or native_chip([target], devices[0]) or not runs_text(target, devices[0].compute_capability):
        return target.name
    return "sm_{}{}".format(*devices[0].compute_capability)


def native_chip(chips: Sequence[Target], device: driver.DeviceInfo) -> Target | None:
    """The chip whose cubins a GPU runs: its own, or the nearest before it of the same major number."""
    major, minor = device.compute_capability
    same = [t for t in chips if t.compute_capability == (major, minor)]
    before = [t for t in chips if t.portable and t.compute_capability[0] == major and t.compute_capability[1] < minor]
    return next(iter(same), None) or max(before, key=lambda t: t.compute_capability, default=None)


def runs_text(chip: Target, capability: tuple[int, int]) -> bool:
    """Whether an NVIDIA GPU of this compute capability runs text for a chip: it is a later one, or the chip itself."""
    own = chip.compute_capability
    return chip.isa == "ptx" and (own == capability or (chip.portable and own < capability))


def _first_amd_gpu() -> Target:
    """The chip of the first AMD GPU."""
    reason = hip.why_unavailable()
    if reason is not None:
        raise HipError(
            f"target='hip', but there is no AMD GPU to use: {reason}; name a chip ("
            f"{', '.join(t.name for t in TARGETS.values() if t.isa == 'gcn')}) to run on the emulator",
            code="TK-API-002",
        )
    return _amd_target_of(0, "hip")


def _amd_target_of(ordinal: int, target: str | None) -> Target:
    """The chip of an AMD GPU; `target` is what the caller asked for."""
    return hip_target_of(hip.devices()[ordinal], target)


def hip_target_of(device: hip.HipDevice, target: str | None) -> Target:
    """Return the chip of an AMD GPU; `target` is what the caller asked for, to be checked against it."""
    chips = {name: t for name, t in TARGETS.items() if t.isa == "gcn"}
    if device.chip not in chips:
        built = ", ".join(f"{t.name} ({t.product})" for t in chips.values())
        raise HipError(
            f"{device.name} is {device.chip}; tilekit builds kernels for {built}. Arrays in host memory can be "
            "computed on the emulator instead",
            code="TK-API-003",
        )
    if target not in (None, "hip", device.chip):
        raise ArgumentError(
            f"target={target!r}, but the arrays are on {device.name}, which is {device.chip}: build the kernel for "
            f"that (leave target out), or pass arrays in host memory to emulate {target}",
            code="TK-API-001",
        )
    return chips[device.chip]


def gpu_name(device: tuple[str, int]) -> str:
    """Return what the GPU of an array's device is called."""
    kind, ordinal = device
    return hip.devices()[ordinal].name if kind == "hip" else driver.devices()[ordinal].name
