"""What a launch on an AMD chip did."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.emulator.core.report import LaunchReport

__all__ = ["DispatchReport"]


@dataclass(frozen=True, slots=True)
class DispatchReport(LaunchReport):
    """The result of one launch; `instructions` counts wave instructions by mnemonic, `shared_bytes` is LDS."""

    def __str__(self) -> str:
        grid, block = ("x".join(map(str, dims)) for dims in (self.grid, self.block))
        rate = self.steps / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.kernel}: grid {grid} workgroups, block {block}, {self.shared_bytes} bytes of LDS a workgroup",
            f"  schedule {self.schedule}, seed {self.seed}, check {self.check}",
            f"  {self.steps:,} wave instructions in {self.seconds:.2f} s, {rate / 1e6:.2f} million a second",
        ]
        lines += [f"  {line}" for finding in self.findings for line in str(finding).splitlines()]
        if not self.findings:
            lines.append("  nothing found")
        if self.remarks:
            lines.append(f"  {len(self.remarks)} remarked:")
        lines += [f"  {line}" for remark in self.remarks for line in str(remark).splitlines()]
        if self.statistics is not None:
            lines += [f"  {line}" for line in str(self.statistics).splitlines()]
        return "\n".join(lines)
