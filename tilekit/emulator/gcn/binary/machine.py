"""The chips that code objects are read for, and how an ELF header names them (LLVM, User Guide for AMDGPU, ELF)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

__all__ = ["CHIPS", "Chip", "abi_of_version", "feature_flags", "is_code_object", "target_id"]

_MACHINE: Final = 224  # EM_AMDGPU
_HEADER: Final = struct.Struct("<4s12xHH")
_FIRST_VERSION: Final = 2  # ABI version 0 is code object version 2
_XNACK: Final = {0x100: "", 0x200: "xnack-", 0x300: "xnack+"}
_SRAMECC: Final = {0x400: "", 0x800: "sramecc-", 0xC00: "sramecc+"}


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip whose code objects can be read.

    Attributes
    ----------
    name
        As the assembler spells it.
    machine
        Its number in the low byte of an ELF header's flags.
    lds_bytes, lds_granule
        Local data share of a compute unit, and the unit in which it is allocated.
    """

    name: str
    machine: int
    lds_bytes: int
    lds_granule: int


CHIPS: Final = {chip.name: chip for chip in (Chip("gfx942", 0x4C, 65536, 512), Chip("gfx950", 0x4F, 163840, 1280))}
"""Chips by name."""


def is_code_object(image: bytes) -> bool:
    """Whether bytes begin as an ELF image for an AMD GPU does."""
    if len(image) < _HEADER.size:
        return False
    magic, _, machine = _HEADER.unpack_from(image)
    return bool(magic == b"\x7fELF" and machine == _MACHINE)


def abi_of_version(abi: int) -> int:
    """Return the code object version that an ELF header's ABI version stands for."""
    return abi + _FIRST_VERSION


def feature_flags(flags: int) -> str:
    """Return what of xnack and sramecc an object demands, as a target name writes it: ``:sramecc+:xnack-``."""
    demanded = (_SRAMECC.get(flags & 0xC00, ""), _XNACK.get(flags & 0x300, ""))
    return "".join(f":{feature}" for feature in demanded if feature)


def target_id(chip: str, flags: int) -> str:
    """Return the full name of an object's target, as ``.amdgcn_target`` takes it."""
    return f"amdgcn-amd-amdhsa--{chip}{feature_flags(flags)}"
