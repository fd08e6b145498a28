"""The encodings of an instruction: which words are of which format, and where its fields lie.

The layouts are those of AMD's CDNA3 and CDNA4 instruction set manuals (Microcode Formats), under LLVM's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DPP", "FORMATS", "SDWA", "SDWAC", "Format", "extension_of", "format_of"]

_SDWA_SOURCE: Final = 249
_DPP_SOURCE: Final = 250


@dataclass(frozen=True, slots=True)
class Format:
    """One encoding.

    Attributes
    ----------
    name
        As the table of instructions names it.
    size
        Bytes, without a literal.
    mask, match
        Which of the first word's bits say that it is this one, and their values.
    fields
        Lowest bit and width of each field; ``op`` is the instruction's number.
    """

    name: str
    size: int
    mask: int
    match: int
    fields: dict[str, tuple[int, int]]

    def read(self, bits: int) -> dict[str, int]:
        """Return every field's value."""
        return {name: bits >> low & (1 << width) - 1 for name, (low, width) in self.fields.items()}

    def unused(self, bits: int) -> bool:
        """Whether a bit is set that belongs to no field."""
        rest = bits & ~self.mask & (1 << 8 * self.size) - 1
        for low, width in self.fields.values():
            rest &= ~((1 << width) - 1 << low)
        return rest != 0


def _format(name: str, size: int, prefix: str, **fields: tuple[int, int]) -> Format:
    width = len(prefix)
    mask = ((1 << width) - 1) << (32 - width)
    return Format(name, size, mask, int(prefix, 2) << (32 - width), fields)


_VOP3_SOURCES: Final = {"src0": (32, 9), "src1": (41, 9), "src2": (50, 9)}

FORMATS: Final = {
    form.name: form
    for form in (
        # The more special come first.
        _format("SOP1", 4, "101111101", op=(8, 8), sdst=(16, 7), ssrc0=(0, 8)),
        _format("SOPC", 4, "101111110", op=(16, 7), ssrc0=(0, 8), ssrc1=(8, 8)),
        _format("SOPP", 4, "101111111", op=(16, 7), simm=(0, 16)),
        _format("SOPK", 4, "1011", op=(23, 5), sdst=(16, 7), simm=(0, 16)),
        _format("SOP2", 4, "10", op=(23, 7), sdst=(16, 7), ssrc0=(0, 8), ssrc1=(8, 8)),
        _format("VOPC", 4, "0111110", op=(17, 8), src0=(0, 9), vsrc1=(9, 8)),
        _format("VOP1", 4, "0111111", op=(9, 8), vdst=(17, 8), src0=(0, 9)),
        _format("VOP2", 4, "0", op=(25, 6), vdst=(17, 8), src0=(0, 9), vsrc1=(9, 8)),
        _format(
            "SMEM", 8, "110000",
            op=(18, 8), imm=(17, 1), glc=(16, 1), soe=(14, 1), sdata=(6, 7), sbase=(0, 6), offset=(32, 21),
            soff=(57, 7),
        ),
        _format(
            "VOP3P", 8, "110100111",
            op=(16, 7), vdst=(0, 8), neg_hi=(8, 3), op_sel=(11, 3), op_sel_hi2=(14, 1), clamp=(15, 1),
            op_sel_hi=(59, 2), neg=(61, 3), **_VOP3_SOURCES,
        ),
        _format(
            "MAI", 8, "110100111",
            op=(16, 7), vdst=(0, 8), cbsz=(8, 3), abid=(11, 4), acc_cd=(15, 1), blgp=(61, 3), acc=(59, 2),
            **_VOP3_SOURCES,
        ),
        _format(
            "VOP3", 8, "110100",
            op=(16, 10), vdst=(0, 8), abs=(8, 3), op_sel=(11, 4), clamp=(15, 1), omod=(59, 2), neg=(61, 3),
            **_VOP3_SOURCES,
        ),
        _format(
            "DS", 8, "110110",
            op=(17, 8), gds=(16, 1), acc=(25, 1), offset0=(0, 8), offset1=(8, 8), addr=(32, 8), data0=(40, 8),
            data1=(48, 8), vdst=(56, 8),
        ),
        _format(
            "FLAT", 8, "110111",
            op=(18, 7), nt=(17, 1), sc0=(16, 1), sc1=(25, 1), seg=(14, 2), lds=(13, 1), offset=(0, 13), addr=(32, 8),
            data=(40, 8), saddr=(48, 7), acc=(55, 1), vdst=(56, 8),
        ),
        _format(
            "MUBUF", 8, "111000",
            op=(18, 7), nt=(17, 1), lds=(16, 1), sc1=(15, 1), sc0=(14, 1), idxen=(13, 1), offen=(12, 1),
            offset=(0, 12), vaddr=(32, 8), vdata=(40, 8), srsrc=(48, 5), acc=(55, 1), soffset=(56, 8),
        ),
        _format(
            "MTBUF", 8, "111010",
            op=(15, 4), nfmt=(23, 3), dfmt=(19, 4), sc1=(53, 1), nt=(54, 1), sc0=(14, 1), idxen=(13, 1), offen=(12, 1),
            offset=(0, 12), vaddr=(32, 8), vdata=(40, 8), srsrc=(48, 5), acc=(55, 1), soffset=(56, 8),
        ),
    )
}  # fmt: skip
"""Formats by name."""

# The second word of a VOP1, VOP2 or VOPC instruction whose first source says so; bits counted from that word.
SDWA: Final = Format(
    "SDWA", 4, 0, 0,
    {
        "src0": (0, 8), "dst_sel": (8, 3), "dst_unused": (11, 2), "clamp": (13, 1), "omod": (14, 2),
        "src0_sel": (16, 3), "src0_sext": (19, 1), "src0_neg": (20, 1), "src0_abs": (21, 1), "s0": (23, 1),
        "src1_sel": (24, 3), "src1_sext": (27, 1), "src1_neg": (28, 1), "src1_abs": (29, 1), "s1": (31, 1),
    },
)  # fmt: skip
SDWAC: Final = Format(
    "SDWAC", 4, 0, 0,
    {
        "src0": (0, 8), "sdst": (8, 7), "sd": (15, 1),
        "src0_sel": (16, 3), "src0_sext": (19, 1), "src0_neg": (20, 1), "src0_abs": (21, 1), "s0": (23, 1),
        "src1_sel": (24, 3), "src1_sext": (27, 1), "src1_neg": (28, 1), "src1_abs": (29, 1), "s1": (31, 1),
    },
)  # fmt: skip
DPP: Final = Format(
    "DPP", 4, 0, 0,
    {
        "src0": (0, 8), "ctrl": (8, 9), "bound": (19, 1), "src0_neg": (20, 1), "src0_abs": (21, 1),
        "src1_neg": (22, 1), "src1_abs": (23, 1), "bank_mask": (24, 4), "row_mask": (28, 4),
    },
)  # fmt: skip


def format_of(word: int) -> Format | None:
    """Return the format of an instruction by its first word; None where no format has it."""
    return next((form for form in FORMATS.values() if word & form.mask == form.match), None)


def extension_of(form: Format, source: int) -> Format | None:
    """Return the format of the second word that a first source asks for; None where it asks for none."""
    if form.name not in ("VOP1", "VOP2", "VOPC"):
        return None
    if source == _SDWA_SOURCE:
        return SDWAC if form.name == "VOPC" else SDWA
    return DPP if source == _DPP_SOURCE else None
