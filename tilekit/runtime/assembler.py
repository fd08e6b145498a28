"""Assembling PTX text into a cubin with ptxas, through the disk cache; and disassembling a cubin.

ptxas is always run as a program: nvJitLink and the driver's linker assemble in a mode that drops every ``setmaxnreg``,
so a warp-specialised kernel built by them is correct and silently slow.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from tilekit.errors import ArgumentError, AssemblerError
from tilekit.runtime import ptxas_log
from tilekit.runtime.cache import Entry, default_cache, entry_key
from tilekit.runtime.ptxas_log import Resources
from tilekit.runtime.toolchain import Tool, find_disassembler, find_ptxas

__all__ = ["Assembled", "Resources", "assemble", "disassemble"]

_OPTIONS = ("--verbose",)
_TIMEOUT = 900.0  # seconds; a kernel that spills badly takes minutes, one that is well takes a tenth of a second
_TARGET = re.compile(r"sm_\d{2,3}[af]?")


@dataclass(frozen=True, slots=True)
class Assembled:
    """A kernel in machine code.

    Attributes
    ----------
    cubin : bytes
        The ELF image for `target`.
    log : str
        Everything ptxas printed.
    resources : Resources
        Registers, shared memory, barriers of the kernel.
    assembler_id : str
        Program, version and build that made it. Where that toolkit is newer than the driver, the driver decides when
        the cubin is loaded; within one major version it accepts it.
    kernel_name : str
        The entry.
    target : str
        For example ``sm_90a``.
    """

    cubin: bytes
    log: str
    resources: Resources
    assembler_id: str
    kernel_name: str
    target: str


def assemble(ptx: str, target: str, *, kernel_name: str) -> Assembled:
    """Assemble PTX text, or take the result from the disk cache.

    Parameters
    ----------
    ptx : str
        A complete PTX module.
    target : str
        Architecture to assemble for, e.g. ``sm_90a``.
    kernel_name : str
        The entry whose resources are reported, checked and shown in errors.

    Raises
    ------
    ArgumentError
        When `target` is not written like an architecture, or the module has no entry `kernel_name`.
    AssemblerNotFound
        When there is no ptxas.
    AssemblerError
        When ptxas rejects the text (``TK-ASM-001``, with the PTX line and the Python line that emitted it), gives up
        ``setmaxnreg`` or asynchronous wgmma (``TK-ASM-003``), or needs local memory (``TK-ASM-004``).
    """
    if not _TARGET.fullmatch(target):
        raise ArgumentError.of("target", target, legal="an architecture such as 'sm_90a'", code="TK-ASM-007")
    ptxas = find_ptxas()
    cache = default_cache()
    key = entry_key(ptx, target, ptxas.id, *_OPTIONS)
    entry = cache.get(key)
    if entry is None or not isinstance(entry.header.get("log"), str):
        entry = _run_ptxas(ptxas, ptx, f"kernel {kernel_name!r} for {target}", target)
        cache.put(key, entry)
    log = entry.header["log"]
    resources = _checked_resources(ptx, log, f"kernel {kernel_name!r} for {target}", kernel_name)
    return Assembled(entry.payload, log, resources, ptxas.id, kernel_name, target)


def disassemble(cubin: bytes) -> str:
    """Return the machine code of a cubin as SASS text.

    Raises
    ------
    AssemblerNotFound
        When there is neither nvdisasm nor cuobjdump.
    AssemblerError
        When the disassembler rejects the image, for example because it is older than the assembler.
    """
    tool = find_disassembler()
    options = ["--print-code"] if tool.name == "nvdisasm" else ["--dump-sass"]
    with _nameless() as image:
        image.write(cubin)
        image.flush()
        answer = _run(tool, [*options, _path_of(image)], image)
    if answer.returncode != 0:
        log = answer.stderr + answer.stdout
        raise AssemblerError(f"{tool.id} rejected a cubin: {log.strip()[:500]}", log=log, code="TK-ASM-008")
    return answer.stdout


def _run_ptxas(ptxas: Tool, ptx: str, what: str, target: str) -> Entry:
    with _nameless() as image:
        answer = _run(ptxas, [*_OPTIONS, f"-arch={target}", "-", "-o", _path_of(image)], image, ptx)
        log = answer.stdout + answer.stderr
        if answer.returncode == 0:
            image.seek(0)
            return Entry({"assembler": ptxas.id, "target": target, "log": log}, image.read())
    messages = [message for message in ptxas_log.diagnostics(log) if message.severity in ("error", "fatal")]
    if any(message.line is not None for message in messages):
        messages = [message for message in messages if message.line is not None]
    text = ptxas_log.with_source_lines(ptx, messages) or f"  status {answer.returncode}: {log.strip()[:500]}"
    raise AssemblerError(f"{ptxas.id} rejected {what}:\n{text}", log=log)


def _checked_resources(ptx: str, log: str, what: str, kernel_name: str) -> Resources:
    """Return the kernel's resources, or raise for what ptxas reports but lets pass."""
    entries = ptxas_log.read_resources(log)
    if kernel_name not in entries:
        legal = f"an entry of the module: {', '.join(entries) or 'it has none'}"
        raise ArgumentError.of("kernel_name", kernel_name, legal=legal, code="TK-ASM-007")
    losses = ptxas_log.performance_losses(log)
    if losses:
        text = ptxas_log.with_source_lines(ptx, losses)
        raise AssemblerError(f"ptxas would make {what} slow:\n{text}", log=log, code="TK-ASM-003")
    used = entries[kernel_name]
    if used.stack_bytes or used.spill_store_bytes or used.spill_load_bytes:
        raise AssemblerError(
            f"{what} needs local memory, and may have none: {used.stack_bytes} bytes of stack, "
            f"{used.spill_store_bytes} bytes of spill stores and {used.spill_load_bytes} bytes of spill loads a "
            f"thread, at {used.registers} registers. Use a smaller tile or fewer live registers",
            log=log,
            code="TK-ASM-004",
        )
    return used


def _nameless() -> IO[bytes]:
    """A temporary file without a name: nothing is left of it, in whichever way this process ends."""
    return tempfile.TemporaryFile()


def _path_of(file: IO[bytes]) -> str:
    """What a child process that has the same file open can call it."""
    return f"/dev/fd/{file.fileno()}"


def _run(
    tool: Tool, arguments: Sequence[str], file: IO[bytes], text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program that reads `text` and may open `file`."""
    try:
        return subprocess.run(
            [tool.path, *arguments],
            input=text,
            pass_fds=[file.fileno()],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AssemblerError(f"{tool.id} did not end within {_TIMEOUT:g} s", code="TK-ASM-005") from error
