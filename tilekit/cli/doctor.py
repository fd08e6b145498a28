"""``tilekit doctor``: what is installed, what it can do, what is missing; a block to paste into an issue."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import sys
from collections.abc import Callable
from typing import Any

import typer

from tilekit.cli import common, tables
from tilekit.cli.doctor_amd import amd_section
from tilekit.cli.progress import waiting

_PACKAGES = (
    "numpy",
    "ml_dtypes",
    "cuda-bindings",
    "cuda-pathfinder",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-nvdisasm",
    "torch",
    "cupy-cuda13x",
    "hip-python",
    "ziglang",
    "triton",
    "nvidia-ml-py",
    "matplotlib",
)

Section = dict[str, Any]


def doctor(as_json: common.Json = False) -> None:
    """Report the driver, GPUs, assemblers, cache, packages and settings, and what stands in the way of a GPU run.

    Exits with 3 if there is a GPU and something is missing to use it; without a GPU the emulator is all there is, and
    that is well.
    """
    with common.presented(as_json), waiting("asking the machine", as_json):
        gpus, gpu_problem, gpu_expected = _gpus()
        tools, tool_problem = _tools()
        sections: dict[str, Section] = {
            "tilekit": _versions(),
            "gpus": gpus,
            "assemblers": tools,
            "amd": amd_section(),
            "cache": _cache(),
            "packages": {name: _package(name) or "not installed" for name in _PACKAGES},
            "settings": _settings(),
        }
    library_problem = _no_library() if gpu_expected else None
    problems = [problem for problem in (gpu_problem, tool_problem, library_problem) if problem]
    if as_json:
        typer.echo(json.dumps({**sections, "problems": problems}, default=str))
    else:
        width = max(len(name) for section in sections.values() for name in section)
        for title, section in sections.items():
            typer.secho(f"{title}:", bold=True)
            for name, value in section.items():
                typer.echo(tables.wrapped(name, value, width))
        runs = "kernels run on the emulator" if problems else "kernels run on the GPU"
        typer.secho(f"verdict: {runs}", bold=True)
        for problem in problems:
            typer.secho(tables.wrapped("-", problem, 1), fg="yellow")
    raise typer.Exit(common.MISSING if gpu_expected and problems else common.OK)


def _versions() -> Section:
    import tilekit

    return {
        "version": tilekit.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
    }


def _gpus() -> tuple[Section, str | None, bool]:
    """Return the GPUs, what stands in the way of using one, and whether one should be usable."""
    from tilekit.errors import DriverError
    from tilekit.kernels.resolve import native_chip
    from tilekit.runtime import driver
    from tilekit.targets import TARGETS

    try:
        found = driver.devices()
    except DriverError as error:
        return {"none": error.message}, error.message, _has_nvidia_driver()
    supported = [target for target in TARGETS.values() if target.isa == "ptx"]
    section: Section = {}
    for gpu in found:
        major, minor = gpu.compute_capability
        chip = native_chip(supported, gpu)
        runs = f"runs {chip.name}" if chip is not None else "not a target of tilekit"
        version = ".".join(map(str, gpu.driver_version))
        section[f"cuda:{gpu.ordinal}"] = (
            f"{gpu.name}, compute capability {major}.{minor} ({runs}), "
            f"{gpu.sms} SMs, {gpu.memory / 2**30:.0f} GiB, driver for CUDA {version}"
        )
    if not any(native_chip(supported, gpu) for gpu in found):
        names = ", ".join(f"{t.name} ({'.'.join(map(str, t.compute_capability))})" for t in supported)
        return section, f"no GPU here is one of tilekit's targets: {names}", False
    return section, None, True


def _has_nvidia_driver() -> bool:
    return shutil.which("nvidia-smi") is not None


def _tools() -> tuple[Section, str | None]:
    from tilekit.errors import AssemblerNotFound
    from tilekit.runtime.toolchain import find_disassembler, find_ptxas

    section: Section = {}
    problem = None
    finders: dict[str, Callable[[], Any]] = {"ptxas": find_ptxas, "disassembler": find_disassembler}
    for name, find in finders.items():
        try:
            tool = find()
        except AssemblerNotFound as error:
            section[name] = f"none: {error.message}"
            problem = problem or error.message
        else:
            section[name] = f"{tool.id}, {tool.path}"
    if section["ptxas"].startswith("none"):
        return section, problem
    section["ptxas targets"] = _assembles()
    return section, problem


def _assembles() -> str:
    """Say which targets the assembler can build for, by assembling an empty kernel for each."""
    from tilekit.assembly.writer import Writer
    from tilekit.errors import TilekitError
    from tilekit.runtime.assembler import assemble
    from tilekit.targets import TARGETS

    words = []
    for name in (chip.name for chip in TARGETS.values() if chip.isa == "ptx"):
        try:
            assemble(Writer("probe", target=name, threads=32).text(), name, kernel_name="probe")
            words.append(name)
        except TilekitError as error:
            words.append(f"not {name} ({' '.join(error.message.splitlines()[:2])})")
    return ", ".join(words)


def _cache() -> Section:
    from tilekit.runtime.cache import default_cache

    stats = default_cache().stats()
    return {
        "folder": str(stats.folder),
        "kernels": f"{stats.entries} in {stats.bytes / 2**20:.1f} MiB, at most {stats.limit / 2**20:.0f} MiB",
    }


def _package(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _no_library() -> str | None:
    if _package("torch") or any(dist.startswith("cupy") for dist in _installed()):
        return None
    return f"no library for arrays on the GPU: {sys.executable} -m pip install cupy-cuda13x, or torch"


def _installed() -> set[str]:
    return {(distribution.metadata["Name"] or "").lower() for distribution in importlib.metadata.distributions()}


def _settings() -> Section:
    from tilekit.settings import settings

    return {row.name: f"{row.value} ({row.source}; {row.environment})" for row in settings.describe()}
