"""Damage to a text, one small change at a time, as a slip of the hand or of a generator makes it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

TOKEN = re.compile(r"//[^\n]*|\s+|\"[^\"\n]*\"|\.?[%$\w]+(?:::\w+)*|\S")
NUMBERS = (
    *(
        "-1",
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "7",
        "8",
        "15",
        "16",
        "17",
        "31",
        "32",
        "33",
        "63",
        "64",
        "100",
        "127",
        "128",
    ),
    *(
        "129",
        "255",
        "256",
        "512",
        "1000",
        "1024",
        "4096",
        "32767",
        "65535",
        "65536",
        "1000000",
        "2147483647",
        "4294967295",
    ),
    *("2147483648", "4294967296", "9223372036854775808", "18446744073709551615", "0x", "0x10"),
    *(
        "1.5",
        "1e400",
        "0f3F800000",
        "0d3FF0000000000000",
        "0fZZ",
        "0b11",
        "08",
        "017",
        "10U",
        "(3)",
        "1+1",
        "-(2)",
        "~0",
    ),
)
TYPES = tuple(
    "." + name
    for name in [
        "pred",
        "b8",
        "b16",
        "b32",
        "b64",
        "b128",
        "u8",
        "u16",
        "u32",
        "u64",
        "s8",
        "s16",
        "s32",
        "s64",
        "f16",
        "f16x2",
        "bf16",
        "bf16x2",
        "tf32",
        "f32",
        "f64",
        "e4m3",
        "e5m2",
        "e4m3x2",
        "u16x2",
    ]
)
MODIFIERS = tuple(
    "." + name
    for name in [
        "global",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "const",
        "param",
        "ca",
        "cg",
        "cs",
        "lu",
        "cv",
        "wb",
        "wt",
        "nc",
        "volatile",
        "relaxed",
        "acquire",
        "release",
        "acq_rel",
        "sc",
        "weak",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "sync",
        "aligned",
        "async",
        "bulk",
        "tensor",
        "mbarrier",
        "commit_group",
        "wait_group",
        "read",
        "v2",
        "v4",
        "v8",
        "rn",
        "rz",
        "rm",
        "rp",
        "rni",
        "rzi",
        "ftz",
        "sat",
        "satfinite",
        "relu",
        "approx",
        "full",
        "wide",
        "hi",
        "lo",
        "cc",
        "add",
        "sub",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "exch",
        "cas",
        "inc",
        "dec",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "ltu",
        "num",
        "nan",
        "uni",
        "to",
        "1d",
        "2d",
        "3d",
        "4d",
        "5d",
        "tile",
        "im2col",
        "x1",
        "x2",
        "x4",
        "trans",
        "m8n8",
        "row",
        "col",
        "m16n8k16",
        "m16n8k8",
        "m8n8k4",
        "m64n64k16",
        "m64n256k16",
        "noftz",
        "finite",
        "infinite",
        "idx",
        "up",
        "down",
        "bfly",
        "any",
        "all",
        "ballot",
        "popc",
        "f4e",
        "L1::evict_last",
        "L2::cache_hint",
        "L2::128B",
        "cta_group::1",
        "cta_group::2",
        "kind::f16",
        "kind::tf32",
        "kind::i8",
        "32x32b",
        "16x64b",
        "x8",
        "x16",
        "x32",
        "x64",
        "x128",
        "multicast::cluster",
        "proxy",
        "alias",
        "init",
        "inval",
        "arrive",
        "expect_tx",
        "test_wait",
        "try_wait",
        "parity",
        "fence",
    ]
)
OPERANDS = (
    *(
        "0",
        "1",
        "-1",
        "7",
        "100000",
        "4294967296",
        "1.5",
        "0f3F800000",
        "%tid.x",
        "%laneid",
        "%clock64",
        "%clusterid.x",
    ),
    *("%nonsense", "_", "[0]", "{0, 1}", "k", "!0", "%ctaid", "WARP_SZ", "%lanemask_eq", "%globaltimer", '"s"'),
)
DIRECTIVES = (
    *(
        ".maxntid 128",
        ".reqntid 32, 1, 1",
        ".maxnreg 40",
        ".maxnreg 256",
        ".minnctapersm 1",
        ".reqnctapercluster 2, 1, 1",
    ),
    *(".maxclusterrank 8", ".explicitcluster", ".noreturn", ".maxntid", ".maxnctapersm 2", ".blocksareclusters"),
)
LINES = (
    *(".reg .b32 extra;", ".reg .pred %p<4>;", ".reg .v2 .f32 pair;", ".shared .b32 more[16];", ".local .b8 own[64];"),
    *(
        ".param .b32 arg;",
        ".global .b32 place;",
        "LABEL:",
        "bra LABEL;",
        "ret;",
        "exit;",
        ";",
        "{",
        "}",
        "trap;",
        ".loc 1 1 1",
    ),
    *(
        '.pragma "nounroll";',
        ".align 8;",
        "nop;",
        ".version 8.0",
        ".target sm_90a",
        ".address_size 64",
        ".extern .func f;",
    ),
)
VERSIONS = ("1.4", "6.0", "7.0", "7.4", "7.8", "8.0", "8.3", "8.6", "9.0", "9.3", "99.0", "8", "8.x")
TARGETS = (
    "sm_50",
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_89",
    "sm_90",
    "sm_90a",
    "sm_100",
    "sm_100a",
    "sm_9",
    "sm_99",
    "texmode_unified",
)
STRAY = "{}[]();,@%$.0x-+*/\"'\\ \n~!\x00é|&<>=?:#_"
_NUMBER = re.compile(r"-?\d+\w*")
_REGISTER = re.compile(r"%\w+|[A-Za-z]\w*")

Damage = Callable[[str, random.Random], str]


def _places(tokens: list[str], fits: Callable[[str], object]) -> list[int]:
    return [n for n, token in enumerate(tokens) if token.strip() and not token.startswith("//") and fits(token)]


def _tokens(fits: Callable[[str], object], change: Callable[[str, random.Random, list[str]], str]) -> Damage:
    """Change one of the tokens that fit."""

    def damage(text: str, rng: random.Random) -> str:
        tokens = TOKEN.findall(text)
        places = _places(tokens, fits)
        if not places:
            return text
        place = rng.choice(places)
        tokens[place] = change(tokens[place], rng, tokens)
        return "".join(tokens)

    return damage


def _swap_tokens(text: str, rng: random.Random) -> str:
    tokens = TOKEN.findall(text)
    places = _places(tokens, lambda token: True)
    first = rng.randrange(len(places) - 3)
    one, other = places[first], places[first + rng.randrange(1, 4)]
    tokens[one], tokens[other] = tokens[other], tokens[one]
    return "".join(tokens)


def _lines(change: Callable[[list[str], int, random.Random], None]) -> Damage:
    def damage(text: str, rng: random.Random) -> str:
        lines = text.split("\n")
        change(lines, rng.choice([n for n, line in enumerate(lines) if line.strip()]), rng)
        return "\n".join(lines)

    return damage


def _line_lost(lines: list[str], place: int, rng: random.Random) -> None:
    del lines[place]


def _line_twice(lines: list[str], place: int, rng: random.Random) -> None:
    lines.insert(place, lines[place])


def _lines_swapped(lines: list[str], place: int, rng: random.Random) -> None:
    other = rng.randrange(len(lines))
    lines[place], lines[other] = lines[other], lines[place]


def _line_added(lines: list[str], place: int, rng: random.Random) -> None:
    lines.insert(place, rng.choice(LINES))


def _stray(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text))
    return text[:place] + rng.choice(STRAY) + text[place + rng.randrange(2) :]


def _is_register(token: str) -> bool:
    return token.startswith("%") and token[1:2].isalpha()


def _other_register(token: str, rng: random.Random, tokens: list[str]) -> str:
    return rng.choice([other for other in tokens if _is_register(other)])


def _operand_lost(text: str, rng: random.Random) -> str:
    found = [*re.finditer(r",[^,;\n{}\[\]]+(?=[,;])", text)]
    if not found:
        return text
    chosen = rng.choice(found)
    return text[: chosen.start()] + text[chosen.end() :]


def _operand_added(text: str, rng: random.Random) -> str:
    found = [*re.finditer(r";", text)]
    if not found:
        return text
    chosen = rng.choice(found)
    registers = [token for token in TOKEN.findall(text) if _is_register(token)]
    return text[: chosen.start()] + ", " + rng.choice([*OPERANDS, *registers[:20]]) + text[chosen.start() :]


def _directive(text: str, rng: random.Random) -> str:
    """A directive of the entry more, or one less."""
    match = re.search(r"\.entry[^{;]*\)", text) or re.search(r"\.entry\s+\w+", text)
    if match is None:
        return text
    return text[: match.end()] + "\n" + rng.choice(DIRECTIVES) + text[match.end() :]


def _header(pattern: str, choices: tuple[str, ...]) -> Damage:
    def damage(text: str, rng: random.Random) -> str:
        return re.sub(pattern, lambda match: match[1] + rng.choice(choices), text, count=1)

    return damage


def _is_modifier(token: str) -> bool:
    return token.startswith(".") and not token[1:2].isdigit()


DAMAGES: dict[str, Damage] = {
    "token lost": _tokens(lambda token: True, lambda token, rng, tokens: ""),
    "token twice": _tokens(lambda token: True, lambda token, rng, tokens: f"{token} {token}"),
    "tokens swapped": _swap_tokens,
    "line lost": _lines(_line_lost),
    "line twice": _lines(_line_twice),
    "lines swapped": _lines(_lines_swapped),
    "line added": _lines(_line_added),
    "another number": _tokens(_NUMBER.fullmatch, lambda token, rng, tokens: rng.choice(NUMBERS)),
    "another type": _tokens(TYPES.__contains__, lambda token, rng, tokens: rng.choice(TYPES)),
    "another modifier": _tokens(_is_modifier, lambda token, rng, tokens: rng.choice(MODIFIERS)),
    "modifier lost": _tokens(_is_modifier, lambda token, rng, tokens: ""),
    "modifier added": _tokens(_is_modifier, lambda token, rng, tokens: token + rng.choice((*MODIFIERS, *TYPES))),
    "another register": _tokens(_is_register, _other_register),
    "another operand": _tokens(_is_register, lambda token, rng, tokens: rng.choice(OPERANDS)),
    "operand lost": _operand_lost,
    "operand added": _operand_added,
    "directive added": _directive,
    "another version": _header(r"(\.version\s+)\S+", VERSIONS),
    "another target": _header(r"(\.target\s+)\w+", TARGETS),
    "stray character": _stray,
}


def damaged(text: str, rng: random.Random) -> tuple[str, str]:
    """The name of a kind of damage, and the text with it."""
    while True:
        kind = rng.choice([*DAMAGES])
        changed = DAMAGES[kind](text, rng)
        if changed != text:
            return kind, changed
