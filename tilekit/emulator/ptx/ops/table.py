"""The table of instruction forms with every form in it: imported, the files of instructions register theirs."""

from __future__ import annotations

import importlib

from tilekit.emulator.ptx.language.forms import TABLE

__all__ = ["coverage", "refusals"]

_OPERATIONS = (
    *("atomic", "barrier", "bulk", "control", "cp_async", "float", "integer", "matrix", "memory", "move", "warp"),
    *("tensormap", "wgmma", "tcgen05", "clc", "narrow", "packed", "remote", "call", "mma", "wmma", "video"),
)
for _name in _OPERATIONS:
    importlib.import_module(f".{_name}", __package__)


def coverage() -> dict[str, list[str]]:
    """Every form that is executed, by opcode, in the manual's notation."""
    executed = ((opcode, [str(row) for row in rows if not row.refusal]) for opcode, rows in sorted(TABLE.items()))
    return {opcode: rows for opcode, rows in executed if rows}


def refusals() -> list[tuple[str, str]]:
    """Every form that is known but not executed, in the manual's notation, and why."""
    return [(str(row), row.refusal) for _, rows in sorted(TABLE.items()) for row in rows if row.refusal]
