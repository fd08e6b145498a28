"""What can go wrong while a kernel is traced."""

from __future__ import annotations

from tilekit.errors import TilekitError


class TraceError(TilekitError):
    """The Python that describes a kernel used a device value, scope or role in a way that cannot be traced."""


class FragmentError(TilekitError):
    """A fragment file is malformed, or a fragment was given an operand it does not take."""


class MissingFragmentError(FragmentError, AttributeError):
    """A fragment, or a file of them, that the target's instruction set does not have under that name."""
