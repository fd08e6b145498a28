"""What can be wrong with a code object."""

# ruff: noqa: N818 (the name is the fault, as the emulator's other errors say it)
from __future__ import annotations

from tilekit.emulator.core.errors import EmulatorError

__all__ = ["CodeObjectFault"]


class CodeObjectFault(EmulatorError):
    """Bytes that are no AMD code object, one that is cut or damaged, or one for a chip that is not known."""

    title = "code object"
