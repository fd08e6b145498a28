"""Damage to an instruction, one small change at a time, as a slip of the hand or of a generator makes it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"\s+|[A-Za-z_.$][\w.$@]*(?=\[)|[A-Za-z_.$][\w.$@]*|0x[0-9a-fA-F]+|\d+\.\d+|\d+|\S")
_REGISTER = re.compile(r"([sva])(\d+)$|([sva])\[(\d+):(\d+)\]$|(vcc|exec|m0|vcc_lo|exec_hi|scc|off)$")
_OTHERS = (
    "s3", "v7", "a5", "s[4:5]", "s[5:6]", "v[4:5]", "v[5:6]", "a[2:3]", "s[8:11]", "s[6:9]", "v[8:11]", "v[0:15]",
    "a[0:15]", "s101", "s102", "s103", "v255", "v256", "a255", "a256", "s[100:101]", "s[101:102]", "v[255:256]", "vcc",
    "vcc_lo", "exec", "exec_hi", "m0", "scc", "src_scc", "off", "0", "1", "-1", "64", "65", "-16", "-17", "0.5", "1.0",
    "3.0", "0x1234", "0x12345678", "0x123456789", "ttmp4", "flat_scratch", "null", "v", "s[3:2]", "v[1]", "-v3", "|v3|",
    "neg(v3)", "abs(v2)", "sext(v3)", "label", "hwreg(HW_REG_MODE)", "vmcnt(0)",
)  # fmt: skip
_NUMBERS = (
    "-1", "0", "1", "2", "3", "4", "7", "8", "15", "16", "63", "64", "255", "256", "1023", "4095", "4096", "-4096",
    "-4097", "8191", "65535", "65536", "0xffffffff", "0x100000000", "0x", "1.5", "08", "1+1", "(3)", "~0",
)  # fmt: skip
_MODIFIERS = (
    "offset:16", "offset:4096", "offset:-8", "offset0:3", "offset1:256", "offen", "idxen", "sc0", "sc1", "nt", "lds",
    "glc", "slc", "dlc", "gds", "clamp", "mul:2", "mul:3", "mul:4", "div:2", "op_sel:[1,0]", "op_sel:[0,0,1]",
    "op_sel:[1,1,1,1]", "op_sel_hi:[0,0]", "op_sel_hi:[1,0,1]", "neg_lo:[1,0]", "neg_hi:[0,1,0]", "neg:[1,0,0]",
    "dst_sel:BYTE_1", "dst_sel:WORD_1", "src0_sel:DWORD", "src1_sel:BYTE_4", "dst_unused:UNUSED_PAD", "row_shr:1",
    "row_shl:16", "row_bcast:15", "row_newbcast:3", "quad_perm:[0,1,2,3]", "quad_perm:[0,1,2]", "row_mask:0xf",
    "bank_mask:0x10", "bound_ctrl:0", "bound_ctrl:1", "fi:1", "cbsz:1", "cbsz:4", "cbsz:8", "abid:1", "abid:16",
    "blgp:2",
    "bitop3:0x40", "bitop3:256", "format:7", "nonsense", "wibble:1",
)  # fmt: skip
_SUFFIXES = ("_e32", "_e64", "_sdwa", "_dpp", "")


def parts(line: str) -> tuple[str, list[str], str]:
    """Mnemonic, operands, and the modifiers behind the last one."""
    mnemonic, _, rest = line.strip().partition(" ")
    operands: list[str] = []
    depth, word = 0, ""
    for letter in rest:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            operands.append(word.strip())
            word = ""
        else:
            word += letter
    if word.strip():
        operands.append(word.strip())
    if not operands or mnemonic == "s_waitcnt":
        return mnemonic, operands, ""
    last, _, modifiers = operands[-1].partition(" ")
    return mnemonic, [*operands[:-1], last], modifiers


def joined(mnemonic: str, operands: Sequence[str], modifiers: str) -> str:
    """An instruction of its parts."""
    return f"{mnemonic} {', '.join(operands)} {modifiers}".strip()


def _operand(line: str, rng: random.Random, _: Sequence[str]) -> str:
    mnemonic, operands, modifiers = parts(line)
    if operands:
        operands[rng.randrange(len(operands))] = rng.choice(_OTHERS)
    return joined(mnemonic, operands, modifiers)


def _width(line: str, rng: random.Random, _: Sequence[str]) -> str:
    """A register as more or fewer, or one further, or in another file."""
    mnemonic, operands, modifiers = parts(line)
    places = [n for n, operand in enumerate(operands) if re.fullmatch(r"[sva](\d+|\[\d+:\d+\])", operand)]
    if not places:
        return _operand(line, rng, _)
    place = rng.choice(places)
    found = re.fullmatch(r"([sva])\[?(\d+)(?::(\d+)\])?", operands[place])
    assert found is not None
    file, first = found[1], int(found[2])
    last = int(found[3] or first)
    file = rng.choice([file, file, file, *"sva"])
    first += rng.choice([0, 0, 1, -1, 2])
    last = max(first, last + rng.choice([0, 1, -1, 2, 4]))
    operands[place] = f"{file}{first}" if first == last else f"{file}[{first}:{last}]"
    return joined(mnemonic, operands, modifiers)


def _number(line: str, rng: random.Random, _: Sequence[str]) -> str:
    found = list(re.finditer(r"0x[0-9a-fA-F]+|(?<![\w.])-?\d+(?![\w.])", line))
    if not found:
        return _operand(line, rng, _)
    match = rng.choice(found)
    return line[: match.start()] + rng.choice(_NUMBERS) + line[match.end() :]


def _count(line: str, rng: random.Random, _: Sequence[str]) -> str:
    mnemonic, operands, modifiers = parts(line)
    if operands and rng.random() < 0.5:
        operands.pop(rng.randrange(len(operands)))
    else:
        operands.insert(rng.randrange(len(operands) + 1), rng.choice([*operands, "v1", "s2", "0"]))
    return joined(mnemonic, operands, modifiers)


def _order(line: str, rng: random.Random, _: Sequence[str]) -> str:
    mnemonic, operands, modifiers = parts(line)
    if len(operands) > 1:
        a, b = rng.sample(range(len(operands)), 2)
        operands[a], operands[b] = operands[b], operands[a]
    return joined(mnemonic, operands, modifiers)


def _mnemonic(line: str, rng: random.Random, others: Sequence[str]) -> str:
    mnemonic, operands, modifiers = parts(line)
    choice = rng.randrange(3)
    if choice == 0:
        mnemonic = rng.choice(others).split()[0]
    elif choice == 1:
        mnemonic = re.sub(r"_(e32|e64|sdwa|dpp)$", "", mnemonic) + rng.choice(_SUFFIXES)
    else:
        kinds = ("b32", "u32", "i32", "f32", "f16", "b64", "u64", "f64", "dword", "dwordx2", "dwordx4", "b128", "b16")
        mnemonic = re.sub(r"(dwordx?\d?|[buif]\d+)(?=(_e\d+)?$)", rng.choice(kinds), mnemonic)
    return joined(mnemonic, operands, modifiers)


def _modifier(line: str, rng: random.Random, _: Sequence[str]) -> str:
    mnemonic, operands, modifiers = parts(line)
    words = modifiers.split()
    if words and rng.random() < 0.5:
        place = rng.randrange(len(words))
        words[place : place + 1] = [] if rng.random() < 0.4 else [rng.choice(_MODIFIERS)]
    else:
        words.append(rng.choice(_MODIFIERS))
    return joined(mnemonic, operands, " ".join(words))


def _letter(line: str, rng: random.Random, _: Sequence[str]) -> str:
    place = rng.randrange(len(line))
    return line[:place] + rng.choice(["", "", line[place] * 2, *"x0,[]|-:"]) + line[place + 1 :]


KINDS: tuple[tuple[str, int, Callable[[str, random.Random, Sequence[str]], str]], ...] = (
    ("operand", 4, _operand), ("width", 5, _width), ("number", 3, _number), ("count", 2, _count), ("order", 2, _order),
    ("mnemonic", 3, _mnemonic), ("modifier", 4, _modifier), ("letter", 2, _letter),
)  # fmt: skip


def damaged(line: str, rng: random.Random, others: Sequence[str]) -> tuple[str, str]:
    """The kind of damage, and the instruction."""
    name, _, change = rng.choices(KINDS, [weight for _, weight, _ in KINDS])[0]
    return name, change(line, rng, others)
