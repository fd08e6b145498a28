"""What stands in a line of assembly: its operands, which of them an encoding takes, and a line made of others.

Sources: CDNA4 ISA, 5.4 and 6.1 (constants, and how many scalars a VALU instruction reads: one register, or one literal
of the short encodings; the long ones have no literal).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from tilekit.assembly.gcn.code import Instruction, Part

__all__ = [
    "Operand",
    "Shape",
    "Word",
    "clobbers_scc",
    "is_inline",
    "is_inline_integer",
    "is_legal",
    "is_scalar",
    "is_vector",
    "known",
    "made",
    "mnemonic_of",
    "operands_of",
    "spelled",
]

Word: TypeAlias = "Part | int"
"""32 bits: of a register, or a constant's."""

Operand: TypeAlias = "Part | int | str"
"""What an instruction names: registers, a constant, or anything else as it is written."""

_INTEGERS = frozenset({*range(65), *(value & 0xFFFFFFFF for value in range(-16, 0))})
_INLINE = _INTEGERS | {
    0x3E22F983,
    *(int.from_bytes(struct.pack(">f", sign * value), "big") for value in (0.5, 1.0, 2.0, 4.0) for sign in (1, -1)),
}
"""Bits of the 32-bit constants that every encoding holds; others need 4 bytes more."""

_KEEPS_SCC = (
    "s_mov", "s_cselect", "s_mul", "s_load", "s_nop", "s_barrier", "s_sleep", "s_set", "s_mem", "s_get", "s_ff1",
    "s_pack", "s_brev", "s_bfm", "s_bitset", "s_flbit", "s_sext", "s_buffer", "s_endpgm", "s_dcache", "s_icache",
    "s_send", "s_trap",
)  # fmt: skip

_FIELD = re.compile(r"\{(\d+)\}|(-?\d+|0x[0-9a-fA-F]+)")


def is_inline(word: Operand) -> bool:
    """Whether a constant of 32 bits needs no bytes of its own."""
    return isinstance(word, int) and word in _INLINE


def is_inline_integer(word: Operand) -> bool:
    """Whether a constant needs no bytes of its own as 64 bits either, the upper ones copies of the sign."""
    return isinstance(word, int) and word in _INTEGERS


def is_vector(word: Operand) -> bool:
    """Whether a word is in a VGPR."""
    return isinstance(word, Part) and word.register.file == "vector"


def is_scalar(word: Operand) -> bool:
    """Whether a word is in an SGPR."""
    return isinstance(word, Part) and word.register.file == "scalar"


def spelled(constant: int) -> str:
    """A constant's bits as the assembler reads them."""
    if constant <= 64:
        return str(constant)
    return str(constant - (1 << 32)) if constant >= (1 << 32) - 16 else f"{constant:#x}"


def clobbers_scc(text: str) -> bool:
    """Whether an instruction leaves something in SCC."""
    return text.startswith("s_") and not text.startswith(_KEEPS_SCC)


