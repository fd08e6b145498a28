"""Classes of cases that figures are given for: the tables of a report by rows, layout and type."""

from __future__ import annotations

from typing import Final

__all__ = ["MOST_ROWS", "class_of"]

_ROWS: Final = ((1, 8), (9, 64), (65, 768), (769, 8192))
"""Smallest and largest M of a class."""

MOST_ROWS: Final = _ROWS[-1][1]
"""Of the last class that has an end."""


def class_of(label: str, kind: str) -> tuple[str, str, str]:
    """Return the class of a case of any suite by its label and kind: rows, layout and type.

    Groups and batches are classes of their own, whatever their rows; convolutions have filters in the place of rows,
    and how these go over images in that of the layout; attention has the head dim there, and the mask.
    """
    name, *words = kind.split()
    layout, rest = (words[0], words[1:]) if words else ("", [])
    if " " in label and not label.startswith("G"):
        _, filters, *how = label.split()
        if filters.startswith("h"):
            return f"heads of {how[0][1:]}", " ".join(how[1:]) or "full", name
        down_and_along = "x".join(filters.split("x")[1:])
        return f"{down_and_along} filters", " ".join(how), name.split("→")[0]
    operand = name.split("→")[0]
    if label.startswith("G"):
        return "groups", " ".join((layout, *rest)), operand
    extents = [int(extent) for extent in label.split("x")]
    if len(extents) == 4:
        return "batches", layout, operand
    m = extents[0]
    rows = next((f"{low} to {high}" for low, high in _ROWS if low <= m <= high), f"over {MOST_ROWS}")
    return rows, layout, operand
