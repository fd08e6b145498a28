"""Whole code objects as text: assembled and linked again, they hold the same code, data, descriptors and metadata."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tests.emulator.gcn.llvm import compiled, loaded
from tests.runtime.gcn_kernels import STORE, module
from tilekit.emulator.gcn.binary.listing import decode
from tilekit.errors import AssemblerError
from tilekit.runtime.amd_toolchain import find_amd_tools
from tilekit.runtime.amdgcn import _run_tools
from tilekit.runtime.assembler import assemble, disassemble

CHIPS = ("gfx942", "gfx950")
LEVELS = ("-O0", "-O1", "-O3")
SOURCE = Path(__file__).parent / "kernels.c"


def again(text: str, chip: str) -> bytes:
    """Assemble and link a text, whatever kernels it has."""
    return _run_tools(find_amd_tools(), text, chip, "the text").payload


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test out of the user's cache."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(("chip", "level"), list(itertools.product(CHIPS, LEVELS)))
def test_what_a_c_compiler_made_comes_back(chip: str, level: str, tmp_path: Path) -> None:
    """Loops, calls, constants, pointers to them, scratch, LDS, atomics, matrix arithmetic: all bytes alike."""
    image = compiled(SOURCE.read_text(), chip, tmp_path, level)
    text = decode(image)
    assert loaded(again(text, chip)) == loaded(image)
    assert not re.search(r"^\s+\.long", text, re.M)
    assert "@rel32@lo+" in text
    assert len(re.findall(r"^\.amdhsa_kernel", text, re.M)) == SOURCE.read_text().count("\nKERNEL ")


@pytest.mark.parametrize("chip", CHIPS)
def test_what_triton_made_comes_back(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product, a softmax and a sort by Triton, where it is installed."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from tests.emulator.gcn.triton_kernels import code_objects

    for name, image in code_objects(chip).items():
        text = decode(image)
        assert loaded(again(text, chip)) == loaded(image), name
        assert not re.search(r"^\s+\.long", text, re.M), name


@pytest.mark.parametrize("chip", CHIPS)
def test_isa_of_an_assembled_kernel_assembles_to_the_same_image(chip: str) -> None:
    """`disassemble` reads what `assemble` made, down to the last byte of the file."""
    image = assemble(module(STORE, chip=chip, lds=256), chip, kernel_name="small").image
    text = disassemble(image)
    assert "\tglobal_store_dword v1, v2, s[4:5]" in text
    assert assemble(text, chip, kernel_name="small").image == image


def test_a_descriptor_among_the_code_is_no_instruction() -> None:
    """The directive puts a descriptor wherever it stands; in the section of the code it is found there."""
    text = module(STORE, chip="gfx942").replace('.section .rodata,"a"\n.p2align 6\n', "")
    image = assemble(text, "gfx942", kernel_name="small").image
    listing = disassemble(image)
    assert ".long" not in listing
    assert assemble(listing, "gfx942", kernel_name="small").image == image


def test_bits_that_mean_nothing_are_numbers_or_the_instruction() -> None:
    """Exact text has the bytes, with the instruction beside; else it has the instruction, as hardware runs it."""
    text = module("  .long 0xd16b0000, 0x00020501\n", chip="gfx942")
    made = assemble(text, "gfx942", kernel_name="small").image
    assert "\t.long 0xd16b0000, 0x20501  // v_not_b32_e64 v0, v1\n" in decode(made)
    assert "\tv_not_b32_e64 v0, v1\n" in decode(made, exact=False)


@pytest.mark.parametrize("image", [b"\x7fELF" + bytes(14) + b"\xe0\0", b""])
def test_what_is_no_code_object_is_an_error(image: bytes) -> None:
    """A damaged object is the decoder's to refuse; what is no AMD object at all goes to NVIDIA's program, as before."""
    with pytest.raises(AssemblerError) as caught:
        disassemble(image)
    assert caught.value.code in ("TK-ASM-010", "TK-ASM-008")
