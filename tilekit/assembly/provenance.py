"""Where an emitted line came from: the component method and source line that asked for it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
    while _passed_over[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return _origin_at(frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno)


class _PassedOver(dict[str, bool]):
    """Whether code of a file is passed over; every line of every kernel asks for some frames."""

    def __missing__(self, file: str) -> bool:
        self[file] = file.startswith(_ASSEMBLY) or file == _CALLS or file.endswith("contextlib.py")
        return self[file]


_passed_over = _PassedOver()


@cache
def _origin_at(file: str, function: str, line: int) -> Origin:
    """The origin of a line of a function; without a file where that is passed over."""
    component = function.replace("<locals>.", "").replace("<", "").replace(">", "")
    if _passed_over[file]:
        return Origin(component, "", line)
    shown = file[len(_PACKAGE) + 1 :] if file.startswith(_PACKAGE) else Path(file).name
    return Origin(component, shown, line)
