"""The chip that a name means which none has: another chip's number, a product's or an architecture's name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from tilekit.emulator.core.chip_names import nearest_by_number

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


def nearest(name: object, chips: Iterable[str], default: str) -> str:
    """The chip of `chips` nearest to a name: by number the last one of its maker's up to it, else the first.

    A name that says nothing is the `default`'s, unless it looks like another's.
    """
    text = re.sub(r"[^a-z0-9]", "", name.lower()) if isinstance(name, str) else ""
    numbered = nearest_by_number(text, chips)
    if numbered:
        return numbered
    words = re.sub(_MAKERS, "", text)
    for chip, pattern in _WORDS.items():
        if re.match(rf"(?:{pattern})(?!\d)", words):
            return chip
    return next(iter(difflib.get_close_matches(text, list(chips), 1)), default)
