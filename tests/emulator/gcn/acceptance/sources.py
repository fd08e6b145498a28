"""Instructions and texts to damage: what compilers made for the corpus."""

from __future__ import annotations

import lzma
import re
from functools import cache
from pathlib import Path

ASM = Path(__file__).parents[1] / "corpus" / "asm"
_INSTRUCTION = re.compile(r"\t([a-z]\w+)( [^;]*)?(;.*)?")


@cache
def texts(chip: str) -> tuple[str, ...]:
    """The corpus' texts for a chip."""
    return tuple(lzma.decompress(path.read_bytes()).decode() for path in sorted(ASM.glob(f"*.{chip}.s.xz")))


@cache
def instructions(chip: str) -> tuple[str, ...]:
    """Different instructions of these texts: as many of a rare mnemonic as of a frequent one, up to forty."""
    by_name: dict[str, dict[str, None]] = {}
    for text in texts(chip):
        for line in text.splitlines():
            match = _INSTRUCTION.fullmatch(line)
            if match and match[2] and not match[1].startswith(("s_cbranch", "s_branch")):
                found = by_name.setdefault(match[1], {})
                if len(found) < 40:
                    found[f"{match[1]}{match[2].rstrip()}"] = None
    return tuple(line for found in by_name.values() for line in found)
