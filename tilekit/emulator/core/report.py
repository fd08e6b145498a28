"""What a launch did, as numbers and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape

from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.statistics import Statistics

__all__ = ["LaunchReport"]

Dim = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """The result of one launch that ran to its end.

    Attributes
    ----------
    kernel, grid, block, cluster, shared_bytes
        What was launched; dimensions as (x, y, z), shared memory in bytes a CTA.
    schedule, seed, check
        How it was scheduled and how much was checked.
    steps
        Warp instructions executed.
    instructions
        Warp instructions executed by each role; warps without a role count under their number.
    bytes_loaded, bytes_stored
        Bytes that TMA and bulk copies brought into shared memory and took out of it.
    flops
        Floating-point operations of the matrix instructions; a multiply and an add count as two.
    seconds
        Wall time of the emulation.
    findings
        What is wrong although the launch ended, such as barriers left in the middle of a phase.
    remarks
        What the manual does not allow and compilers rely on all the same: a kernel is `clean` in spite of it.
    statistics
        What was counted besides, when the launch was asked to.
    printed
        What the kernel printed with ``printf``; it went to standard output as well.
    """

    kernel: str
    grid: Dim
    block: Dim
    cluster: Dim
    shared_bytes: int
    schedule: str
    seed: int
    check: str
    steps: int
    instructions: Mapping[str, int] = field(default_factory=dict)
    bytes_loaded: int = 0
    bytes_stored: int = 0
    flops: int = 0
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    remarks: tuple[Finding, ...] = ()
    statistics: Statistics | None = None
    printed: str = ""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        shape = ", ".join(
            f"{name} {'x'.join(map(str, dims))}"
            for name, dims in (("grid", self.grid), ("block", self.block), ("cluster", self.cluster))
        )
        lines = [
            f"{self.kernel}: {shape}, {self.shared_bytes} bytes of shared memory a CTA",
            f"  schedule {self.schedule}, seed {self.seed}, check {self.check}",
            f"  {self.steps:,} warp instructions in {self.seconds:.2f} s, {_rate(self.steps, self.seconds)} a second",
        ]
        if self.bytes_loaded or self.bytes_stored:
            lines.append(f"  bulk copies: {self.bytes_loaded:,} bytes in, {self.bytes_stored:,} bytes out")
        if self.flops:
            lines.append(f"  matrix instructions: {self.flops:,} FLOP")
        if self.instructions:
            width = max(map(len, self.instructions))
            for role, count in sorted(self.instructions.items(), key=lambda item: -item[1]):
                lines.append(f"  {role:{width}}  {count:,}")
        lines.append("  nothing found" if self.clean else f"  {len(self.findings)} found:")
        for finding in self.findings:
            lines += [f"  {line}" for line in str(finding).splitlines()]
        if self.remarks:
            lines.append(f"  {len(self.remarks)} remarked:")
        for remark in self.remarks:
            lines += [f"  {line}" for line in str(remark).splitlines()]
        if self.statistics is not None:
            lines += [f"  {line}" for line in str(self.statistics).splitlines()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows: the launch, instructions by role as bars, then the findings."""
        head, *facts = str(replace(self, instructions={}, findings=(), remarks=(), statistics=None)).splitlines()
        most = max(self.instructions.values(), default=1)
        rows = "".join(
            f'<tr><td>{escape(role)}</td><td style="text-align: right">{count:,}</td><td style="width: 240px">'
            f'<div style="background: #4e79a7; height: 12px; width: {100 * count / most:.1f}%"></div></td></tr>'
            for role, count in sorted(self.instructions.items(), key=lambda item: -item[1])
        )
        table = f"<table><tr><th>role</th><th>warp instructions</th><th></th></tr>{rows}</table>" if rows else ""
        lines = "<br/>".join(escape(line.strip()) for line in facts if line.strip() != "nothing found")
        found = "".join(finding._repr_html_() for finding in self.findings)
        verdict = found or '<p style="color: #1a7f37"><b>nothing found</b></p>'
        remarks = "".join(f"<p>{escape(str(remark))}</p>" for remark in self.remarks)
        statistics = f"<pre>{escape(str(self.statistics))}</pre>" if self.statistics is not None else ""
        return f"<div><b>{escape(head)}</b><br/>{lines}{table}{verdict}{remarks}{statistics}</div>"


def _rate(steps: int, seconds: float) -> str:
    rate = steps / seconds if seconds > 0 else 0.0
    return f"{rate / 1e6:.2f} million" if rate >= 1e6 else f"{rate / 1e3:.0f} thousand"