Encoding: TypeAlias = Literal["scalar", "one", "two", "compare", "long", "accumulator"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a mnemonic takes.

    Attributes
    ----------
    encoding
        SALU; VALU with one source, with two, a comparison, or the long encoding; a write to an AGPR.
    targets
        How many operands it writes; they are the first.
    sources
        Words of each other operand.
    """

    encoding: Encoding
    targets: int
    sources: tuple[int, ...]


def _shapes() -> dict[str, Shape]:
    found: dict[str, Shape] = {}

    def add(encoding: Encoding, targets: int, sources: tuple[int, ...], names: str) -> None:
        found.update(dict.fromkeys(names.split(), Shape(encoding, targets, sources)))

    relations = ("lt", "le", "gt", "ge", "eq")
    add("scalar", 1, (1, 1), "s_add_u32 s_sub_u32 s_addc_u32 s_subb_u32 s_mul_i32 s_mul_hi_u32 s_lshl_b32 s_lshr_b32 "
        "s_ashr_i32 s_and_b32 s_or_b32 s_xor_b32 s_min_u32 s_min_i32 s_max_u32 s_max_i32 s_cselect_b32")  # fmt: skip
    add("scalar", 1, (2, 2), "s_and_b64 s_or_b64 s_xor_b64 s_andn2_b64 s_cselect_b64")
    add("scalar", 1, (2, 1), "s_lshl_b64 s_lshr_b64")
    add("scalar", 1, (1,), "s_mov_b32 s_not_b32")
    add("scalar", 1, (2,), "s_mov_b64 s_not_b64")
    for relation in (*relations, "lg"):
        add("scalar", 0, (1, 1), f"s_cmp_{relation}_u32 s_cmp_{relation}_i32")
    add("scalar", 0, (2, 2), "s_cmp_eq_u64 s_cmp_lg_u64")
    add("one", 1, (1,), "v_mov_b32 v_not_b32")
    add("two", 1, (1, 1), "v_add_u32 v_sub_u32 v_subrev_u32 v_lshlrev_b32 v_lshrrev_b32 v_ashrrev_i32 v_and_b32 "
        "v_or_b32 v_xor_b32 v_min_u32 v_min_i32 v_max_u32 v_max_i32 v_add_f32 v_sub_f32 v_subrev_f32 v_mul_f32 "
        "v_min_f32 v_max_f32")  # fmt: skip
    for relation in (*relations, "ne"):
        add("compare", 1, (1, 1), f"v_cmp_{relation}_u32 v_cmp_{relation}_i32")
    for relation in (*relations, "lg"):
        add("compare", 1, (1, 1), f"v_cmp_{relation}_f32")
    add("long", 1, (1, 1), "v_mul_lo_u32 v_mul_hi_u32")
    add("long", 1, (1, 1, 1), "v_lshl_add_u32 v_add_lshl_u32 v_add3_u32 v_lshl_or_b32 v_and_or_b32 v_or3_b32 v_bfe_u32")
    add("long", 1, (1, 1, 2), "v_cndmask_b32")
    add("long", 2, (1, 1, 2), "v_mad_u64_u32")
    add("long", 1, (2, 1, 2), "v_lshl_add_u64")
    add("long", 1, (1, 2), "v_lshlrev_b64 v_lshrrev_b64")
    add("accumulator", 1, (1,), "v_accvgpr_write_b32")
    return found


_SHAPES: Final = _shapes()


@lru_cache(8192)
def _read(text: str) -> tuple[str, tuple[tuple[bool, int] | str, ...]]:
    """The mnemonic, and each field: the number of an operand, a constant, or what is written."""
    name, _, rest = text.partition(" ")
    name = name.removesuffix("_e32").removesuffix("_e64")
    found: list[tuple[bool, int] | str] = []
    for field in rest.split(", ") if rest else ():
        match = _FIELD.fullmatch(field)
        if match is None:
            found.append(field)
        elif match[1] is not None:
            found.append((True, int(match[1])))
        else:
            found.append((False, int(match[2], 0) & 0xFFFFFFFF))
    return name, tuple(found)


def mnemonic_of(item: Instruction) -> str:
    """Return an instruction's mnemonic, without the length of its encoding."""
    return _read(item.text)[0]


def operands_of(item: Instruction) -> list[Operand]:
    """Return what an instruction names, in the order of its text."""
    return [
        field if isinstance(field, str) else item.operands[field[1]] if field[0] else field[1]
        for field in _read(item.text)[1]
    ]


def known(item: Instruction) -> tuple[str, list[Operand], Shape] | None:
    """Return mnemonic, operands and shape of an instruction that can be made anew; None for others."""
    mnemonic, fields = _read(item.text)
    shape = _SHAPES.get(mnemonic)
    if shape is None or len(fields) != shape.targets + len(shape.sources):
        return None
    if any(isinstance(field, str) and not field.isidentifier() for field in fields):
        return None  # a modifier
    return mnemonic, operands_of(item), shape


def is_legal(mnemonic: str, operands: Sequence[Operand]) -> bool:
    """Whether an instruction whose shape is known may name what it names: literals, and scalars beside each other."""
    shape = _SHAPES[mnemonic]
    sources = operands[shape.targets :]
    if len(sources) != len(shape.sources):
        return False
    for source, words in zip(sources, shape.sources, strict=True):
        if isinstance(source, int) and words == 2 and not is_inline_integer(source):
            return False
    if mnemonic == "v_cndmask_b32" and isinstance(sources[2], int):
        return False
    literals = {source for source in sources if isinstance(source, int) and not is_inline(source)}
    if shape.encoding == "scalar":
        return len(literals) <= 1
    if shape.encoding == "accumulator":
        return not literals and not is_scalar(sources[0])
    if shape.encoding == "one":
        return True
    short = shape.encoding == "two" or (shape.encoding == "compare" and operands[0] == "vcc")
    if short and is_vector(sources[1]):
        return True
    scalars = {source for source in sources if is_scalar(source) or isinstance(source, str)}
    return not literals and len(scalars) <= 1


def made(like: Instruction, mnemonic: str, operands: Sequence[Operand]) -> Instruction:
    """Return an instruction whose shape is known, in the place of another."""
    shape = _SHAPES[mnemonic]
    shown, places = [], 0
    for operand in operands:
        if isinstance(operand, Part):
            shown.append(f"{{{places}}}")
            places += 1
        else:
            shown.append(spelled(operand) if isinstance(operand, int) else operand)
    text = f"{mnemonic} {', '.join(shown)}"
    named = frozenset(o for o in operands[: shape.targets] if isinstance(o, str))
    return replace(
        like,
        text=text,
        operands=tuple(o for o in operands if isinstance(o, Part)),
        reads=tuple(o for o in operands[shape.targets :] if isinstance(o, Part)),
        writes=tuple(o for o in operands[: shape.targets] if isinstance(o, Part)),
        clobbers=named | {"scc"} if clobbers_scc(text) else named,
    )
