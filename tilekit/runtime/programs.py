"""Running a toolchain's program, with its files under no name: nothing is left of them, however this process ends."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tilekit.errors import AssemblerError

__all__ = ["nameless", "path_of", "run_program"]

_TIMEOUT = 900.0  # seconds; a kernel that spills badly takes minutes, one that is well takes a tenth of a second


def nameless() -> IO[bytes]:
    """A temporary file without a name."""
    return tempfile.TemporaryFile()


def path_of(file: IO[bytes]) -> str:
    """What a child process that has the same file open can call it."""
    return f"/dev/fd/{file.fileno()}"


def run_program(
    name: str, command: Sequence[str | Path], *, file: IO[bytes] | None = None, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a program, called `name` in errors, that reads `given` and may open `file`.

    Raises
    ------
    AssemblerError
        ``TK-ASM-005`` when it does not end in time.
    """
    files = [] if file is None else [file.fileno()]
    try:
        return subprocess.run(command, input=given, pass_fds=files, capture_output=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise AssemblerError(f"{name} did not end within {_TIMEOUT:g} s", code="TK-ASM-005") from error
