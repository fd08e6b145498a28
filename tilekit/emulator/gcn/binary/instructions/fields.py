"""An instruction's fields, and what its text has used of them: the rest must be zero, or is lost."""

from __future__ import annotations

from tilekit.emulator.gcn.binary.instructions.formats import Format

__all__ = ["Fields"]


class Fields:
    """The fields of one instruction.

    Parameters
    ----------
    form
        Its format.
    bits
        Its bytes as a number.

    Attributes
    ----------
    irregular
        Whether operands together break a rule of the assembler's.
    """

    def __init__(self, form: Format, bits: int) -> None:
        self.form = form
        self._left = form.read(bits)
        self._unused = form.unused(bits)
        self._all = dict(self._left)
        self._scalars: set[tuple[int, int]] = set()
        self.irregular = False

    def __getitem__(self, name: str) -> int:
        """Look at a field."""
        return self._all[name]

    def __contains__(self, name: object) -> bool:
        return name in self._all

    def take(self, name: str) -> int:
        """Use a field."""
        self._left.pop(name, None)
        return self._all[name]

    def flag(self, name: str) -> str:
        """Use a field of one bit; its name where it is set, with the blank before it."""
        return f" {name}" if self.take(name) else ""

    def reads_scalar(self, code: int, width: int) -> None:
        """Note that the instruction reads this over the bus for scalars, which brings one in each instruction."""
        self._scalars.add((code, width))

    def lost(self) -> bool:
        """Whether the assembler would not make these bits of the text: one is not in it, or it breaks a rule."""
        return self._unused or any(self._left.values()) or len(self._scalars) > 1 or self.irregular
