"""Errors in the command line's words: an argument of Python's is named by the option that sets it."""

from __future__ import annotations

import re

__all__ = ["in_options"]

_NAMES = (
    *("m", "n", "k", "batch", "a_major", "b_major", "out_dtype", "accumulation", "activation"),
    *("target", "tile", "cluster", "cta_group", "stages", "schedule", "stream_k", "driver"),
    *("stride", "padding", "dilation", "groups"),
)
"""Arguments and fields that have an option of their name."""
_NAME = rf"(?<![\w.-])({'|'.join(_NAMES)})"
_GIVEN = re.compile(rf"^{_NAME}(?=: given)", re.MULTILINE)
_PAIR = re.compile(rf"{_NAME}=\((\d+), (\d+)\)")
_VALUE = re.compile(rf"{_NAME}=(?:'([^']*)'|([\w.-]*\w))")


def in_options(message: str) -> str:
    """Return the message with ``name=value`` as ``--name value``, pairs as ``MxN``."""
    message = _GIVEN.sub(lambda found: _option(found[1]), message)
    message = _PAIR.sub(lambda found: f"{_option(found[1])} {found[2]}x{found[3]}", message)
    return _VALUE.sub(lambda found: f"{_option(found[1])} {found[2] if found[2] is not None else found[3]}", message)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
