"""The device that a chip's name asks for: one door to the rooms."""

from __future__ import annotations

from typing import Any, Self

from tilekit.emulator.gcn.chips import CHIPS as AMD_CHIPS
from tilekit.emulator.gcn.device import Device as AmdDevice
from tilekit.emulator.ptx import device as ptx

__all__ = ["Device"]


class Device(ptx.Device):
    """An emulated GPU: of NVIDIA for targets such as ``sm_90a``, of AMD for ``gfx942`` and ``gfx950``.

    Parameters
    ----------
    target
        Chip.
    options
        Those of :class:`tilekit.emulator.ptx.device.Device`, or of :class:`tilekit.emulator.gcn.device.Device`.
    """

    def __new__(cls, target: str = "sm_90a", **options: Any) -> Self:
        """Return the device of the room that knows the chip."""
        if isinstance(target, str) and (target in AMD_CHIPS or target.startswith("gfx")):
            return AmdDevice(target, **options)  # type: ignore[return-value]
        return super().__new__(cls)
