"""The decoder's table held against LLVM's assembler, claim by claim: ``python -m tests.emulator.gcn.decoder_table``.

How the table came about, and how a stranger can see that it is right. `table.txt` has a line for each opcode of each
format, and each line claims what every operand may be. This program takes an instruction of each form (bytes are drawn
and decoded), puts every other kind of operand into each place (registers of each file, narrower, wider and misaligned,
constants of each kind, literals), adds each modifier and leaves each one out, and asks the assembler. Where its
answer is not the table's, the line is printed. A line for a new instruction is written by hand, and is right when this
program is silent about it; that no name is missing is a test of the decoder.

About one claim in a hundred is not shared: the assembler takes what other forms are for (a number of more than 16 bits,
a destination that can only be read), and wants modifiers in one order.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

from tests.emulator.gcn.acceptance.damage import joined, parts
from tests.emulator.gcn.llvm import encodings
from tests.emulator.gcn.random_instructions import Draw
from tilekit.emulator.core.errors import EmulatorError
from tilekit.emulator.gcn.binary.instructions.decoder import instructions
from tilekit.emulator.gcn.binary.instructions.table import forms
from tilekit.emulator.gcn.checks.forms import check_form
from tilekit.emulator.gcn.language.parser import parse

CHIPS = ("gfx942", "gfx950")
_TRIES = 40
_PROBES = (
    "s6", "s[6:7]", "s[7:8]", "s[8:11]", "s[6:9]", "v6", "v[6:7]", "v[7:8]", "v[6:9]", "a6", "a[6:7]", "a[6:9]", "vcc",
    "exec", "m0", "src_scc", "src_shared_base", "0", "64", "65", "-16", "-17", "1.0", "3.0", "0x12345678", "off",
)  # fmt: skip
_MODIFIERS = (
    "clamp", "mul:2", "div:2", "sc0", "sc1", "nt", "glc", "lds", "gds", "offen", "idxen", "offset:8", "offset0:1",
    "cbsz:1", "abid:1", "blgp:1", "bitop3:0x40", "op_sel:[1,0,0]", "op_sel_hi:[1,0,0]", "neg_lo:[1,0,0]",
    "neg_hi:[1,0,0]",
)  # fmt: skip


def samples(chip: str, rng: random.Random) -> dict[str, str]:
    """An instruction of each form that decodes exactly, by format and mnemonic."""
    found = {}
    for (name, opcode), form in forms(chip).items():
        draw = Draw(rng, name, opcode, form)
        for _ in range(_TRIES):
            one = next(instructions(draw.data(), chip, label=lambda address: "label"))
            if one.exact:
                found[f"{name} {form.mnemonic}"] = one.text
                break
    return found


def probes(text: str) -> Iterator[str]:
    """The instruction with each operand replaced, and each modifier added or left out."""
    mnemonic, operands, modifiers = parts(text)
    if mnemonic in ("s_waitcnt", "s_endpgm") or "(" in text:
        return
    for place in range(len(operands)):
        for probe in _PROBES:
            yield joined(mnemonic, [*operands[:place], probe, *operands[place + 1 :]], modifiers)
    words = modifiers.split()
    for place in range(len(words)):
        yield joined(mnemonic, operands, " ".join(words[:place] + words[place + 1 :]))
    for added in _MODIFIERS:
        if not any(word.split(":")[0] == added.split(":")[0] for word in words):
            yield joined(mnemonic, operands, f"{modifiers} {added}")


def refused_by_table(line: str, chip: str) -> str:
    """Why no line of the table has this instruction; empty where one does."""
    try:
        check_form(parse(f".text\n{line}\n").instructions[0], chip)
    except EmulatorError as error:
        return error.message
    return ""


def main() -> int:
    """Print each claim that the assembler does not share, and how many there are."""
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.gcn.decoder_table", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--names", default="", help="only mnemonics that contain this")
    parser.add_argument("--quiet", action="store_true", help="print no claims, only how many there are")
    arguments = parser.parse_args()
    asked = different = 0
    for chip in CHIPS:
        found = samples(chip, random.Random(arguments.seed))
        lines = [line for name, text in found.items() if arguments.names in name for line in probes(text)]
        _, refused = encodings(lines, chip)
        for number, line in enumerate(lines):
            asked += 1
            table = refused_by_table(line, chip)
            if bool(table) != (number in refused):
                different += 1
                if not arguments.quiet:
                    print(f"{chip}: {line}: assembler: {refused.get(number, 'takes it')}; table: {table or 'takes it'}")
    print(f"{asked} claims asked, {different} not shared ({100 * different / max(asked, 1):.2f} %)")
    return int(50 * different > asked)


if __name__ == "__main__":
    sys.exit(main())
