"""Numbers in options: pairs, lists, parts."""

from __future__ import annotations

import re
from typing import NoReturn

from tilekit.cli.common import refuse


def pair(text: str, option: str) -> tuple[int, int]:
    """Read ``MxN``."""
    from tilekit.errors import ArgumentError

    found = re.fullmatch(r"(\d{1,18})x(\d{1,18})", text)
    if found is None:
        numbers = re.findall(r"\d+", text)
        nearest = "x".join(numbers) if len(numbers) == 2 else None
        raise ArgumentError.of(option, text, legal="two whole numbers as MxN", nearest=nearest, code="TK-CLI-002")
    return int(found[1]), int(found[2])


def both(text: str, option: str) -> tuple[int, int]:
    """Read a number for both axes, or ``DxA``: down and along."""
    found = re.fullmatch(r"(\d{1,18})(?:x(\d{1,18}))?", text)
    if found is None:
        meant = [max(0, int(number)) for number in re.findall(r"(?<!\d)-?\d{1,18}", text)][:2]
        refuse_extent(option, text, "a whole number, or two as DxA", axes(*meant) if meant else None)
    return int(found[1]), int(found[2] or found[1])


def axes(down: int, along: int | None = None) -> int | str:
    """Return numbers of both axes as `both` reads them."""
    return down if along in (None, down) else f"{down}x{along}"


def refuse_extent(option: str, given: object, legal: str, nearest: int | str | None) -> NoReturn:
    """Raise `ArgumentError` for an extent that is none."""
    from tilekit.errors import ArgumentError

    raise ArgumentError.of(option, given, legal=legal, nearest=nearest, code="TK-CLI-002")


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read whole numbers with commas between them, each of which kernels count to."""
    from tilekit.bench.workload import MOST

    found = re.findall(r"(?<!\d)-?\d+", text)
    whole = tuple(int(number) if len(number.lstrip("0")) <= 18 else MOST + 1 for number in found)
    nearest = ",".join(str(min(max(number, 0), MOST)) for number in whole)
    if not re.fullmatch(r"\d+(,\d+)*", text):
        refuse(option, text, "whole numbers with commas between them", nearest or "128,1,300")
    if max(whole) > MOST:
        refuse(option, text, f"numbers of {MOST} at most", nearest)
    return whole


def window(text: str) -> tuple[int | None, int | None]:
    """Read ``L,R``, of which either may be left out."""
    found = re.fullmatch(r"(-?\d{1,9})?,(-?\d{1,9})?", text)
    if found is None:
        refuse("--window", text, "L,R: two whole numbers, of which either may be left out", "128,0")
    left, right = (None if one is None else int(one) for one in found.groups())
    return left, right


def part_of(text: str | None) -> tuple[int, int] | None:
    """Read ``I/N``: part I of N."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,18})/(\d{1,18})", text)
    if found is None:
        refuse("--part", text, "I/N, such as 1/4", "1/4")
    return int(found[1]), int(found[2])
