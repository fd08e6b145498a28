"""Text in, machine code out, for every instruction set, through the disk cache; and machine code back into text.

An `Assembler` is chosen by the target: ptxas for ``sm_*``, the AMDGCN assembler and linker for ``gfx*``.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from typing import Protocol

from tilekit.emulator.gcn.binary.machine import is_code_object
from tilekit.errors import ArgumentError
from tilekit.runtime.amdgcn import Amdgcn, disassemble_code_object
from tilekit.runtime.cache import Entry, default_cache, entry_key
from tilekit.runtime.ptxas import Ptxas, disassemble_cubin
from tilekit.runtime.resources import Resources
from tilekit.targets import DEFAULT

__all__ = ["Assembled", "Assembler", "assemble", "disassemble"]

_log = logging.getLogger(__name__)
_PTX_TARGET = re.compile(r"sm_\d{2,3}[af]?")
_GCN_TARGET = re.compile(r"gfx9[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Assembled:
    """A kernel in machine code.

    Attributes
    ----------
    image : bytes
        The ELF image for `target`: a cubin, or an AMD code object.
    log : str
        Everything the assembler printed.
    resources : Resources
        Registers and shared memory of the kernel, and what else its instruction set counts.
    assembler_id : str
        Program, version and build that made it. Where a cubin's toolkit is newer than the driver, the driver decides
        when it is loaded; within one major version it accepts it.
    kernel_name : str
        The entry.
    target : str
        For example ``sm_90a`` or ``gfx950``.
    """

    image: bytes
    log: str
    resources: Resources
    assembler_id: str
    kernel_name: str
    target: str


class Assembler(Protocol):
    """What an instruction set's assembler offers.

    Attributes
    ----------
    id : str
        Program, version and build; part of a cache entry's name.
    options : tuple of str
        What it is run with beside the target; part of a cache entry's name.
    """

    id: str
    options: tuple[str, ...]

    def build(self, text: str, target: str, what: str) -> Entry:
        """Assemble a module, called `what` in errors, into an image with a log, or raise `AssemblerError`."""

    def resources(self, text: str, entry: Entry, what: str, kernel_name: str) -> Resources:
        """Return what a kernel of an image uses, or raise for what must not be launched."""


def assemble(text: str, target: str, *, kernel_name: str, config: str = "") -> Assembled:
    """Assemble a module's text, or take the result from the disk cache.

    Parameters
    ----------
    text : str
        A complete module: PTX, or AMDGCN assembly with kernel descriptors and metadata.
    target : str
        Architecture to assemble for, e.g. ``sm_90a`` or ``gfx942``.
    kernel_name : str
        The entry whose resources are reported, checked and shown in errors.
    config : str, optional
        How it was built, in words: a new entry of the cache says so.

    Raises
    ------
    ArgumentError
        When `target` is not written like an architecture, or the module has no entry `kernel_name`.
    AssemblerNotFound
        When there is no assembler for the target.
    AssemblerError
        When the assembler rejects the text (``TK-ASM-001``, with the line and the Python line that emitted it). ptxas:
        when it gives up ``setmaxnreg`` or asynchronous wgmma (``TK-ASM-003``), or needs local memory
        (``TK-ASM-004``). AMDGCN: when a kernel asks for more than the chip has, or lacks what a launch needs
        (``TK-ASM-009``).
    """
    assembler = _assembler_of(target)
    what = f"kernel {kernel_name!r} for {target}"
    cache = default_cache()
    key = entry_key(text, target, assembler.id, *assembler.options)
    entry = cache.get(key)
    if entry is None or not isinstance(entry.header.get("log"), str):
        start = time.perf_counter()
        entry = assembler.build(text, target, what)
        named = {"kernel": kernel_name, **({"config": config} if config else {})}
        cache.put(key, Entry({**entry.header, **named}, entry.payload))
        _log.info("%s assembled by %s in %.2f s", what, assembler.id, time.perf_counter() - start)
    else:
        _log.debug("%s taken from the cache in %s", what, cache.folder)
    resources = assembler.resources(text, entry, what, kernel_name)
    return Assembled(entry.payload, entry.header["log"], resources, assembler.id, kernel_name, target)


def disassemble(image: bytes) -> str:
    """Return the machine code of an image as text: SASS of a cubin, AMDGCN assembly of a code object.

    Raises
    ------
    AssemblerNotFound
        When a cubin is given and there is no disassembler; code objects need none.
    AssemblerError
        When the image cannot be read.
    """
    return disassemble_code_object(image) if is_code_object(image) else disassemble_cubin(image)


def _assembler_of(target: str) -> Assembler:
    if _PTX_TARGET.fullmatch(target):
        return Ptxas()
    if _GCN_TARGET.fullmatch(target):
        return Amdgcn()
    legal = f"an architecture such as {DEFAULT.name!r} or 'gfx942'"
    raise ArgumentError.of("target", target, legal=legal, code="TK-ASM-007")
