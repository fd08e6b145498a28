"""Machine code drawn at random: for a form of the table, bytes whose fields hold what they may, and often what not."""

from __future__ import annotations

import random
import re

from tilekit.emulator.gcn.binary.instructions.formats import DPP, FORMATS, SDWA, SDWAC
from tilekit.emulator.gcn.binary.instructions.table import Form, Operand

LITERALS = (0, 1, 64, 0xFFFFFFF0, 0x3F800000, 0x3C00, 0x3FF00000, 0x3F80, 0x12345, 0xFFF0, 0x3E22F983, 0x80000000)
DPP_CONTROLS = (0x101, 0x11F, 0x123, 0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143, 0x150, 0x15F)
SCALES_WORD = 0xD3AC0000
REGISTERS = (
    "vdst",
    "src0",
    "src1",
    "src2",
    "data0",
    "data1",
    "vsrc1",
    "addr",
    "data",
    "vdata",
    "sdst",
    "ssrc0",
    "ssrc1",
)
OPTIONAL = ("op_sel", "neg", "abs", "omod", "clamp", "neg_hi", "abid", "blgp", "cbsz")
RARELY = 0.04  # how often a field holds what it has no use for


class Draw:
    """One form's instructions, drawn from a generator."""

    def __init__(self, rng: random.Random, name: str, opcode: int, form: Form) -> None:
        self.rng = rng
        self.name = name
        self.opcode = opcode
        self.form = form
        self.operands = {operand.field: operand for operand in form.operands}
        self.extension = next((e for e in (SDWAC, SDWA, DPP) if name.endswith(e.name) and name != e.name), None)
        base = name.removesuffix(self.extension.name) if self.extension else name
        base = {"GLOBAL": "FLAT", "SCRATCH": "FLAT", "MUBUF_LDS": "MUBUF", "MAIS": "MAI"}.get(base, base)
        self.format = FORMATS[base]

    def data(self) -> bytes:
        """Return an instruction, with something after it that may be its literal."""
        bits = self.format.match
        values: dict[str, int] = {}
        for name, (low, width) in sorted(self.format.fields.items(), key=lambda item: item[0] != "sc0"):
            values[name] = self._value(name, width, values)
            bits |= values[name] << low
        data = bits.to_bytes(self.format.size, "little")
        if self.name == "MAIS":
            data = self._scales() + data
        if self.extension is not None:
            data += self._second_word().to_bytes(4, "little")
        return data + self.rng.choice([self.rng.randrange(1 << 32), *LITERALS]).to_bytes(4, "little")

    def _value(self, name: str, width: int, values: dict[str, int]) -> int:
        """A field's value: sometimes anything, mostly what the form has a use for."""
        rng, operands = self.rng, self.operands
        fixed = {
            "op": self.opcode,
            "seg": {"GLOBAL": 2, "SCRATCH": 1}.get(self.name, 0),
            "lds": self._lds(),
            "gds": int("gds!" in self.form.modifiers),
        }
        if name in fixed:
            return fixed[name]
        if name == "src0" and self.extension is not None:
            return 250 if self.extension is DPP else 249
        if self.name == "MAIS" and name == "abid":
            return 1
        if name in ("op_sel_hi", "op_sel_hi2") and rng.random() < 0.7:
            return (1 << width) - 1
        if name == "saddr":
            return 0 if self.name == "FLAT" else rng.choice([0x7F, 2 * rng.randrange(50), rng.randrange(128)])
        if rng.random() > RARELY:
            second_destination = "sdst7" in operands and name in ("abs", "op_sel")
            if name in OPTIONAL and name not in self.form.modifiers and not second_destination:
                return 0
            if name in REGISTERS and name not in operands and not (name == "addr" and "address" in operands):
                return 0
            if name in ("acc", "acc_cd", "soff", "soe", "sdata") and name not in operands and rng.random() < 0.7:
                return 0
            if name == "vaddr" and not values.get("offen", 1) and not values.get("idxen", 1):
                return 0
            if name == "vdst" and name in operands and operands[name].returned and not values["sc0"]:
                return 0
        return self._fitting(name, self._any(name, width))

    def _lds(self) -> int:
        if self.name == "SCRATCH":
            return self.rng.randrange(2)
        return int(self.name == "MUBUF_LDS")

    def _any(self, name: str, width: int) -> int:
        rng = self.rng
        constant = rng.choice([128 + rng.randrange(81), 240 + rng.randrange(9)])
        register = rng.choice([rng.randrange(102), 4 * rng.randrange(25), 106, 124, 126])
        if name.startswith("src") and width == 9:
            if self.format.name == "MAI" and rng.random() < 0.9:
                return 256 + rng.randrange(256)
            vector = 256 + rng.randrange(256)
            return rng.choice([vector, vector, register, constant, rng.randrange(512), 255])
        if name in ("ssrc0", "ssrc1", "soffset"):
            return rng.choice([register, register, constant, rng.randrange(256)])
        if name in ("sdst", "sdata"):
            return rng.choice([register, rng.randrange(128)])
        if name in ("cbsz", "blgp") and self.form.mnemonic.endswith("f8f6f4"):
            return rng.randrange(5)
        if width >= 5:
            return rng.randrange(1 << width)
        return rng.choice([0, rng.randrange(1 << width)])

    def _fitting(self, name: str, value: int) -> int:
        """The value as a register that is aligned and not too high, for an operand of several registers."""
        operand = self.operands.get(name, Operand(name, width=2 if name in ("addr", "vaddr") else 1))
        width = operand.width or 8
        if width == 1 or self.rng.random() < RARELY or name in ("sbase", "srsrc"):
            return value
        if name in ("sdst", "ssrc0", "ssrc1", "sdata"):
            return value & -min(width, 4) if value < 128 else value
        if name.startswith("src") and value < 256:
            return value & ~1 if value < 128 else value
        base = value & 256
        return base + min((value - base) & ~1, 256 - width)

    def _scales(self) -> bytes:
        rng = self.rng
        low = SCALES_WORD | rng.randrange(4) << 11
        high = 256 + rng.randrange(256) | (256 + rng.randrange(256)) << 9 | rng.randrange(4) << 27
        return (low | high << 32).to_bytes(8, "little")

    def _second_word(self) -> int:
        assert self.extension is not None
        bits = 0
        for name, (low, width) in self.extension.fields.items():
            value = self.rng.choice([0, self.rng.randrange(1 << width)])
            if name == "ctrl":
                value = self.rng.choice([self.rng.randrange(256), *DPP_CONTROLS])
            sign = re.fullmatch(r"src(\d)_(neg|abs|sext|sel)", name)
            useless = sign is not None and sign[1] not in self.form.modifiers.get(sign[2], "")
            if name in ("clamp", "omod"):
                useless = name not in self.form.modifiers
            if self.rng.random() > RARELY:
                if name == "dst_sel" and name not in self.form.modifiers:
                    value = 6
                elif useless or (name == "dst_unused" and "dst_sel" not in self.form.modifiers):
                    value = 0
            bits |= value << low
        return bits
