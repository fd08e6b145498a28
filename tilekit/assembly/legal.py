"""What an argument may be, in the words of its error: whole numbers, words, names of assembly text, sides of a ring."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Annotated, Final

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import F32, REGISTER_TYPES, U32, U64, RegisterType
from tilekit.emulator.core.errors import shown


@dataclass(frozen=True)
class Whole:
    """Beside ``int`` in ``Annotated``: which integers are legal. `low`, and so many times `step` more, up to `high`.

    `step_is` says in words what a step is.
    """

    low: int
    high: int | None = None
    step: int = 1
    step_is: str = ""

    def __contains__(self, value: int) -> bool:
        return value >= self.low and (self.high is None or value <= self.high) and (value - self.low) % self.step == 0

    @property
    def words(self) -> str:
        """What is legal."""
        if self.low == self.high:
            return str(self.low)
        step = f" in steps of {self.step}" if self.step > 1 else ""
        step += f", {self.step_is}" if step and self.step_is else ""
        return f"an integer from {self.low} {'on' if self.high is None else f'to {self.high}'}{step}"

    def nearest(self, value: float) -> int:
        """The legal integer nearest to a number."""
        most = value if self.high is None else min(value, self.high)
        return self.low + round(max(0, most - self.low) / self.step) * self.step


Count = Annotated[int, Whole(1)]
"""How many there are, at least one."""

Barrier = Annotated[int, Whole(0)]
"""A named barrier; which are free is the writer's to say (`NamedBarriers.claim`)."""


OWN_RULE: Final = "checked by a rule of the component's own"
"""Beside a type in ``Annotated``: nothing is checked here, since an error of the component says more."""

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPOKEN_VOWEL = re.compile(r"[AEIOaeio]|[FSfs]\d|smem")
"""How a word begins that is spoken with a vowel: of short ones, such as f32, the letters are."""


def illegal(owner: str, name: str, given: object, legal: str, nearest: object = None) -> TraceError:
    """The error for an argument that a component cannot take.

    Parameters
    ----------
    owner, name
        The component and the argument.
    given
        Its value.
    legal
        What may be given, in words.
    nearest
        The nearest legal value, where there is one.
    """
    hint = "" if nearest is None else f"; nearest: {nearest if isinstance(nearest, int) else repr(nearest)}"
    return TraceError(f"{owner}({name}={shown(given)}); legal: {legal}{hint}", code="TK-PART-001")


def with_article(what: object) -> str:
    """What is said of one: a u32, an f32, an Epilogue."""
    words = str(what)
    return f"{'an' if _SPOKEN_VOWEL.match(words) else 'a'} {words}"


def require_whole(owner: str, name: str, given: object, bounds: Whole) -> None:
    """Check an integer.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with what is legal and the nearest.
    """
    if type(given) is int and given in bounds:
        return
    number = float(given) if isinstance(given, Real) else None
    if number is not None and not abs(number) < 1 << 62:
        number = None  # infinity and no number have no neighbour
    raise illegal(owner, name, given, bounds.words, None if number is None else bounds.nearest(number))


def require_word(owner: str, name: str, given: object, words: Sequence[object]) -> None:
    """Check a value that is one of a few.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with those and the nearest.
    """
    if any(type(given) is type(word) and given == word for word in words):
        return
    legal = ", ".join(repr(word) for word in words[:-1]) + (" or " if len(words) > 1 else "") + repr(words[-1])
    texts = [word for word in words if isinstance(word, str)]
    near = difflib.get_close_matches(given, texts, 1, 0.0) if isinstance(given, str) else []
    raise illegal(owner, name, given, legal, near[0] if near else words[0])


def require_register_type(
    owner: str,
    name: str,
    given: object,
    types: Mapping[str, RegisterType] = REGISTER_TYPES,
    nearest: str | None = None,
) -> None:
    """Check a register type, one of `types` by name; where it is none, `nearest` is what to write, if the caller knows.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with those and the nearest.
    """
    if isinstance(given, RegisterType) and given.name in types:
        return
    legal = f"of tilekit.compose.registers: {', '.join(each.upper() for each in types)}"
    raise illegal(owner, name, given, legal, nearest or _nearest_type(given, types))


def _nearest_type(given: object, types: Mapping[str, RegisterType]) -> str:
    """What to write in place of another type: also of an element's, or of one of its width."""
    named = str(getattr(given, "name", given)).lower()
    nearest = types.get(named)
    if nearest is None:
        nearest = F32 if named.startswith(("f", "bf")) else U64 if getattr(given, "bits", 32) == 64 else U32
    return f"registers.{nearest.name.upper()}"


def require_symbol(owner: str, name: str, given: object) -> None:
    """Check a name that becomes part of assembly text: ASCII letters, digits and underscores.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with the nearest name.
    """
    if isinstance(given, str) and _is_symbol(given):
        return
    nearest = None
    if isinstance(given, str):
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", given).strip("_") or "x"
        nearest = plain if _is_symbol(plain) else f"_{plain}"
    raise illegal(owner, name, given, "a name of ASCII letters, digits and _, which no digit begins", nearest)


@cache
def _is_symbol(text: str) -> bool:
    """Whether it is one; each register's name is asked for, and few of them are different."""
    return _SYMBOL.fullmatch(text) is not None


def require_sides(owner: str, producers: Sequence[object], consumers: Sequence[object]) -> None:
    """Check that a ring has roles on either side.

    Raises
    ------
    TraceError
        ``TK-PART-001``.
    """
    for name, roles in (("producers", producers), ("consumers", consumers)):
        if not roles:
            raise illegal(owner, name, roles, "one role or more")
