"""The file that ``tilekit emulate``, ``lint`` and ``disassemble`` are given: PTX, AMDGCN assembly, or a code object."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilekit.cli.emulate_arguments import CODE, FILES, read_file
from tilekit.emulator.core.errors import nearest
from tilekit.errors import ArgumentError
from tilekit.targets import DEFAULT

__all__ = ["Source", "read_code_object", "read_source"]

_ELF = b"\x7fELF"
_BUNDLES = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB")
_MARKS: dict[Literal["PTX", "AMDGCN"], str] = {
    "AMDGCN": r"^\s*\.(amdgcn_target|amdhsa_\w+|amdgpu_metadata)\b",
    "PTX": r"^\s*(\.version\s|(\.visible\s+|\.weak\s+)?\.entry\b)",
}
"""Directives that only one of the languages has, at the start of a line."""
_ASSEMBLY = (".s", ".S", ".asm", ".amdgcn")


@dataclass(frozen=True)
class Source:
    """What a file holds.

    Attributes
    ----------
    path
        The file.
    language
        Of its text.
    text
        As it stands in the file, or the listing of the code object there.
    listed
        Whether it is such a listing.
    """

    path: Path
    language: Literal["PTX", "AMDGCN"]
    text: str
    listed: bool = False

    def chip(self, target: str | None) -> str:
        """Return the chip to use: the one that is asked for, or that the text names, or the usual one of its language.

        Raises
        ------
        ArgumentError
            If the one that is asked for is none of the language.
        """
        chips = _chips(self.language)
        if target is not None:
            if target not in chips:
                legal = f"{', '.join(chips)}: {self.path} is {self.language}"
                raise ArgumentError.of("--target", target, legal=legal, nearest=nearest(target, chips), code=CODE)
            return target
        if self.language == "AMDGCN":
            written = re.search(r"^\s*\.amdgcn_target\s+\".*(gfx\w+)", self.text, re.MULTILINE)
            return written[1] if written else "gfx950"
        written = re.search(r"^\s*\.target\s+(\w+)", self.text, re.MULTILINE)
        # A text for a chip that the emulator has not runs on the default one; a bad name is the parser's to report.
        return written[1] if written and written[1] in chips else DEFAULT.name


def read_source(path: Path) -> Source:
    """Read a file, in whatever of the languages it is, under whatever name.

    Raises
    ------
    ArgumentError
        If it cannot be read, is empty, or holds neither text nor a code object.
    """
    data = read_file(path, "FILE")
    if data.startswith((_ELF, *_BUNDLES)):
        return Source(path, "AMDGCN", _listing(path, data, exact=False), listed=True)
    if b"\0" in data:
        raise _unreadable(path, "holds neither text nor an AMD code object")
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise _unreadable(path, "is empty")
    found = {language: re.search(mark, text, re.MULTILINE) for language, mark in _MARKS.items()}
    places = {language: match.start() for language, match in found.items() if match}
    if places:
        return Source(path, min(places, key=lambda language: places[language]), text)
    return Source(path, "AMDGCN" if path.suffix in _ASSEMBLY else "PTX", text)


def read_code_object(path: Path) -> str:
    """Return the assembly text of the code object in a file, which assembles to the same bytes.

    Raises
    ------
    ArgumentError
        If the file cannot be read, or holds something else.
    """
    data = read_file(path, "FILE")
    if not data.startswith((_ELF, *_BUNDLES)):
        raise _unreadable(path, f"is no AMD code object: it begins with {data[:8].hex(' ') or 'nothing'}")
    return _listing(path, data, exact=True)


def _listing(path: Path, data: bytes, *, exact: bool) -> str:
    from tilekit.emulator.gcn.binary.errors import CodeObjectFault
    from tilekit.emulator.gcn.binary.listing import decode

    if data.startswith(_BUNDLES):
        raise _unreadable(path, "is a bundle of code objects: take one out with clang-offload-bundler --unbundle")
    try:
        return decode(data, exact=exact)
    except CodeObjectFault as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise _unreadable(path, f"cannot be taken for a code object: {error.message}{hint}") from None


def _unreadable(path: Path, why: str) -> ArgumentError:
    return ArgumentError(f"FILE: {path} {why}", code=FILES)


def _chips(language: str) -> Collection[str]:
    if language == "AMDGCN":
        from tilekit.emulator.gcn.chips import CHIPS as AMD_CHIPS

        return AMD_CHIPS
    from tilekit.emulator.ptx.chips import CHIPS

    return CHIPS
