"""Reading code objects: what is in them, and what is wrong with bytes that are none."""

from __future__ import annotations

import io
import random
import struct
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.runtime.gcn_kernels import STORE, module
from tilekit.emulator.gcn.binary.code_object import CodeObject
from tilekit.emulator.gcn.binary.errors import CodeObjectFault
from tilekit.emulator.gcn.binary.listing import decode
from tilekit.runtime.amd_toolchain import find_amd_tools
from tilekit.runtime.assembler import assemble


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A code object of one kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return assemble(module(STORE, lds=512, vgprs=136, accum=128), "gfx950", kernel_name="small").image


def test_a_kernel_is_found_with_its_descriptor_code_and_metadata(image: bytes) -> None:
    """Names, addresses and sizes agree with each other."""
    found = CodeObject.read(image)
    kernel = found.kernels["small"]
    (code,) = (section for section in found.sections if section.executable)
    assert code.address <= kernel.entry < code.end
    assert kernel.entry % 256 == 0
    assert (kernel.descriptor.lds_bytes, kernel.descriptor.field("kernarg_size")) == (512, 16)
    assert (kernel.descriptor.vgprs, kernel.descriptor.agprs) == (128, 8)
    assert kernel.metadata[".max_flat_workgroup_size"] == 64
    assert sorted((s.name, s.kind) for s in found.symbols) == [("small", "FUNC"), ("small.kd", "OBJECT")]
    assert next(s for s in found.symbols if s.name == "small").address == kernel.entry
    assert found.relocations == ()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda image: b"", "no ELF image: they begin with nothing"),
        (lambda image: b"// text, not machine code", "no ELF image: they begin with 2f 2f"),
        (lambda image: image[:18] + b"\x3e\0" + image[20:], "for machine 62, not for an AMD GPU"),
        (lambda image: image[:48] + b"\x41" + image[49:], r"(?s)chip whose number is 0x41.*gfx942 \(0x4c\)"),
        (lambda image: image[:8] + b"\x00" + image[9:], "version 2.*\n.*4 to 6"),
        (lambda image: image[:16] + b"\x01" + image[17:], "not linked.*\n.*ld.lld -shared"),
        (lambda image: image[:-1], "cut or damaged"),
        (lambda image: image[:100], "cut or damaged"),
        (lambda image: with_zeros(image, 1 << 40), "says that it has 1099511627776 bytes of zeros"),
    ],
)
def test_foreign_and_damaged_bytes_are_refused(image: bytes, damage: object, says: str) -> None:
    """Each is told from the others, with what it is and what would do."""
    with pytest.raises(CodeObjectFault, match=says):
        CodeObject.read(damage(image))  # type: ignore[operator]


def with_zeros(image: bytes, size: int) -> bytes:
    """Return an image whose section of descriptors holds so many zeros instead, which no file needs to have."""
    found = ELFFile(io.BytesIO(image))
    number = next(n for n, section in enumerate(found.iter_sections()) if section.name == ".rodata")
    start = found["e_shoff"] + number * found["e_shentsize"]
    changed = bytearray(image)
    struct.pack_into("<I", changed, start + 4, 8)  # SHT_NOBITS
    struct.pack_into("<Q", changed, start + 32, size)
    return bytes(changed)


def test_no_cut_and_no_damage_escapes_as_another_error(image: bytes) -> None:
    """Every length, and bytes changed at random: an object with a text or a `CodeObjectFault`, never anything else."""
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    refused = 0
    for length in range(0, len(image), 7):
        with pytest.raises(CodeObjectFault):
            CodeObject.read(image[:length])
    for _ in range(400):
        changed = bytearray(image)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        try:
            decode(bytes(changed))
        except CodeObjectFault:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert refused


def test_an_object_that_another_compiler_made(tmp_path: Path) -> None:
    """LLVM's C compiler puts constants and several functions into an object; they are found."""
    source = tmp_path / "kernel.c"
    source.write_text(
        "static const int table[4] = {3, 1, 4, 1};\n"
        "__attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) int *o, int i)\n"
        "{ *o = table[i & 3]; }\n"
    )
    clang = [find_amd_tools().assembler[0], "clang"]
    command = [*clang, "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-O1", "-c", str(source), "-o"]
    subprocess.run([*command, str(tmp_path / "kernel.o")], check=True, capture_output=True)
    subprocess.run(
        [*find_amd_tools().linker, "-shared", str(tmp_path / "kernel.o"), "-o", str(tmp_path / "kernel.co")], check=True
    )
    found = CodeObject.read((tmp_path / "kernel.co").read_bytes())
    assert found.kernels["k"].descriptor.field("user_sgpr_kernarg_segment_ptr") == 1
    assert any(b"\3\0\0\0\1\0\0\0\4\0\0\0\1\0\0\0" in section.data for section in found.sections)
