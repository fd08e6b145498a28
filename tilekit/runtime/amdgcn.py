"""Assembling AMDGCN text into a code object with clang's integrated assembler and lld, and disassembling one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tilekit.emulator import EmulatorError
from tilekit.errors import ArgumentError, AssemblerError
from tilekit.runtime.amd_toolchain import AmdTools, find_amd_tools
from tilekit.runtime.cache import Entry
from tilekit.runtime.diagnostics import Diagnostic, with_source_lines
from tilekit.runtime.programs import nameless, path_of, run_program
from tilekit.runtime.resources import GcnResources

if TYPE_CHECKING:
    from tilekit.emulator.gcn.binary.code_object import CodeObject, CodeObjectKernel

__all__ = ["Amdgcn", "disassemble_code_object"]

# Version 5 is loaded by every ROCm that knows the chips; a text that names another version has that.
_OPTIONS = ("-triple", "amdgcn-amd-amdhsa", "-filetype", "obj", "-mllvm", "--amdhsa-code-object-version=5")
_LINKER_OPTIONS = ("-shared", "--build-id=none")
_MESSAGE = re.compile(r"^<stdin>:(?P<line>\d+):\d+: (?P<severity>error|warning|fatal error): (?P<message>.*)$", re.M)
_LANES = 64
_SIMDS = 4


class Amdgcn:
    """The assembler of AMD's instruction set: `tilekit.runtime.assembler.Assembler` over LLVM's programs."""

    def __init__(self) -> None:
        self.tools = find_amd_tools()
        self.id = self.tools.id
        self.options: tuple[str, ...] = (*_OPTIONS, *_LINKER_OPTIONS)

    def build(self, text: str, target: str, what: str) -> Entry:
        """Assemble and link a module into a code object, with what the assembler said."""
        return _run_tools(self.tools, text, target, what)

    def resources(self, text: str, entry: Entry, what: str, kernel_name: str) -> GcnResources:
        """Return what the kernel's descriptor allocates, or raise where the chip or a launch cannot do with it."""
        image = _read(entry.payload, what)
        kernel = image.kernels.get(kernel_name)
        if kernel is None:
            legal = f"a kernel of the module: {', '.join(image.kernels) or 'it has no .amdhsa_kernel'}"
            raise ArgumentError.of("kernel_name", kernel_name, legal=legal, code="TK-ASM-007")
        problems = _problems(image, kernel)
        if problems:
            listed = "".join(f"\n  - {problem}" for problem in problems)
            raise AssemblerError(f"{what} cannot be launched:{listed}", log=entry.header["log"], code="TK-ASM-009")
        descriptor = kernel.descriptor
        return GcnResources(
            registers=descriptor.registers,
            stack_bytes=descriptor.field("private_segment_fixed_size"),
            static_shared_bytes=descriptor.lds_bytes,
            vgprs=descriptor.vgprs,
            agprs=descriptor.agprs,
            sgprs=descriptor.sgprs,
            waves_per_simd=_waves_per_simd(image, kernel),
        )


def disassemble_code_object(image: bytes) -> str:
    """Return a code object as assembly text, with descriptors and metadata.

    Raises
    ------
    AssemblerError
        When the image is cut, damaged, or for a chip that is not known (``TK-ASM-010``).
    """
    from tilekit.emulator.gcn.binary.listing import decode

    try:
        return decode(image)
    except EmulatorError as error:
        raise AssemblerError(str(error), code="TK-ASM-010") from error


def _run_tools(tools: AmdTools, text: str, target: str, what: str) -> Entry:
    command = [*tools.assembler, *_OPTIONS, "-target-cpu", target, "-", "-o", "-"]
    answer = run_program(tools.id, command, given=text.encode())
    log = answer.stderr.decode(errors="replace")
    if answer.returncode != 0:
        messages = [
            Diagnostic(match["severity"], int(match["line"]), match["message"])
            for match in _MESSAGE.finditer(log)
            if match["severity"] != "warning"
        ]
        shown = with_source_lines(text, messages) or f"  status {answer.returncode}: {log.strip()[:500]}"
        raise AssemblerError(f"{tools.id} rejected {what}:\n{shown}", log=log)
    with nameless() as object_file:
        object_file.write(answer.stdout)
        object_file.flush()
        linked = run_program(
            tools.id, [*tools.linker, *_LINKER_OPTIONS, path_of(object_file), "-o", "-"], file=object_file
        )
    log += linked.stderr.decode(errors="replace")
    if linked.returncode != 0:
        said = linked.stderr.decode(errors="replace").strip()[:1000]
        raise AssemblerError(f"{tools.id} could not link {what}:\n  {said}", log=log)
    return Entry({"assembler": tools.id, "target": target, "log": log}, linked.stdout)


def _read(image: bytes, what: str) -> CodeObject:
    """Return what the linker made; a cache that was damaged beyond its checksum is not expected."""
    from tilekit.emulator.gcn.binary.code_object import CodeObject

    try:
        return CodeObject.read(image)
    except EmulatorError as error:
        raise AssemblerError(f"{what} is no code object that can be loaded: {error}", code="TK-ASM-010") from error


def _problems(image: CodeObject, kernel: CodeObjectKernel) -> list[str]:
    """Return what the assembler lets pass and a launch does not; it checks neither LDS nor the metadata."""
    problems = []
    if kernel.descriptor.lds_bytes > image.chip.lds_bytes:
        over = kernel.descriptor.lds_bytes - image.chip.lds_bytes
        problems.append(
            f"LDS: {kernel.descriptor.lds_bytes} bytes a workgroup, {over} more than {image.chip.name} has; "
            f"at most {image.chip.lds_bytes}"
        )
    if not kernel.metadata:
        problems.append(f"metadata: .amdgpu_metadata has no kernel whose .symbol is {kernel.name}.kd")
        return problems
    for key, field in (
        (".group_segment_fixed_size", "group_segment_fixed_size"),
        (".private_segment_fixed_size", "private_segment_fixed_size"),
        (".kernarg_segment_size", "kernarg_size"),
    ):
        said, holds = kernel.metadata.get(key), kernel.descriptor.field(field)
        if said != holds:
            problems.append(f"metadata: {key} is {said}, but .amdhsa_{field} is {holds}")
    return problems


def _waves_per_simd(image: CodeObject, kernel: CodeObjectKernel) -> int:
    """Return how many waves a SIMD holds, by registers and by static LDS with workgroups of the largest size."""
    waves = kernel.descriptor.waves_per_simd
    granule = image.chip.lds_granule
    lds = -(-kernel.descriptor.lds_bytes // granule) * granule
    threads = kernel.metadata.get(".max_flat_workgroup_size", 0)
    if lds and threads:
        workgroups = image.chip.lds_bytes // lds
        waves = min(waves, max(1, workgroups * -(-threads // _LANES) // _SIMDS))
    return waves
