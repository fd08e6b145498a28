"""The comparison on fresh instructions: ``python -m tests.emulator.gcn.acceptance --seed 7 --texts 3000``."""

from __future__ import annotations

import argparse
import random
import sys

from tests.emulator.gcn.acceptance.damage import damaged
from tests.emulator.gcn.acceptance.descriptors import assembler_refuses, damaged_text
from tests.emulator.gcn.acceptance.sources import instructions
from tests.emulator.gcn.acceptance.verdicts import Verdicts, compare, text_refused

CHIPS = ("gfx942", "gfx950")


def drawn(chip: str, seed: object, count: int) -> list[tuple[str, str]]:
    """Damaged instructions of a chip's corpus."""
    rng = random.Random(f"{seed} {chip}")
    lines = instructions(chip)
    found = [damaged(rng.choice(lines), rng, lines) for _ in range(count)]
    # What ends a statement, or is none, would be another line for the assembler.
    return [(kind, line) for kind, line in found if line and not any(sign in line for sign in ";\n\"'")]


def main() -> int:
    """Print each difference that is not meant, and how many there are; exit with 1 where there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.gcn.acceptance", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=int, default=1000)
    arguments = parser.parse_args()
    compared = refused = different = meant = 0
    for chip in CHIPS:
        for verdict in compare(drawn(chip, arguments.seed, arguments.texts // 2), chip):
            compared += 1
            refused += bool(verdict.by_assembler)
            if verdict.differs:
                different += 1
                print(f"{chip} {verdict}", flush=True)
            else:
                meant += bool(verdict.by_assembler) != bool(verdict.by_emulator)
    for number in range(arguments.texts // 20):
        rng = random.Random(f"{arguments.seed} {number}")
        chip = rng.choice(CHIPS)
        kind, text = damaged_text(chip, rng)
        message, unsupported = text_refused(text, chip)
        whole = Verdicts(f"text {kind}", text, assembler_refuses(text, chip), message, unsupported)
        compared += 1
        refused += bool(whole.by_assembler)
        different += whole.differs
        meant += not whole.differs and bool(whole.by_assembler) != bool(message)
        if whole.differs:
            print(f"{chip} {whole}", flush=True)
    share = 100 * different / max(compared, 1)
    print(f"{compared} instructions, {refused} refused by the assembler; {different} differences ({share:.2f} %), "
          f"{meant} on purpose")  # fmt: skip
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
