"""Faults that only AMDGCN code has, and the names of its waves in messages."""

# ruff: noqa: N818 (the names are the fault, as the field says them)
from __future__ import annotations

from dataclasses import dataclass

from tilekit.emulator.core.errors import Actor, ProtocolError, TextError

__all__ = ["GcnSyntaxError", "MissingWait", "Wave"]


class GcnSyntaxError(TextError):
    """Text that is not AMDGCN assembly; carries the line and column."""

    title = "AMDGCN syntax"


class MissingWait(ProtocolError):
    """A register used, or overwritten, while a memory operation that writes it has not been waited for."""

    title = "missing wait"


@dataclass(frozen=True, slots=True)
class Wave(Actor):
    """A wave: `cluster` is the linear index of its workgroup, `warp` its index in it."""

    def place(self) -> list[str]:
        """Return its workgroup and itself, in words."""
        return [f"workgroup {self.cluster}", str(self)]

    def __str__(self) -> str:
        return f"role {self.role} (wave {self.warp})" if self.role else f"wave {self.warp}"
