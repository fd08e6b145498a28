"""The chip that a name means which none has: another chip's number, a product's or an architecture's name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from tilekit.targets.chip import Target

_WORDS: Final = {
    "sm_80": r"volta|turing|ampere|v100|t4|a30|a100|(?:rtx)?20[5-9]0",
    "sm_86": r"a10g?|a16|a40|rtxa\d000|orin|(?:rtx)?30[5-9]0",
    "sm_89": r"ada|lovelace|l40?|rtx\d000ada|(?:rtx)?40[5-9]0",
    "sm_90a": r"hopper|h20|g?h[128]00",
    "sm_100a": r"blackwell|thor|g?b[123]00",
    "sm_120a": r"gb10|spark|rtxpro|(?:rtx)?50[5-9]0",
    "gfx942": r"cdna[123]?|mi[12]\d\d|mi3[0-2]\d|mi300",
    "gfx950": r"cdna4|mi3[5-9]\d|mi4\d\d",
}
"""What products and architectures are called, by the chip that has them or comes nearest."""

_MAKERS: Final = r"nvidia|amd|geforce|instinct|tesla|radeon"


def nearest(name: object, chips: Mapping[str, Target], default: Target) -> str:
    """The chip of `chips` nearest to a name: by number the last one of its maker's up to it, else the first.

    A name that says nothing is the `default` chip's, unless it looks like another's.
    """
    text = re.sub(r"[^a-z0-9]", "", name.lower()) if isinstance(name, str) else ""
    for chip in chips:
        if text == chip.replace("_", ""):
            return chip
    cuda = re.fullmatch(r"(?:sm|compute)?(\d{1,2})(\d)[af]?", text)
    if cuda:
        return _up_to((int(cuda[1]), int(cuda[2])), {c.compute_capability: c for c in chips.values() if c.isa == "ptx"})
    if re.fullmatch(r"gfx\d{2,4}[0-9a-f]", text):
        return _up_to(_version(text), {_version(c.name): c for c in chips.values() if c.isa == "gcn"})
    words = re.sub(_MAKERS, "", text)
    for chip, pattern in _WORDS.items():
        if re.match(rf"(?:{pattern})(?!\d)", words):
            return chip
    return next(iter(difflib.get_close_matches(text, chips, 1)), default.name)


def _up_to(number: tuple[int, ...], chips: Mapping[tuple[int, ...], Target]) -> str:
    return chips[max((one for one in chips if one <= number), default=min(chips))].name


def _version(name: str) -> tuple[int, int, int]:
    """Major, minor and stepping, the last two of which are a hexadecimal digit each."""
    digits = name.removeprefix("gfx")
    return int(digits[:-2]), int(digits[-2], 16), int(digits[-1], 16)
