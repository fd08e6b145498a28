"""Whether components use the operands of a kernel as it declares them: their element types and their letters."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tilekit.assembly.errors import TraceError
from tilekit.assembly.uses import Use
from tilekit.kernels.operands import Operand

OUTPUT = "d"
"""The matrix beside which the operands of an epilogue lie."""


class Declared:
    """Compares every use of an operand with its declaration.

    Parameters
    ----------
    kernel
        Its name.
    operands
        What it declares.
    """

    def __init__(self, kernel: str, operands: Sequence[Operand]) -> None:
        self._kernel = kernel
        self._operands = {operand.name: operand for operand in operands}
        self._contiguous: dict[str, str] = {}
        """Which extent is contiguous of the operands whose loader copies them as they lie."""

    def __call__(self, use: Use) -> None:
        """Compare one use.

        Raises
        ------
        TraceError
            ``TK-COMP-009`` for an operand that is not declared, or is of another type or of other letters.
        """
        operand = self._operands.get(use.array)
        if operand is None:
            if use.along in ("m", "n"):
                return  # the name is the tile's: a loader of one's own may fill it from arrays of other names
            near = difflib.get_close_matches(use.array, self._operands, 1, 0.0)
            raise self._refused(use, f"declares only {', '.join(self._operands)}", repr(near[0]))
        if use.dtype is not None and use.dtype.name != operand.dtype.name:
            raise self._refused(
                use, f"declares it as {operand.dtype}, and here it is {use.dtype.name}", f"{operand.dtype} here"
            )
        if use.contiguous is not None:
            self._contiguous[use.array] = use.contiguous
        legal, why = self._letters(use, operand)
        if legal is not None and operand.shape[-len(legal) :] != legal:
            batch = operand.shape[0] if len(operand.shape) == 3 else ""
            raise self._refused(use, f"declares its shape as {operand.shape!r}, and here {why}", repr(batch + legal))
        if use.along == "scalar" and set(operand.shape) & set(self._beside()):
            why = f"declares its shape as {operand.shape!r}, and here it is one element for all of {OUTPUT}"
            raise self._refused(use, why, "a letter of its own")

    def _letters(self, use: Use, operand: Operand) -> tuple[str | None, str]:
        """The letters that an operand is to end with, and why; None where any will do."""
        if use.along in ("m", "n"):
            contiguous = self._contiguous.get(use.array)
            # A loader of one's own may turn what it loads, and letters of one's own mean what the kernel says.
            if contiguous is None or not set(operand.shape[-2:]) <= {*"mnk"}:
                return None, ""
            legal = f"{use.along}k" if contiguous == "k" else f"k{use.along}"
            return legal, f"it is loaded along {use.along.upper()}, {legal[-1].upper()} contiguous"
        if use.along in ("mn", "nm"):
            # As with operands, letters of one's own mean what the kernel says.
            letters = use.along if set(operand.shape[-2:]) == {*"mn"} else None
            return letters, f"it is stored along {use.along[0].upper()}, {use.along[1].upper()} contiguous"
        beside = self._beside()
        if len(beside) < 2 or use.along in (None, "scalar"):
            return None, ""
        which, legal = {"rows": ("row", beside[0]), "columns": ("column", beside[1])}.get(
            use.along, ("element", beside)
        )
        return legal, f"it has an element for each {which} of {OUTPUT}"

    def _beside(self) -> str:
        """The letters of the output's rows and columns, if there is such an output."""
        output = self._operands.get(OUTPUT)
        return output.shape[-2:] if output is not None else ""

    def _refused(self, use: Use, why: str, nearest: str) -> TraceError:
        return TraceError(
            f"{use.component}({use.argument}=) uses {use.array!r}: the kernel {self._kernel} {why}; nearest: {nearest}",
            code="TK-COMP-009",
        )
