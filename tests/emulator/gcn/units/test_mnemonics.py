"""Every mnemonic that production kernels use runs: Triton's output for 68 kernels, and 748 code objects of AITER.

``mnemonics.txt`` has them with the chips on which they were seen. What the instructions compute is tested elsewhere.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from programs import program

from tilekit.emulator import Device, ProtocolError
from tilekit.emulator.gcn.binary.instructions import table

sys.path.insert(0, str(Path(__file__).parents[1]))

SEEN = dict(line.split() for line in (Path(__file__).parent / "mnemonics.txt").read_text().splitlines())
CHIPS = ("gfx942", "gfx950")
OF_CHIP = {chip: [name for name, chips in SEEN.items() if chips in ("both", chip)] for chip in CHIPS}
TOGETHER = 24
RUNS = [(chip, first) for chip in CHIPS for first in range(0, len(OF_CHIP[chip]), TOGETHER)]
FIRST = {
    "src0": 20, "ssrc0": 20, "src1": 24, "ssrc1": 24, "vsrc1": 24, "src2": 28, "data0": 20, "data1": 24, "data": 20,
    "vdata": 20, "scale0": 44, "scale1": 45, "sdata": 40, "sdst": 50, "vdst": 50, "sdst7": 54,
}  # fmt: skip
SOURCES_OF_MATRIX = {"src0": 20, "src1": 28, "vdst": 0, "src2": 0}
ODD = {
    "s_set_gpr_idx_on": "s_set_gpr_idx_on s60, gpr_idx(SRC0)\ns_set_gpr_idx_off",
    "s_set_gpr_idx_off": "s_set_gpr_idx_on s60, gpr_idx(SRC0)\ns_set_gpr_idx_off",
    "s_setreg_imm32_b32": "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3",
    "v_writelane_b32": "v_writelane_b32 v50, s20, 5",
    "s_waitcnt": "s_waitcnt vmcnt(0) lgkmcnt(0)",
    "s_endpgm": "s_nop 0",
    "buffer_inv": "buffer_inv sc1",
    "buffer_wbl2": "buffer_wbl2 sc1",
}
SETUP = "\n".join([
    "v_lshlrev_b32_e32 v1, 4, v0", "v_mov_b32_e32 v3, s3", "v_add_co_u32_e32 v2, vcc, s2, v1", "s_nop 1",
    "v_addc_co_u32_e32 v3, vcc, 0, v3, vcc", "s_mov_b64 s[12:13], s[2:3]", "s_movk_i32 s14, 0x400",
    "s_mov_b32 s15, 0x20000", "s_mov_b32 m0, 0", "s_mov_b32 s60, 1",
    *(f"v_mov_b32_e32 v{r}, {r}" for r in range(20, 56)), *(f"s_mov_b32 s{r}, {r}" for r in range(20, 56)),
    *(f"v_accvgpr_write_b32 a{r}, v20" for r in range(24)), "s_mov_b64 vcc, -1",
    *(f"ds_write_b128 v1, v[20:23] offset:{1024 * n}" for n in range(16)),
    *(f"scratch_store_dwordx4 off, v[20:23], off offset:{16 * n}" for n in range(4)),
    "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_barrier", "s_nop 15", "s_nop 15",
])  # fmt: skip
END = "s_nop 15\ns_nop 15\ns_mov_b64 exec, -1\ns_mov_b32 m0, 0\ns_waitcnt vmcnt(0) lgkmcnt(0)"


@lru_cache
def forms() -> dict[str, tuple[str, list[str]]]:
    """The first form of each mnemonic in the decoder's table: its encoding, and its operands as the table has them."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in Path(table.__file__).with_name("table.txt").read_text().splitlines():
        words = line.split("|")[0].split(" @")[0].split()
        if len(words) > 2 and not line.startswith("#"):
            found.setdefault(re.sub(r"_(e32|e64|sdwa|dpp)$", "", words[2]), (words[0], words[3:]))
    return found


def registers(file: str, first: int, count: int) -> str:
    """One register, or a range."""
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def operand(encoding: str, text: str, name: str) -> str:
    """An operand of a form as text; empty for one that may be left out."""
    fixed = {"imm": "5", "K": "0x3f800000", "vcc": "vcc", "label": ".Lnext", "offset": "0x0", "addr": "v1",
             "sbase.s2": "s[2:3]"}  # fmt: skip
    if text in fixed:
        return fixed[text]
    if text == "address":
        return {"MUBUF": "v1, s[12:15], 0 offen", "FLAT": "v[2:3]", "GLOBAL": "v[2:3]", "SCRATCH": "off"}[encoding]
    field, _, kind = text.partition(".")
    if kind.endswith("?"):
        return ""
    letters = kind.rstrip("0123456789")
    count = int(kind[len(letters) :] or 8)
    scalar = letters[0] == "s" or (letters == "r" and encoding.startswith("SOP"))
    first = FIRST[field]
    if encoding in ("MAI", "MAIS"):
        first = SOURCES_OF_MATRIX.get(field, first)
        if "smfmac" in name and field == "src2":
            return "v44"
        return registers("a" if field in ("vdst", "src2") else "v", first, count)
    if letters[0] == "a":
        return registers("a", 0 if field == "vdst" else 2, count)
    return registers("s" if scalar else "v", first + (2 if count == 2 and first < 50 else 0), count)


def instruction(name: str) -> str:
    """A text of an instruction, with registers that the program has filled."""
    if name in ODD:
        return ODD[name]
    encoding, operands = forms()[name]
    parts = [part for part in (operand(encoding, text, name) for text in operands) if part]
    if encoding in ("GLOBAL", "SCRATCH"):
        parts.append("off")
    text = f"{name} {', '.join(parts)}"
    if encoding == "MUBUF" and operands:
        text = f"{name} {', '.join(parts)}"
    return text + ("\n.Lnext:" if "label" in operands else "")


def test_the_list() -> None:
    """314 mnemonics, all known to the decoder."""
    assert len(SEEN) == 314
    assert set(SEEN) <= set(forms())


@pytest.mark.parametrize(("chip", "first"), RUNS)
def test_runs(chip: str, first: int) -> None:
    """Each mnemonic is executed, and nothing is found."""
    names = [name for name in OF_CHIP[chip][first : first + TOGETHER] if name != "s_trap"]
    lines = [instruction(name).replace(".Lnext", f".Lnext{number}") for number, name in enumerate(names)]
    body = "\n".join(f"{line}\n{END}" for line in lines)
    kernel = Device(chip).load(program(f"{SETUP}\n{body}", chip, lds=16384, scratch=128))["k"]
    report = kernel.launch(1, 64, [np.ones(1024, np.uint32)])
    assert not [name for name in names if not report.instructions.get(name)]
    assert report.clean, str(report)


def test_trap() -> None:
    """The one that ends a launch."""
    kernel = Device("gfx942").load(program("s_trap 2", "gfx942"))["k"]
    with pytest.raises(ProtocolError, match="s_trap"):
        kernel.launch(1, 64, [np.ones(64, np.uint32)])


@pytest.mark.parametrize("chip", CHIPS)
def test_texts_are_assembly(chip: str) -> None:
    """What is run here is what LLVM's assembler takes."""
    llvm = pytest.importorskip("llvm")
    pytest.importorskip("ziglang")
    texts = [line for name in OF_CHIP[chip] for line in instruction(name).splitlines() if line != ".Lnext:"]
    _, refused = llvm.encodings([text.replace(".Lnext", "4") for text in texts], chip)
    assert not {texts[number]: why for number, why in refused.items()}
