"""Where a launch under a debugger stops."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

from tilekit.emulator.core.checked import check_fields
from tilekit.emulator.core.errors import Actor, InstructionLike, LaunchError, nearest
from tilekit.emulator.core.symbols import SymbolMap

__all__ = ["Places", "Stop"]

_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Stop:
    """A place to stop at: before an instruction for which everything that is given holds.

    Attributes
    ----------
    line
        Of the text.
    label
        The first instruction behind it.
    wait
        Stop when a warp has begun to wait for something whose name starts like this: ``inputs.full[1]``,
        ``inputs.full[1] phase 2``, ``bar 1``, ``the cluster barrier``, ``s_barrier``.
    role, warp, cta, cluster
        Only there: a role's name, a warp's index in its CTA, a CTA's rank in its cluster, a cluster's number. On AMD
        chips warps are waves, and each workgroup is a cluster of its own, with one CTA.
    steps
        Not before the launch has executed so many instructions.
    """

    line: int | None = None
    label: str | None = None
    wait: str | None = None
    role: str | None = None
    warp: int | None = None
    cta: int | None = None
    cluster: int | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, given: Stop | int | str) -> Stop:
        """A line, a label, or ``name=value`` pairs with commas between them, as a stop.

        Raises
        ------
        LaunchError
            If the text names nothing that a stop has.
        """
        if isinstance(given, Stop):
            return given
        if isinstance(given, int) or _is_number(given):
            return cls(line=int(given))
        return cls._parse(given) if "=" in given else cls(label=given)

    @classmethod
    def _parse(cls, text: str) -> Self:
        legal = [field.name for field in fields(cls)]
        values: dict[str, int | str] = {}
        for part in re.split(r",(?=\w+=)", text):
            name, _, value = part.partition("=")
            if name not in legal:
                raise LaunchError.argument("stop", text, f"name=value with {', '.join(legal)}", nearest(name, legal))
            if name in ("label", "wait", "role"):
                values[name] = value
            elif _is_number(value):
                values[name] = int(value)
            else:
                raise LaunchError.argument("stop", text, f"a whole number for {name}")
        return cls(**values)  # type: ignore[arg-type]  # the names say which are numbers

    def admits(self, actor: Actor) -> bool:
        """Whether a warp is one that may stop here."""
        return (
            (self.role is None or self.role == actor.role)
            and (self.warp is None or self.warp == actor.warp)
            and (self.cta is None or self.cta == actor.cta)
            and (self.cluster is None or self.cluster == actor.cluster)
        )

    def places(
        self, kernel: str, code: Sequence[InstructionLike], labels: Mapping[str, int], symbols: SymbolMap
    ) -> Places:
        """The instructions that this stop means.

        Parameters
        ----------
        kernel, code
            Its name, and its instructions by position.
        labels
            The line of each label, or of the first instruction behind it.
        symbols
            Names of its roles.

        Raises
        ------
        LaunchError
            If there is no such line, label or role; names the nearest one.
        """
        roles = [role.name for role in symbols.roles]
        if self.role is not None and self.role not in roles:
            raise LaunchError.argument("role", self.role, ", ".join(roles) or "none: the text names no roles",
                                       nearest(self.role, roles) or None)  # fmt: skip
        if self.line is None and self.label is None:
            return Places(None)
        lines = {instruction.line for instruction in code}
        line = self.line
        if self.label is not None:
            if self.label not in labels:
                raise LaunchError.argument("label", self.label, ", ".join(labels) or "none: the kernel has no labels",
                                           nearest(self.label, labels) or None)  # fmt: skip
            line = min((at for at in lines if at >= labels[self.label]), default=max(lines))
        assert line is not None
        if line not in lines:
            close = min(lines, key=lambda at: (abs(at - line), at < line), default=0)
            raise LaunchError.argument("line", line, f"a line with an instruction of {kernel}", close)
        return Places(frozenset(at for at, instruction in enumerate(code) if instruction.line == line))


def _is_number(text: str) -> bool:
    """Whether a text is a whole number, and no longer than numbers of lines and warps are."""
    return text.isdecimal() and len(text) <= _DIGITS


class Places:
    """Positions in a kernel's code; None for all."""

    def __init__(self, positions: frozenset[int] | None) -> None:
        self._positions = positions

    def has(self, position: int) -> bool:
        """Whether an instruction is among them."""
        return self._positions is None or position in self._positions

    def between(self, start: int, end: int) -> bool:
        """Whether any instruction from one position to before another is."""
        return self._positions is None or any(start <= at < end for at in self._positions)
