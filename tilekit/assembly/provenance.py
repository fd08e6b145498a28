"""Where an emitted line came from: the component method and source line that asked for it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

_ASSEMBLY = str(Path(__file__).resolve().parent)
_PACKAGE = str(Path(__file__).resolve().parent.parent)
_CALLS = str(Path(_PACKAGE) / "annotations.py")


@dataclass(frozen=True, slots=True)
class Origin:
    """A component's method (``TmaLoader.load``), its file (relative to the package, or a bare name) and line."""

    component: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.component})"


def origin() -> Origin:
    """Return the innermost caller that is neither this package's assembly layer nor machinery of calls and contexts."""
    frame = sys._getframe(1)
    while True:
        component, file = _names(frame.f_code)
        if file or frame.f_back is None:
            return Origin(component, file, frame.f_lineno)
        frame = frame.f_back


@cache
def _names(code: CodeType) -> tuple[str, str]:
    """What code is called in an `Origin`, and its file; no file for code that is passed over."""
    file = code.co_filename
    component = code.co_qualname.replace("<locals>.", "").replace("<", "").replace(">", "")
    if file.startswith(_ASSEMBLY) or file == _CALLS or file.endswith("contextlib.py"):
        return component, ""
    return component, file[len(_PACKAGE) + 1 :] if file.startswith(_PACKAGE) else Path(file).name
