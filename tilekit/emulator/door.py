"""The one door to the rooms: `Device`, behind which every room has been put by now."""

from __future__ import annotations

from tilekit.emulator.core.room import Device
from tilekit.emulator.gcn.device import Device as GcnDevice
from tilekit.emulator.ptx.device import Device as PtxDevice

__all__ = ["Device", "GcnDevice", "PtxDevice"]
