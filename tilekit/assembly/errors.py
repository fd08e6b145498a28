"""What can go wrong while a kernel is traced."""

from __future__ import annotations

from tilekit.errors import TilekitError


class TraceError(TilekitError):
    """The Python that describes a kernel used a device value, scope or role in a way that cannot be traced."""


class FragmentError(TilekitError):
    """A fragment file is malformed, or a fragment was given an operand it does not take."""
