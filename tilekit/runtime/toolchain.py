"""Finding the CUDA toolkit's programs (ptxas, nvdisasm, cuobjdump) and asking them for their versions."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilekit.errors import AssemblerNotFound
from tilekit.settings import settings

_RELEASE = re.compile(r"release \d+\.\d+, V(\d+)\.(\d+)\.(\d+)")
_BUILD = re.compile(r"^Build (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Tool:
    """A program of the CUDA toolkit.

    Attributes
    ----------
    name : str
        ``ptxas``, ``nvdisasm`` or ``cuobjdump``.
    path : pathlib.Path
        Where it is.
    version : tuple of int
        The toolkit's version, e.g. ``(13, 0, 88)``.
    build : str
        NVIDIA's build name; tells two builds of one version apart.
    """

    name: str
    path: Path
    version: tuple[int, int, int]
    build: str

    @property
    def id(self) -> str:
        """Name, version and build, without the path: two machines with the same program agree on it."""
        return f"{self.name} {'.'.join(map(str, self.version))} ({self.build})"


def find_ptxas() -> Tool:
    """Return the assembler: `settings.ptxas` if set, else the first in the nvidia wheels, CUDA_HOME and PATH.

    Raises
    ------
    AssemblerNotFound
        When there is none, or the one found does not run.
    """
    if settings.ptxas is not None:
        return _probe("ptxas", settings.ptxas)
    return _find("ptxas", "pip install nvidia-cuda-nvcc, or set TILEKIT_PTXAS to a ptxas executable")


def find_disassembler() -> Tool:
    """Return nvdisasm, or cuobjdump where there is no nvdisasm.

    Raises
    ------
    AssemblerNotFound
        When there is neither.
    """
    try:
        return _find("nvdisasm", "pip install nvidia-cuda-nvdisasm")
    except AssemblerNotFound as missing:
        try:
            return _find("cuobjdump", "")
        except AssemblerNotFound:
            raise missing from None


def _find(name: str, remedy: str) -> Tool:
    for folder in _folders():
        found = shutil.which(name, path=str(folder))
        if found:
            return _probe(name, Path(found))
    found = shutil.which(name)
    if found:
        return _probe(name, Path(found))
    raise AssemblerNotFound(f"no {name} in the nvidia wheels, CUDA_HOME, PATH or /usr/local/cuda; {remedy}")


def _folders() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        # nvidia/cu13/bin since CUDA 13, nvidia/cuda_nvcc/bin before; the newest first.
        yield from sorted(Path(root).glob("*/bin"), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin"
    yield Path("/usr/local/cuda/bin")


def _probe(name: str, path: Path) -> Tool:
    status = path.stat()
    return _version(name, path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=32)
def _version(name: str, path: Path, mtime: int, size: int) -> Tool:
    """Ask a program for its version; time and size are there to ask again after an upgrade."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AssemblerNotFound(f"{path} does not run: {error}", code="TK-ASM-006") from error
    release = _RELEASE.search(answer.stdout)
    if answer.returncode != 0 or release is None:
        said = (answer.stderr or answer.stdout).strip()[:300]
        raise AssemblerNotFound(
            f"{path} --version does not answer as {name} does (status {answer.returncode}): {said}", code="TK-ASM-006"
        )
    build = _BUILD.search(answer.stdout)
    major, minor, patch = (int(part) for part in release.groups())
    return Tool(name, path, (major, minor, patch), build.group(1) if build else "unknown build")
