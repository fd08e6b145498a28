"""A kernel's own time stamps as a picture: who worked on which tile when, for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RECORD = np.dtype([("begin", "u8"), ("end", "u8"), ("row", "u4"), ("column", "u4"), ("sm", "u4"), ("turn", "u4")])
"""One record as the kernel writes it (`tilekit.drivers.profiler`)."""


@dataclass(frozen=True)
class TileTrace:
    """Records of one launch.

    Attributes
    ----------
    kernel
        Its name.
    lanes
        Names of the rows of a CTA.
    records
        Structured array (CTA, lane, tile) of `RECORD`; ``turn`` is 0 where there is no record.
    unit
        What ``begin`` and ``end`` count: ``"ns"``, or ``"steps"`` of the emulator.
    """

    kernel: str
    lanes: tuple[str, ...]
    records: npt.NDArray[Any]
    unit: str

    @classmethod
    def of(cls, kernel: str, lanes: Sequence[str], tiles: int, data: bytes, unit: str) -> TileTrace:
        """Decode what the kernel wrote."""
        records = np.frombuffer(data, RECORD).reshape(-1, len(lanes), tiles)
        return cls(kernel, tuple(lanes), records, unit)

    @property
    def count(self) -> int:
        """Records there are."""
        return int(np.count_nonzero(self.records["turn"]))

    def summary(self) -> str:
        """For each lane: tiles, and the time a tile takes (median, least, most).

        And on a GPU the share of the time that a CTA's lane works. The emulator runs one warp at a time.
        """
        shares = self.unit == "ns"
        lines = [f"{self.kernel}: {self.count} records, times in {self.unit}"]
        lines.append(f"{'activity':<16}{'tiles':>8}{'median':>12}{'least':>12}{'most':>12}" + f"{'busy':>8}" * shares)
        filled = self.records[self.records["turn"] > 0]
        span = int(filled["end"].max() - filled["begin"].min()) if filled.size else 0
        for index, lane in enumerate(self.lanes):
            rows = self.records[:, index]
            mine = rows[rows["turn"] > 0]
            if not mine.size:
                lines.append(f"{lane:<16}{0:>8}")
                continue
            took = (mine["end"] - mine["begin"]).astype(np.int64)
            ctas = int(np.count_nonzero((rows["turn"] > 0).any(axis=1)))
            busy = took.sum() / (span * ctas) if span else 0.0
            lines.append(
                f"{lane:<16}{mine.size:>8}{int(np.median(took)):>12}{took.min():>12}{took.max():>12}"
                + f"{busy:>8.0%}" * shares
            )
        return "\n".join(lines)

    def events(self) -> dict[str, Any]:
        """The trace in the Trace Event Format: a process is a CTA, a thread one of its activities."""
        filled = self.records[self.records["turn"] > 0]
        start = int(filled["begin"].min()) if filled.size else 0
        scale = 1000.0 if self.unit == "ns" else 1.0  # the format counts in microseconds
        events: list[dict[str, Any]] = []
        for cta, lanes in enumerate(self.records):
            used = lanes[lanes["turn"] > 0]
            if not used.size:
                continue
            name = f"CTA {cta} on SM {used['sm'][0]}"
            events.append({"ph": "M", "pid": cta, "name": "process_name", "args": {"name": name}})
            for lane, records in enumerate(lanes):
                label = {"name": self.lanes[lane]}
                events.append({"ph": "M", "pid": cta, "tid": lane, "name": "thread_name", "args": label})
                events += [
                    {
                        "ph": "X",
                        "pid": cta,
                        "tid": lane,
                        "name": f"{self.lanes[lane]} ({r['row']}, {r['column']})",
                        "ts": (int(r["begin"]) - start) / scale,
                        "dur": (int(r["end"]) - int(r["begin"])) / scale,
                        "args": {"row": int(r["row"]), "column": int(r["column"]), "tile": int(r["turn"]) - 1},
                    }
                    for r in records
                    if r["turn"]
                ]
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"kernel": self.kernel, "unit": self.unit}}

    def write(self, path: Path) -> None:
        """Write the events as JSON."""
        path.write_text(json.dumps(self.events()))
