"""Assembling PTX text into a cubin with ptxas, and disassembling a cubin.

ptxas is always run as a program: nvJitLink and the driver's linker assemble in a mode that drops every ``setmaxnreg``,
so a warp-specialised kernel built by them is correct and silently slow.
"""

from __future__ import annotations

from pathlib import Path

from tilekit.errors import ArgumentError, AssemblerError
from tilekit.runtime import ptxas_log
from tilekit.runtime.cache import Entry
from tilekit.runtime.diagnostics import with_source_lines
from tilekit.runtime.programs import nameless, path_of, run_program
from tilekit.runtime.resources import PtxResources
from tilekit.runtime.toolchain import Tool, find_disassembler, find_ptxas

__all__ = ["Ptxas", "disassemble_cubin"]

_OPTIONS = ("--verbose",)


class Ptxas:
    """The assembler of PTX: `tilekit.runtime.assembler.Assembler` over NVIDIA's program."""

    def __init__(self) -> None:
        self.tool = find_ptxas()
        self.id = self.tool.id
        self.options: tuple[str, ...] = _OPTIONS

    def build(self, text: str, target: str, what: str) -> Entry:
        """Assemble a module into a cubin, with ptxas's log."""
        return _run_ptxas(self.tool, text, what, target)

    def resources(self, text: str, entry: Entry, what: str, kernel_name: str) -> PtxResources:
        """Return the kernel's resources, or raise for what ptxas reports but lets pass."""
        log = entry.header["log"]
        entries = ptxas_log.read_resources(log)
        if kernel_name not in entries:
            legal = f"an entry of the module: {', '.join(entries) or 'it has none'}"
            raise ArgumentError.of("kernel_name", kernel_name, legal=legal, code="TK-ASM-007")
        losses = ptxas_log.performance_losses(log)
        if losses:
            shown = with_source_lines(text, losses)
            raise AssemblerError(f"ptxas would make {what} slow:\n{shown}", log=log, code="TK-ASM-003")
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


def disassemble_cubin(cubin: bytes) -> str:
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
    with nameless() as image:
        image.write(cubin)
        image.flush()
        answer = run_program(tool.id, [tool.path, *options, path_of(image)], file=image)
    output = answer.stdout.decode(errors="replace")
    if answer.returncode != 0:
        log = answer.stderr.decode(errors="replace") + output
        raise AssemblerError(f"{tool.id} rejected a cubin: {log.strip()[:500]}", log=log, code="TK-ASM-008")
    return output


def _run_ptxas(ptxas: Tool, ptx: str, what: str, target: str) -> Entry:
    with nameless() as image:
        command: list[str | Path] = [ptxas.path, *_OPTIONS, f"-arch={target}", "-", "-o", path_of(image)]
        answer = run_program(ptxas.id, command, file=image, given=ptx.encode())
        log = (answer.stdout + answer.stderr).decode(errors="replace")
        if answer.returncode == 0:
            image.seek(0)
            return Entry({"assembler": ptxas.id, "target": target, "log": log}, image.read())
    messages = [message for message in ptxas_log.diagnostics(log) if message.severity in ("error", "fatal")]
    if any(message.line is not None for message in messages):
        messages = [message for message in messages if message.line is not None]
    text = with_source_lines(ptx, messages) or f"  status {answer.returncode}: {log.strip()[:500]}"
    raise AssemblerError(f"{ptxas.id} rejected {what}:\n{text}", log=log)
