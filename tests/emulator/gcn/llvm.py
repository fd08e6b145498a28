"""LLVM's assembler and compiler, as the decoder's tests ask them."""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile

from tilekit.runtime.amd_toolchain import find_amd_tools

ERROR = re.compile(r"^<stdin>:(\d+):\d+: error: (.*)$", re.M)
ENCODING = re.compile(r"encoding: \[(.*?)\]")


def encodings(lines: Sequence[str], chip: str) -> tuple[list[bytes], dict[int, str]]:
    """Assemble instructions, one a line: the bytes of each, or the assembler's word against it by its number."""
    command = [*find_amd_tools().assembler, "-triple", "amdgcn-amd-amdhsa", "-target-cpu", chip]
    command += ["-filetype", "asm", "-show-encoding", "-", "-o", "-"]
    answer = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    refused = {int(number) - 1: word for number, word in ERROR.findall(answer.stderr)}
    if refused:
        return [], refused
    assert answer.returncode == 0, answer.stderr[:1000]
    found = [bytes(int(byte, 16) for byte in text.split(",")) for text in ENCODING.findall(answer.stdout)]
    assert len(found) == len(lines)
    return found, {}


def compiled(source: str, chip: str, folder: Path, *options: str) -> bytes:
    """Compile C for a chip, and link it into a code object."""
    tools = find_amd_tools()
    assert tools.name == "ziglang"
    (folder / "source.c").write_text(source)
    command = [tools.assembler[0], "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-nogpulib", *options]
    command += ["-c", str(folder / "source.c"), "-o", str(folder / "source.o")]
    subprocess.run(command, check=True, capture_output=True)
    link = [*tools.linker, "-shared", "--build-id=none", str(folder / "source.o"), "-o", str(folder / "source.co")]
    subprocess.run(link, check=True, capture_output=True)
    return (folder / "source.co").read_bytes()


def loaded(image: bytes) -> dict[str, tuple[int, bytes]]:
    """What of an image comes into memory, by section: address and bytes; without the tables of symbols."""
    tables = (".dynsym", ".dynstr", ".hash", ".gnu.hash", ".dynamic")
    return {
        section.name: (section["sh_addr"], section.data())
        for section in ELFFile(io.BytesIO(image)).iter_sections()
        if section["sh_flags"] & 2 and section.name not in tables
    }
