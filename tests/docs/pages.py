"""Reading the documentation: the fenced blocks of a page, and comparing what is printed with what a page shows."""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").glob("*.md") if p.name != "layouts.md")]
"""Every page but layouts.md, which the tests of `tilekit.tensor` run."""

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text, and the line it starts on."""

    page: Path
    language: str
    text: str
    line: int
    output: str | None
    """The ``text`` block that follows it at once."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    """All blocks of one language."""
    text = page.read_text("utf-8")
    found = list(_FENCE.finditer(text))
    result = []
    for index, match in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else None
        shown = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        line = text.count("\n", 0, match.start()) + 2
        result.append(Block(page, match[1], match[2], line, after[2] if after is not None and shown else None))
    return [block for block in result if block.language == language]


def comparable(text: str) -> str:
    """The text without what depends on the machine: times, and how NumPy rounds sums."""
    text = re.sub(r"\d+\.\d+ s\b", "<seconds>", text)
    text = re.sub(r"[\d.]+ [MT]FLOP/s", "<rate>", text)
    text = re.sub(r"[\d.]+e[+-]\d+", "<error>", text)
    text = re.sub(r"\d+% of its limit", "<part> of its limit", text)
    return re.sub(r"[\d.]+ (thousand|million) a second", "<rate>", text)


def require_same(shown: str, printed: str, where: object) -> None:
    """Fail unless `printed` is what a page shows, `comparable` and spaces aside; ``...`` stands for anything."""
    shown, printed = comparable(shown), comparable(printed)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(shown, printed, flags), (
        f"{where} shows\n{shown}\nbut now it is\n{printed}"
    )
