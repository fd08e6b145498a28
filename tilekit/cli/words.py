"""Errors in the command line's words: an argument of Python's is named by what sets it, an option or a shape."""

from __future__ import annotations

import re

__all__ = ["in_options", "in_shape"]

_NAMES = (
    *("m", "n", "k", "batch", "a_major", "b_major", "out_dtype", "accumulation", "activation"),
    *("target", "tile", "cluster", "cta_group", "stages", "schedule", "stream_k", "driver"),
    *("stride", "padding", "dilation", "groups", "sizes"),
)
"""Arguments and fields that have an option of their name."""
_NAME = rf"(?<![\w.-])({'|'.join(_NAMES)})"
_GIVEN = re.compile(rf"^{_NAME}(?=: given)", re.MULTILINE)
_PAIR = re.compile(rf"{_NAME}=\((\d+), (\d+)\)")
_VALUE = re.compile(rf"{_NAME}=(?:'([^']*)'|([\w.-]*\w))")
_SIZES = re.compile(r"\((\d+(?:, \d+)*),?\)")
_OF_SHAPES = {
    "stride": "s",
    "padding": "p",
    "dilation": "d",
    "groups": "g",
    "batch": "B ",
    "m": "M ",
    "n": "N ",
    "k": "K ",
}
"""What stands before a number in a shape's words, or says which number it is."""
_IN_SHAPE = re.compile(rf"(?<![\w.-])({'|'.join(_OF_SHAPES)})=(?:\((\d+), (\d+)\)|(\d+))")


def in_shape(message: str, shape: str) -> str:
    """Return the message on what a ``--shape`` says, with the shape's words for arguments."""
    if message.startswith("shape: given"):
        return f"--{message}"

    def worded(found: re.Match[str]) -> str:
        return _OF_SHAPES[found[1]] + (found[4] or f"{found[2]}x{found[3]}")

    return f"--shape {shape!r}: {_IN_SHAPE.sub(worded, message)}"


def in_options(message: str) -> str:
    """Return the message with ``name=value`` as ``--name value``, pairs as ``MxN``."""
    if message.startswith("sizes: given"):
        message = _SIZES.sub(lambda found: repr(found[1].replace(" ", "")), message)
    message = _GIVEN.sub(lambda found: _option(found[1]), message)
    message = _PAIR.sub(lambda found: f"{_option(found[1])} {found[2]}x{found[3]}", message)
    return _VALUE.sub(lambda found: f"{_option(found[1])} {found[2] if found[2] is not None else found[3]}", message)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
