"""Texts that are no PTX: whatever is wrong with them, the error says where, and nothing else comes out."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tilekit.emulator import Device, LaunchError, PtxSyntaxError, UnsupportedInstruction
from tilekit.emulator.ptx.lint.lint import lint

CORPUS = Path(__file__).parents[1] / "corpus" / "ptx"
TEXTS = {path: path.read_text() for path in sorted(CORPUS.glob("*/*.ptx"), key=lambda p: p.stat().st_size)[:120:6]}
TOKEN = re.compile(r"\s+|//[^\n]*|[%$\w.:]+|\S")
NUMBERS = ("-1", "99999999999999999999", "0x", "1e400", "0fZZ", "4294967296", "0", "1.5")
STRAY = "{}[]();,@%$.0x-+*/\"'\\ \n~!\x00é"

Damage = Callable[[str, random.Random], str]


def _at_token(change: Callable[[str, random.Random], str]) -> Damage:
    def damage(text: str, rng: random.Random) -> str:
        tokens = TOKEN.findall(text)
        place = rng.choice([n for n, token in enumerate(tokens) if token.strip() and not token.startswith("//")])
        tokens[place] = change(tokens[place], rng)
        return "".join(tokens)

    return damage


def _swap(text: str, rng: random.Random) -> str:
    tokens = TOKEN.findall(text)
    first, second = rng.sample([n for n, token in enumerate(tokens) if token.strip()], 2)
    tokens[first], tokens[second] = tokens[second], tokens[first]
    return "".join(tokens)


def _stray(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text))
    return text[:place] + rng.choice(STRAY) + text[place + 1 :]


def _number(text: str, rng: random.Random) -> str:
    found = rng.choice([*re.finditer(r"\b\d+\b", text)])
    return text[: found.start()] + rng.choice(NUMBERS) + text[found.end() :]


DAMAGES: dict[str, Damage] = {
    "cut short": lambda text, rng: text[: rng.randrange(len(text))],
    "token lost": _at_token(lambda token, rng: ""),
    "token twice": _at_token(lambda token, rng: f"{token} {token}"),
    "tokens swapped": _swap,
    "stray character": _stray,
    "another number": _number,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_text(damage: str) -> None:
    """What other compilers wrote, damaged: it loads, every block of it, or a syntax error names line and column."""
    rng = random.Random(damage)
    places = []
    for path, text in TEXTS.items():
        broken = DAMAGES[damage](text, rng)
        try:
            module = Device(path.name.split(".")[-2]).load(broken)
            for name in module.kernels:
                program = module.program(name, aligned_warps=True)
                for block in program.flow.blocks:
                    program.compile_block(block.index, masked=False)
                    program.compile_block(block.index, masked=True)
        except (PtxSyntaxError, UnsupportedInstruction) as error:
            places.append((error.line, error.column))
        try:
            lint(broken)
        except (PtxSyntaxError, UnsupportedInstruction) as error:
            places.append((error.line, error.column))
    assert places, "no damage was noticed"
    assert min(map(min, places)) > 0


HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (".global .b8 x[2] = {1, 2, 3};", "x has more initial values here than 2 elements"),
        (".global .u8 x[4] = {1, 0d3FF0000000000000};", r"a floating-point number in x, whose elements are \.u8"),
    ],
)
def test_variables(declaration: str, message: str) -> None:
    """A variable whose size or initial values cannot be is refused where it is declared."""
    with pytest.raises(PtxSyntaxError, match=message) as caught:
        Device().load(HEAD + declaration + "\n.visible .entry k() { ret; }")
    assert caught.value.line == 4


def test_variable_without_room() -> None:
    """A variable that ptxas takes and no room is left for is the launch's error, not one of the text."""
    text = HEAD + ".global .b8 x[4294967296];\n.visible .entry k() { ret; }"
    with pytest.raises(LaunchError, match="x takes 4,294,967,296 bytes: at most 1,073,741,824 are emulated"):
        Device().load(text)
    assert lint(text) == []
