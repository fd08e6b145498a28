"""The errors of a function that is run as an epilogue, with the file and line where the caller wrote it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tilekit.assembly.errors import TraceError
from tilekit.epilogue.graph import FUNCTIONS

_HERE, _NUMPY = (str(Path(file).resolve().parent) for file in (__file__, np.__file__))


def unknown(function: str, name: str) -> TraceError:
    """The error for a function that elements do not have."""
    known = ", ".join([*FUNCTIONS, "maximum", "minimum", "where", "clip"])
    return error(f"{function} calls {name}, which elements do not have; legal: {known}, operators and astype")


def error(message: str) -> TraceError:
    """An error of a function of the caller's, with the file and line where it is."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_HERE, _NUMPY)):
        frame = frame.f_back
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    return TraceError(f"{place}: {message}", code="TK-EPI-003")


def shown(value: Any) -> str:
    """A value in a message."""
    return f"{type(value).__name__} {value!r}"[:80]
