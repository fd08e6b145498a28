"""Where an emitted line came from: the component method and source line that asked for it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_ASSEMBLY = str(Path(__file__).resolve().parent)
_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True)
class Origin:
    """A component's method (``TmaLoader.load``), its file (relative to the package, or a bare name) and line."""

    component: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.component})"


def origin() -> Origin:
    """Return the innermost caller that is neither this package's assembly layer nor a context manager's machinery."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_ASSEMBLY) and not file.endswith("contextlib.py"):
            break
        frame = frame.f_back
    file = frame.f_code.co_filename
    name = file[len(_PACKAGE) + 1 :] if file.startswith(_PACKAGE) else Path(file).name
    component = frame.f_code.co_qualname.replace("<locals>.", "").replace("<", "").replace(">", "")
    return Origin(component, name, frame.f_lineno)
