"""How an ELF header says that an image is for an AMD GPU, and which (LLVM, User Guide for AMDGPU, ELF)."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["abi_of_version", "feature_flags", "is_code_object", "target_id"]

_MACHINE: Final = 224  # EM_AMDGPU
_HEADER: Final = struct.Struct("<4s12xHH")
_FIRST_VERSION: Final = 2  # ABI version 0 is code object version 2
_XNACK: Final = {0x100: "", 0x200: "xnack-", 0x300: "xnack+"}
_SRAMECC: Final = {0x400: "", 0x800: "sramecc-", 0xC00: "sramecc+"}


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
