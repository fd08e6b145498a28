"""Operands of a Python epilogue that are whole numbers: which are legal."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilekit.epilogue.graph import Graph
from tilekit.errors import ArgumentError


def whole_operand(graph: Graph, index: int, name: str, given: Any) -> int:
    """What a parameter that is annotated as int is given.

    It is a signed number of 32 bits; of a seed, and of whatever else is only asked for its bits, they may as well be
    those of an unsigned one.

    Raises
    ------
    ArgumentError
        ``TK-EPI-004`` for what is no whole number, and for one of more bits.
    """
    seed = graph.takes_bits(index)
    low, high = -(1 << 31), (1 << (32 if seed else 31)) - 1
    why = f"{name} is annotated as int" + (" and is a seed" if seed else "")
    legal = f"a whole number from {low} to {high}: {why}"
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
        raise ArgumentError.of(name, given, legal=legal, code="TK-EPI-004")
    if not low <= given <= high:
        raise ArgumentError.of(name, given, legal=legal, nearest=min(max(int(given), low), high), code="TK-EPI-004")
    return int(given)
