"""What a launch on an AMD chip did, counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilekit.emulator.core.statistics import Statistics

__all__ = ["DispatchStatistics", "LineSite", "MatrixWork", "Traffic"]

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Traffic:
    """Accesses of one kind: how many lanes (of scalar loads, waves) made one, and the bytes that they asked for."""

    accesses: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MatrixWork:
    """Matrix instructions of one name: how many, and the passes of the matrix core, of 4 clocks, that they take."""

    count: int
    passes: int


@dataclass(frozen=True, slots=True)
class LineSite:
    """An instruction that accesses global memory.

    Attributes
    ----------
    line, text, provenance
        The instruction.
    accesses
        How often a wave executed it.
    lines
        Cache lines of 128 bytes that those touched, each wave's counted for itself.
    ideal
        How many their bytes alone would fill.
    bytes
        Different bytes that they asked for.
    """

    line: int
    text: str
    provenance: str
    accesses: int
    lines: int
    ideal: int
    bytes: int

    @property
    def extra(self) -> int:
        """Lines beyond those that the bytes would fill."""
        return self.lines - self.ideal


@dataclass(frozen=True, slots=True)
class DispatchStatistics(Statistics):
    """Counts of one launch; what PTX has as well, and these.

    Attributes
    ----------
    traffic
        Bytes asked for, by kind: ``global loads``, ``LDS stores``, ``LDS loads to it``, ``scalar loads`` …
    line_sites
        Instructions that access global memory, those that touch most lines more than they need first.
    matrix
        Matrix instructions, by name.
    """

    traffic: Mapping[str, Traffic]
    line_sites: tuple[LineSite, ...]
    matrix: Mapping[str, MatrixWork]

    def __str__(self) -> str:
        lines = Statistics.__str__(self).splitlines()
        for kind, traffic in self.traffic.items():
            lines.append(f"{kind}: {traffic.accesses:,} accesses, {traffic.bytes:,} bytes")
        for name, work in self.matrix.items():
            lines.append(f"{name}: {work.count:,}, {work.passes:,} passes")
        total = sum(site.lines for site in self.line_sites)
        if total:
            extra = sum(site.extra for site in self.line_sites)
            lines.append(f"global memory: {total:,} lines of 128 bytes, {extra:,} of them not filled")
        for site in [site for site in self.line_sites if site.extra > 0][:_SHOWN]:
            origin = f"  [{site.provenance}]" if site.provenance else ""
            lines.append(f"  {site.extra:,} extra in {site.accesses:,}: line {site.line}: {site.text}{origin}")
        return "\n".join(lines)
