"""What a lint says of a text."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Remark"]


@dataclass(frozen=True, slots=True)
class Remark:
    """Something wrong with a text.

    Attributes
    ----------
    rule
        One of the `RULES` of the lint that says it.
    kernel
        Name of the entry; empty for the text as a whole.
    line
        Of the text, from 1.
    message
        What is wrong, in one sentence.
    hint
        What to change.
    """

    rule: str
    kernel: str
    line: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}" + (f", kernel {self.kernel}" if self.kernel else "")
        return f"{place}: {self.rule}: {self.message}" + (f"\n  hint: {self.hint}" if self.hint else "")
