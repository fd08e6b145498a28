"""Decoding instructions: LLVM's assembler makes the same bytes of every text that is said to be exact."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.emulator.gcn.decoder_table import probes, refused_by_table, samples
from tests.emulator.gcn.llvm import encodings
from tests.emulator.gcn.random_instructions import Draw
from tilekit.emulator.gcn.binary.instructions.decoder import Instruction, instructions
from tilekit.emulator.gcn.binary.instructions.table import forms
from tilekit.runtime.amd_toolchain import find_amd_tools

CHIPS = ("gfx942", "gfx950")
DRAWS = 24  # of each form
MNEMONICS = 900
"""How many names a chip has, at the least: fewer, and the assembler's list was misread."""


def decoded(data: bytes, chip: str) -> Instruction:
    """Return the first instruction, whose branches are written as words from its end."""
    return next(instructions(data, chip, label=lambda address: f"{(address - 4) // 4 & 0xFFFF:#x}"))


@pytest.mark.parametrize("chip", CHIPS)
def test_every_form_with_random_operands_assembles_to_its_own_bytes(chip: str) -> None:
    """Operands, modifiers and bits that mean nothing are drawn afresh; what is exact comes back bit for bit."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    found: list[Instruction] = []
    exact: Counter[str] = Counter()
    for (name, opcode), form in forms(chip).items():
        draw = Draw(rng, name, opcode, form)
        for _ in range(DRAWS):
            instruction = decoded(draw.data(), chip)
            if instruction.exact:
                found.append(instruction)
                exact[f"{name} {form.mnemonic}"] += 1
    bytes_of, refused = encodings([instruction.text for instruction in found], chip)
    assert not refused, (seed, [(found[number].text, word) for number, word in refused.items()][:10])
    wrong = [(i.text, i.data.hex(), made.hex()) for i, made in zip(found, bytes_of, strict=True) if i.data != made]
    assert not wrong, (seed, wrong[:10])
    assert len(exact) > 0.97 * len(forms(chip)), seed


def test_no_bytes_break_the_decoder() -> None:
    """Random words, and instructions that are cut off, have a text or none, and together are all the bytes."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for chip in CHIPS:
        data = rng.randbytes(40_000) + b"\xbf"
        found = list(instructions(data, chip))
        assert b"".join(instruction.data for instruction in found) == data, seed
        assert any(not instruction.text for instruction in found)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_table_has_every_mnemonic_that_the_assembler_knows(chip: str) -> None:
    """Of the assembler's own list of names, those that it knows on the chip are decoded, in one spelling or other."""
    names = assembler_names()
    _, refused = encodings([f"{name} nothing, 1, 2, 3, 4, 5, 6, 7, 8, 9" for name in names], chip)
    foreign = ("instruction not supported on this GPU", "invalid instruction")
    known = {name for number, name in enumerate(names) if not refused.get(number, "").startswith(foreign)}
    mnemonics = {spelled(form.mnemonic) for form in forms(chip).values()}
    assert len(known) > MNEMONICS
    assert {name for name in known if spelled(name) not in mnemonics} == NO_FORM


NO_FORM = {"v_madak_f16", "v_madmk_f16"}
"""Names that the assembler knows, and takes with no operands at all on these chips."""


def spelled(name: str) -> str:
    """Return a name without what older spellings lack or have beside: suffixes, blocks of a matrix, low lines."""
    if name == "v_mul_lo_i32":
        return spelled("v_mul_lo_u32")
    return re.sub(r"_(e32|1k)$|_\d+b(?=_)", "", name).replace("_", "")


def assembler_names() -> list[str]:
    """Return the names in the matching table of LLVM's assembler: each stands after a byte with its length."""
    data = Path(find_amd_tools().assembler[0]).read_bytes()
    place = data.index(b"\x09s_abs_i32")
    names = []
    while True:
        length = data[place]
        name = data[place + 1 : place + 1 + length]
        if not length or not all(chr(byte).isalnum() or byte == ord("_") for byte in name):
            return [name for name in names if "_" in name]
        names.append(name.decode())
        place += 1 + length


@pytest.mark.parametrize(
    ("chip", "data", "text", "exact"),
    [
        ("gfx942", "000081bf", "s_endpgm", True),
        ("gfx942", "700f8cbf", "s_waitcnt vmcnt(0)", True),
        ("gfx942", "7fcf8cbf", "s_waitcnt 0xcf7f", True),
        ("gfx942", "f00f8cbf", "s_waitcnt 0xff0", True),
        ("gfx942", "ff020002 0000803f", "v_add_f32_e32 v0, lit(0x3f800000), v1", True),
        ("gfx942", "f2020002", "v_add_f32_e32 v0, 1.0, v1", True),
        ("gfx942", "000002d1 01030200", "v_sub_f32_e64 v0, v1, v1", True),
        ("gfx942", "00006bd1 01010000", "v_not_b32_e64 v0, v1", True),
        ("gfx942", "00006bd1 01050200", "v_not_b32_e64 v0, v1", False),
        ("gfx942", "000001d1 040c0000", "v_add_f32_e64 v0, s4, s6", False),
        ("gfx942", "1020a4d2 20610200", "v_cvt_sr_fp8_f32 v16, v32, v48 op_sel:[0,0,1,0]", True),
        ("gfx942", "fa00007e 00390035", "v_nop_dpp quad_perm:[1,2,3,0] row_mask:0x3 bank_mask:0x5", True),
        (
            "gfx942", "f902207e f0168600",
            "v_mov_b32_sdwa v16, 0.5 dst_sel:DWORD dst_unused:UNUSED_PRESERVE src0_sel:DWORD", True,
        ),
        ("gfx942", "00008ad2 04f80000", "v_writelane_b32 v0, s4, m0", True),
        ("gfx942", "00008ad2 040a0000", "v_writelane_b32 v0, s4, s5", False),
        ("gfx942", "ffff9fbf", "", False),
        ("gfx942", "ff0200", "", False),
        ("gfx942", "ff020002", "", False),
        ("gfx950", "0000acd3 142b0200 0008add3 04190204", SCALED := (
            "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], v20, v21 "
            "op_sel:[0,0,0] op_sel_hi:[0,0,0]"
        ), True),
        ("gfx950", "0060acd3 142b0200 0008add3 04190204", SCALED, False),
    ],
)  # fmt: skip
def test_texts(chip: str, data: str, text: str, exact: bool) -> None:
    """Wait counts, literals that look like constants, reserved bits and the pair that scales are told apart."""
    found = decoded(bytes.fromhex(data), chip)
    assert (found.text, found.exact) == (text, exact)


def test_claims_of_the_table_are_the_assemblers() -> None:
    """Other operands and modifiers than a form's are refused by both, for mnemonics drawn at random."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    found = samples("gfx950", rng)
    lines = [line for name in rng.sample(sorted(found), 60) for line in probes(found[name])]
    _, refused = encodings(lines, "gfx950")
    wrong = [line for number, line in enumerate(lines) if bool(refused_by_table(line, "gfx950")) != (number in refused)]
    assert len(wrong) < 0.04 * len(lines), (seed, wrong[:20])
