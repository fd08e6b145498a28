"""The emulated AMD device: memory and modules."""

from __future__ import annotations

from typing import Annotated

from tilekit.emulator.core import room
from tilekit.emulator.core.annotations import Accepts
from tilekit.emulator.core.checked import checked
from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.core.schedules import Check, Policy, Starts
from tilekit.emulator.gcn.chips import CHIPS, Chip
from tilekit.emulator.gcn.module import Module

__all__ = ["Device"]


class Device(room.Device, chips=CHIPS):
    """An emulated AMD GPU.

    Parameters
    ----------
    target
        Chip, ``gfx942`` or ``gfx950``.
    seed
        Of every random choice of the schedule: the same seed runs the same way.
    schedule
        ``adversarial`` lets memory operations land when they are waited for, ``random`` at that moment or at once,
        ``fair`` at once.
    check
        ``full``: everything, races included. ``protocol``: rules of use, missing waits included. ``off``: only what
        would break the run.
    exact
        Round matrix products bit for bit as a published model of gfx942 does (`matrix.rounding`), not compared with a
        chip here: slow. Otherwise they are computed in float32. Only on gfx942.
    multiprocessors
        Compute units that the device has, 1 to the chip's number, a workgroup on each at a time; None for as many
        workgroups as are fast to run. With few, workgroups wait for others to end.
    starts
        Order in which workgroups start.
    """

    chip: Chip

    @checked
    def __init__(
        self,
        target: str = "gfx950",
        *,
        seed: int = 0,
        schedule: Policy = "adversarial",
        check: Check = "full",
        exact: bool = False,
        multiprocessors: int | None = None,
        starts: Starts = "ascending",
    ) -> None:
        self._set(target, seed, schedule, check, starts)
        most = self.chip.units
        if multiprocessors is not None and not 1 <= multiprocessors <= most:
            raise LaunchError.argument(
                "multiprocessors", multiprocessors, f"1 to {most} on {target}", min(max(multiprocessors, 1), most)
            )
        if exact and target != "gfx942":
            raise LaunchError.argument("exact", exact, f"False on {target}: the rounding known is gfx942's", False)
        self.exact = exact
        self.multiprocessors = multiprocessors
        self.units = multiprocessors or most

    @checked
    def load(self, module: Annotated[str | bytes, Accepts("a string of AMDGCN assembly, or a code object")]) -> Module:
        """Load AMDGCN assembly text, or a code object, which is decoded into such text.

        Raises
        ------
        GcnSyntaxError, UnsupportedInstruction
            Naming line and column, of the text or of the code object's listing.
        CodeObjectFault
            For bytes that are no code object for gfx942 or gfx950, or a damaged one.
        """
        if isinstance(module, str):
            return Module(self, module)
        # Only code objects take readers of ELF and of msgpack, which texts run without.
        from tilekit.emulator.gcn.binary.listing import decode

        return Module(self, decode(bytes(module), exact=False))
