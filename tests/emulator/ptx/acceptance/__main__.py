"""The comparison on fresh texts: ``python -m tests.emulator.ptx.acceptance --seed 7 --texts 3000``."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from cuda.pathfinder import find_nvidia_binary_utility

from tests.emulator.ptx.acceptance.sources import damaged_text, files, lists, snippets
from tests.emulator.ptx.acceptance.verdicts import compare


def main() -> int:
    """Print each difference that is not meant, and how many there are; exit with 1 where there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.ptx.acceptance", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--show", action="store_true", help="print each text with its difference")
    arguments = parser.parse_args()
    ptxas = find_nvidia_binary_utility("ptxas")
    if ptxas is None:
        sys.exit("ptxas is not installed")
    kinds = ([*lists()], [*snippets()], [*files()])
    compared = refused = different = meant = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.texts):
            rng = random.Random(f"{arguments.seed} {number}")
            name = rng.choice(rng.choices(kinds, (40, 15, 45))[0])
            kind, text = damaged_text(name, f"{arguments.seed} {number}")
            verdicts = compare(ptxas, kind, text, Path(folder))
            if verdicts is None:
                continue
            compared += 1
            refused += bool(verdicts.by_ptxas)
            if verdicts.differs:
                different += 1
                print(f"{number} {name} {verdicts}", flush=True)
                if arguments.show:
                    print(text, flush=True)
            else:
                meant += bool(verdicts.by_ptxas) != bool(verdicts.by_emulator)
    share = 100 * different / max(compared, 1)
    print(f"{compared} texts, {refused} refused by ptxas; {different} differences ({share:.2f} %), {meant} on purpose")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
