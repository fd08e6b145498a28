"""A launch as a file in the Trace Event Format: processes, tracks, slices, and asynchronous slices."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from os import PathLike
from pathlib import Path
from typing import Any

from tilekit.emulator.core.errors import LaunchError

__all__ = ["Event", "Trace", "require_writable"]

Event = dict[str, Any]


class Trace(ABC):
    """Collects events; `write` when the launch has ended.

    Attributes
    ----------
    steps
        The time: instructions that the launch has executed.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._events: list[Event] = []
        self._known: set[tuple[int, int]] = set()
        self._serial = 0

    def knows(self, process: int, track: int) -> bool:
        """Whether a track has a name."""
        return (process, track) in self._known

    def name(self, process: int, track: int, process_name: str, track_name: str) -> None:
        """Name a track, and its process with the first of its tracks."""
        if (process, -1) not in self._known:
            self._known.add((process, -1))
            self._events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": process_name}})
        self._known.add((process, track))
        thread = {"pid": process, "tid": track}
        self._events.append({"ph": "M", "name": "thread_name", **thread, "args": {"name": track_name}})
        self._events.append({"ph": "M", "name": "thread_sort_index", **thread, "args": {"sort_index": track}})

    def slice(self, process: int, track: int, name: str, start: int, category: str) -> None:
        """Add a slice that ends now."""
        self._events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": process,
                "tid": track,
                "ts": start,
                "dur": self.steps - start,
            }
        )

    def begin(self, process: int, track: int, name: str, category: str, facts: dict[str, Any]) -> Event:
        """Begin an asynchronous slice."""
        self._serial += 1
        event = {
            "ph": "b",
            "cat": category,
            "name": name,
            "id": self._serial,
            "pid": process,
            "tid": track,
            "ts": self.steps,
            "args": facts,
        }
        self._events.append(event)
        return event

    def end(self, event: Event) -> None:
        """End an asynchronous slice."""
        same = {key: event[key] for key in ("cat", "name", "id", "pid", "tid")}
        self._events.append({**same, "ph": "e", "ts": self.steps})

    def file(self, kernel: str, schedule: str, seed: int, unit: str) -> dict[str, Any]:
        """The file's contents."""
        return {
            "traceEvents": sorted(self._events, key=lambda event: event.get("ts", -1)),
            "otherData": {"kernel": kernel, "schedule": schedule, "seed": seed, "unit": unit},
        }

    @abstractmethod
    def trace(self) -> dict[str, Any]:
        """The whole file: what still runs, waits or is in flight ends now."""

    def write(self, path: str | Path) -> None:
        """Write the file."""
        Path(path).write_text(json.dumps(self.trace()), "utf-8")


def require_writable(timeline: object) -> None:
    """Refuse a path that no file can be written to; leaves what is there as it is."""
    legal = "a path to write a file to"
    if not isinstance(timeline, str | PathLike):
        raise LaunchError.argument("timeline", timeline, legal, "timeline.json")
    path = Path(timeline)
    try:
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.unlink()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise LaunchError.argument("timeline", str(timeline), f"{legal} ({reason.lower()})") from None
