"""Mistakes that no test notices, and why that is as it should be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .mutators import Mutant

Kind = Literal["equivalent", "speed", "message"]
"""Nothing differs; how fast something is; what people read, and its exact wording."""


@dataclass(frozen=True)
class Known:
    """Mistakes that are judged.

    Attributes
    ----------
    file, where
        Where they are: the source file, and a regular expression of the function.
    before, after
        Regular expressions of what is changed into what.
    kind
        What kind of difference they make.
    why
        The reason.
    """

    file: str
    where: str
    before: str
    after: str
    kind: Kind
    why: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether this is about a mutant."""
        pairs = ((self.where, mutant.where), (self.before, mutant.before), (self.after, mutant.after))
        return self.file == mutant.file and all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in pairs)


KNOWN: tuple[Known, ...] = ()


def judged(mutant: Mutant) -> Known | None:
    """What is known of a mutant, if anything."""
    return next((known for known in KNOWN if known.covers(mutant)), None)
