"""Finding clang's assembler and linker for AMD GPUs: in the ziglang wheel, else in a ROCm installation.

The wheel comes first: it is one exact release of LLVM that knows every chip tilekit builds for, and a ROCm may be older
than the chip. ``zig cc`` is not used: it marks objects as made for xnack and sramecc off, which a chip that runs with
sramecc on refuses.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilekit.errors import AssemblerNotFound

__all__ = ["AmdTools", "find_amd_tools"]

_VERSION = re.compile(r"clang version (\S+)")
_TIMEOUT = 60


@dataclass(frozen=True, slots=True)
class AmdTools:
    """An assembler and a linker of one release of LLVM.

    Attributes
    ----------
    name : str
        ``ziglang`` or ``ROCm clang``.
    assembler, linker : tuple of str
        The commands: of the integrated assembler, and of lld as a linker of ELF images.
    version : str
        LLVM's version, with what its builder says beside.
    """

    name: str
    assembler: tuple[str, ...]
    linker: tuple[str, ...]
    version: str

    @property
    def id(self) -> str:
        """Name and version, without the path: two machines with the same programs agree on it."""
        return f"{self.name} (LLVM {self.version})"


def find_amd_tools() -> AmdTools:
    """Return the tools of the ziglang wheel, else those of a ROCm installation.

    Raises
    ------
    AssemblerNotFound
        When there are none (``TK-ASM-002``), or those found do not run (``TK-ASM-006``).
    """
    for zig in _wheel():
        return _tools("ziglang", (str(zig), "clang"), (str(zig), "-cc1as"), (str(zig), "ld.lld"))
    for folder in _rocm_folders():
        clang, linker = folder / "clang", folder / "ld.lld"
        if clang.is_file() and linker.is_file():
            return _tools("ROCm clang", (str(clang),), (str(clang), "-cc1as"), (str(linker),))
    raise AssemblerNotFound(
        "no assembler for AMD GPUs in the ziglang wheel, ROCM_PATH, HIP_PATH or /opt/rocm; pip install ziglang"
    )


def _wheel() -> Iterator[Path]:
    spec = importlib.util.find_spec("ziglang")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(root) / "zig"
        if program.is_file():
            yield program


def _rocm_folders() -> Iterator[Path]:
    for root in (os.environ.get("ROCM_PATH"), os.environ.get("HIP_PATH"), "/opt/rocm"):
        if root:
            yield Path(root) / "llvm" / "bin"


def _tools(name: str, clang: tuple[str, ...], assembler: tuple[str, ...], linker: tuple[str, ...]) -> AmdTools:
    status = Path(clang[0]).stat()
    return AmdTools(name, assembler, linker, _version(clang, status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=32)
def _version(clang: tuple[str, ...], mtime: int, size: int) -> str:
    """Ask clang for its version; time and size are there to ask again after an upgrade."""
    what = " ".join(clang)
    try:
        answer = subprocess.run([*clang, "--version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AssemblerNotFound(f"{what} does not run: {error}", code="TK-ASM-006") from error
    release = _VERSION.search(answer.stdout)
    if answer.returncode != 0 or release is None:
        said = (answer.stderr or answer.stdout).strip()[:300]
        raise AssemblerNotFound(
            f"{what} --version does not answer as clang does (status {answer.returncode}): {said}", code="TK-ASM-006"
        )
    return release[1]
