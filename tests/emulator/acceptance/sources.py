"""Small texts to damage: excerpts of what compilers and people wrote, and one instruction of each kind."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[2]
WHOLE = 5000
"""Characters up to which a text is used as a whole."""
_INSTRUCTION = re.compile(r"\s*(@!?[%$\w]+\s+)?[a-z]\w*[.\w:]*(\s[^{}]*(\{[^{}]*\}[^{}]*)*)?;(\s*//.*)?")
_CONTROL = re.compile(r"\s*(@!?[%$\w]+\s+)?(bra|brx|call|ret|exit)\b")
_LISTS = (TESTS / "emulator/core/levels.ptx", TESTS / "emulator/blackwell/spellings.ptx")
SNIPPETS = Path(__file__).with_name("snippets.ptx")


@cache
def texts() -> tuple[str, ...]:
    """Modules of other compilers, of ours, and those written by hand."""
    found = [
        *(TESTS / "emulator/corpus/ptx").glob("*/*.ptx"),
        *(TESTS / "emulator/core/ptx").glob("*.ptx"),
        *(TESTS / "kernels/golden").glob("*.ptx"),
        TESTS.parent / "examples/double.ptx",
    ]
    return tuple(path.read_text("utf-8") for path in sorted(found))


@cache
def lists() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Of each list of instructions, and of each function in it: all but the instructions, and these."""
    found = []
    for path in _LISTS:
        text = path.read_text("utf-8")
        first = text.index(".visible .entry")
        head = re.sub(r"//.*", "", text[:first])
        for part in re.split(r"(?=^\.visible \.entry)", text[first:], flags=re.MULTILINE):
            if part:
                found.append(_divided(head, part))
    return tuple(found)


def _divided(head: str, function: str) -> tuple[str, tuple[str, ...]]:
    """A frame around ``%s``, and the instructions that may stand there."""
    opening, _, body = function.partition("{")
    kept, instructions = [], []
    for line in body.splitlines():
        if _INSTRUCTION.fullmatch(line) and not _CONTROL.match(line):
            instructions.append(line)
        elif line.strip().startswith((".reg", ".shared", ".local")) and line.rstrip().endswith(";"):
            kept.append(line)
    declared = "\n".join(dict.fromkeys(kept))  # those of inlined assembly stand in braces of their own
    return f"{head}{opening}{{\n{declared}\n%s\n  ret;\n}}\n", tuple(instructions)


@cache
def _excerpts(text: str) -> tuple[str, tuple[str, ...]] | None:
    match = re.search(r"^[^\n]*\.entry", text, re.MULTILINE)
    if match is None or ".func" in text[: match.start()]:
        return None
    rest = text[match.start() :]
    end = rest.find("\n}")
    frame, instructions = _divided(text[: match.start()].replace("%", "%%"), rest[:end])
    return (frame, instructions) if len(instructions) > 8 else None


@cache
def snippets() -> tuple[str, ...]:
    """The modules of `SNIPPETS`, written for what compilers seldom write."""
    return tuple(SNIPPETS.read_text("utf-8").split("//---\n")[1:])


def source(rng: random.Random) -> str:
    """Some small text."""
    kind = rng.random()
    if kind < 0.4:
        frame, instructions = rng.choice(lists())
        chosen = rng.sample(instructions, min(3, len(instructions)))
        return _filled(frame, chosen)
    if kind < 0.55:
        return rng.choice(snippets())
    text = rng.choice(texts())
    if len(text) < WHOLE:
        return text
    parts = _excerpts(text)
    if parts is None:
        return source(rng)
    frame, instructions = parts
    first = rng.randrange(len(instructions) - 8)
    return _filled(frame, instructions[first : first + 8])


def _filled(frame: str, lines: list[str] | tuple[str, ...]) -> str:
    before, _, after = frame.partition("%s")
    return f"{before}" + "\n".join(lines) + after
