"""What a launch did, counted: instructions, lines that never ran, copies, bank conflicts, waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BankSite", "CopyTraffic", "Stall", "Statistics"]

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class CopyTraffic:
    """Asynchronous copies of one kind: how many, and the bytes they delivered (a multicast delivers to each CTA)."""

    copies: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BankSite:
    """An instruction that accesses shared memory.

    Attributes
    ----------
    line, text, provenance
        The instruction.
    accesses
        How often a warp executed it.
    wavefronts
        Passes through the 32 banks that those needed.
    extra
        Passes beyond those that the amount of data needs: bank conflicts.
    """

    line: int
    text: str
    provenance: str
    accesses: int
    wavefronts: int
    extra: int


@dataclass(frozen=True, slots=True)
class Stall:
    """Waits for one barrier (all its phases): how many were not satisfied at once, and how long they took together.

    ``steps`` counts warp instructions that the whole launch executed meanwhile, in the emulator's order.
    """

    waits: int
    steps: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of one launch.

    Attributes
    ----------
    opcodes
        Warp instructions by role (warps without one: by number) and by name with modifiers.
    never_run
        (line, text) of the instructions that no warp reached.
    lines
        Number of instructions in the text.
    copies
        Asynchronous copies by kind: the instruction's name up to its state spaces.
    bank_sites
        Instructions that load from or store to shared memory, those with most conflicts first.
    stalls
        Waits, by barrier.
    """

    opcodes: Mapping[str, Mapping[str, int]]
    never_run: tuple[tuple[int, str], ...]
    lines: int
    copies: Mapping[str, CopyTraffic]
    bank_sites: tuple[BankSite, ...]
    stalls: Mapping[str, Stall]

    @property
    def extra_wavefronts(self) -> int:
        """Bank conflicts of the launch."""
        return sum(site.extra for site in self.bank_sites)

    def __str__(self) -> str:
        lines = []
        for role, opcodes in self.opcodes.items():
            most = sorted(opcodes.items(), key=lambda item: -item[1])
            shown = ", ".join(f"{name} {count:,}" for name, count in most[:_SHOWN])
            rest = f", {len(most) - _SHOWN} others" if len(most) > _SHOWN else ""
            lines.append(f"{role}: {shown}{rest}")
        ran = self.lines - len(self.never_run)
        lines.append(f"{ran} of {self.lines} instructions of the text ran; never:" if self.never_run else
                     f"all {self.lines} instructions of the text ran")  # fmt: skip
        lines += [f"  line {line}: {text}" for line, text in self.never_run[:_SHOWN]]
        if len(self.never_run) > _SHOWN:
            lines.append(f"  and {len(self.never_run) - _SHOWN} more")
        for kind, traffic in self.copies.items():
            lines.append(f"{kind}: {traffic.copies:,} copies, {traffic.bytes:,} bytes")
        total = sum(site.wavefronts for site in self.bank_sites)
        if total:
            lines.append(f"shared memory: {total:,} wavefronts, {self.extra_wavefronts:,} of them bank conflicts")
        for site in [site for site in self.bank_sites if site.extra][:_SHOWN]:
            origin = f"  [{site.provenance}]" if site.provenance else ""
            lines.append(f"  {site.extra:,} extra in {site.accesses:,}: line {site.line}: {site.text}{origin}")
        for name, stall in sorted(self.stalls.items(), key=lambda item: -item[1].steps)[:_SHOWN]:
            lines.append(f"waits for {name}: {stall.waits:,}, {stall.steps:,} steps")
        return "\n".join(lines)
