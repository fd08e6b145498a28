"""Names of registers and labels: readable, and never twice."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Hands out names made of a hint and, from the second on, a number.

    Parameters
    ----------
    reserved
        Names that must not be used: what fragments declare for themselves would hide a register of the same name.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        self._taken = set(reserved)
        self._counts: dict[str, int] = {}

    def new(self, hint: str) -> str:
        """Return a name that starts with `hint`."""
        return self._pick(hint, 0)

    def prefix(self, hint: str, count: int) -> str:
        """Return a prefix that starts with `hint`, such that prefix0 … prefix<count-1> are new names."""
        return self._pick(hint, count) + "_"

    def _pick(self, hint: str, members: int) -> str:
        while True:
            count = self._counts.get(hint, -1) + 1
            self._counts[hint] = count
            name = hint if count == 0 else f"{hint}_{count}" if hint[-1].isdigit() else f"{hint}{count}"
            names = [name, *(f"{name}_{i}" for i in range(members))] if members else [name]
            if self._taken.isdisjoint(names):
                self._taken.update(names)
                return name
