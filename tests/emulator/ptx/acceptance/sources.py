"""Small texts to damage: excerpts of what compilers and people wrote, and one instruction of each kind.

Each source has a name, and what is drawn from it depends on nothing but this name and a number: files that are added
change no text that another source gives.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path
from zlib import crc32

from tests.emulator.ptx.acceptance.damage import damaged

TESTS = Path(__file__).parents[3]
WHOLE = 5000
"""Characters up to which a text is used as a whole."""
_INSTRUCTION = re.compile(r"\s*(@!?[%$\w]+\s+)?[a-z]\w*[.\w:]*(\s[^{}]*(\{[^{}]*\}[^{}]*)*)?;(\s*//.*)?")
_CONTROL = re.compile(r"\s*(@!?[%$\w]+\s+)?(bra|brx|call|ret|exit)\b")
_LISTS = ("emulator/ptx/language/levels.ptx", "emulator/ptx/blackwell/spellings.ptx")
_SNIPPETS = "emulator/ptx/acceptance/snippets.ptx"


@cache
def files() -> tuple[str, ...]:
    """Modules of other compilers and those written by hand: paths below ``tests``."""
    found = [
        *(TESTS / "emulator/ptx/corpus/ptx").glob("*/*.ptx"),
        *(TESTS / "emulator/ptx/execution/ptx").glob("*.ptx"),
    ]
    return tuple(name for name in sorted(path.relative_to(TESTS).as_posix() for path in found) if _usable(name))


@cache
def lists() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Of each function in the lists of instructions: all but the instructions, and these."""
    found = {}
    for name in _LISTS:
        text = _read(name)
        first = text.index(".visible .entry")
        head = re.sub(r"//.*", "", text[:first])
        for part in re.split(r"(?=^\.visible \.entry)", text[first:], flags=re.MULTILINE):
            divided = _divided(head, part)
            if len(divided[1]) > 3:
                found[f"{name}:{part.split('(')[0].split()[-1]}"] = divided
    return found


@cache
def snippets() -> dict[str, str]:
    """The modules that are written for what compilers seldom write."""
    parts = _read(_SNIPPETS).split("//---\n")[1:]
    return {f"{_SNIPPETS}:{number}": part for number, part in enumerate(parts)}


def damaged_text(name: str, number: object) -> tuple[str, str]:
    """The kind of damage and the text: each number draws another one from a source."""
    rng = random.Random(f"{name} {number}")
    return damaged(_draw(name, rng), rng)


def _draw(name: str, rng: random.Random) -> str:
    if name in snippets():
        return snippets()[name]
    if name in lists():
        opening, instructions = lists()[name]
        key = rng.randbytes(8)  # an instruction that is added to the list changes few of the draws
        return _filled(opening, sorted(instructions, key=lambda line: crc32(key + line.encode()))[:3])
    text = _read(name)
    parts = _excerpts(name)
    if parts is None:
        return text
    opening, instructions = parts
    first = rng.randrange(len(instructions) - 8)
    return _filled(opening, instructions[first : first + 8])


@cache
def _read(name: str) -> str:
    return (TESTS / name).read_text("utf-8")


def _usable(name: str) -> bool:
    return len(_read(name)) < WHOLE or _excerpts(name) is not None


def _divided(head: str, function: str) -> tuple[str, tuple[str, ...]]:
    """What stands before the instructions, and these."""
    opening, _, body = function.partition("{")
    kept, instructions = [], []
    for line in body.splitlines():
        if _INSTRUCTION.fullmatch(line) and not _CONTROL.match(line):
            instructions.append(line)
        elif line.strip().startswith((".reg", ".shared", ".local")) and line.rstrip().endswith(";"):
            kept.append(line)
    declared = "\n".join(dict.fromkeys(kept))  # those of inlined assembly stand in braces of their own
    return f"{head}{opening}{{\n{declared}\n", tuple(instructions)


@cache
def _excerpts(name: str) -> tuple[str, tuple[str, ...]] | None:
    """What a long text is divided into."""
    text = _read(name)
    match = re.search(r"^[^\n]*\.entry", text, re.MULTILINE)
    if len(text) < WHOLE or match is None or ".func" in text[: match.start()]:
        return None
    rest = text[match.start() :]
    end = rest.find("\n}")
    opening, instructions = _divided(text[: match.start()], rest[:end])
    return (opening, instructions) if len(instructions) > 8 else None


def _filled(opening: str, lines: list[str] | tuple[str, ...]) -> str:
    return opening + "\n".join(lines) + "\n  ret;\n}\n"
