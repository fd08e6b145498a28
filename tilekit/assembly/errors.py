"""What can go wrong while a kernel is traced."""

from __future__ import annotations

from tilekit.errors import TilekitError


class TraceError(TilekitError):
    """The Python that describes a kernel used a device value, scope or role in a way that cannot be traced."""


class UnboundError(TraceError, AttributeError):
    """A component was asked for what it has in a role alone, bound to the role's threads."""


class FragmentError(TilekitError):
    """A fragment file is malformed, or a fragment was given an operand it does not take."""


class MissingFragmentError(FragmentError, AttributeError):
    """A fragment, or a file of them, that the target's instruction set does not have under that name."""


class RegisterError(TilekitError):
    """A kernel needs more registers at once than a wave may have; tilekit never spills.

    Attributes
    ----------
    file : str
        ``vector``, ``scalar`` or ``accumulator``.
    needed, limit : int
        Registers of the file at the peak, and how many there may be.
    """

    code = "TK-REG-001"

    def __init__(self, message: str, *, file: str = "", needed: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.file = file
        self.needed = needed
        self.limit = limit
