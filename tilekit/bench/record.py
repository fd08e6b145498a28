"""What a run measured, as a file: written as JSON while the run goes on, read again, merged with other runs."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

from tilekit.annotations import check_fields
from tilekit.bench.host import HostTimes
from tilekit.bench.machine import Machine
from tilekit.bench.matmul import Case, Result
from tilekit.errors import ArgumentError

__all__ = ["Record", "facts", "merged"]

_FORMAT: Final = "tilekit-bench-1"


@dataclass(slots=True)
class Record:
    """One run, or several merged.

    Attributes
    ----------
    about : dict of str to str
        What a reader must know: GPU, versions, pace.
    cases : list of Case
        Worst first.
    notes : list of str
        What is missing and why: peers that are not here, cases that time did not suffice for.
    host : HostTimes or None
    """

    about: dict[str, str]
    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    host: HostTimes | None = None

    def to_json(self) -> str:
        """Return everything that was measured."""
        whole: dict[str, object] = {
            "format": _FORMAT,
            "about": self.about,
            "notes": self.notes,
            "cases": [asdict(case) for case in self.cases],
        }
        if self.host is not None:
            whole["host"] = asdict(self.host)
        return json.dumps(whole, indent=1)

    def write(self, file: Path) -> None:
        """Write the JSON in one step, so that a run that is killed leaves the last whole state."""
        partial = file.with_name(f"{file.name}.partial")
        partial.write_text(self.to_json() + "\n", "utf-8")
        partial.replace(file)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what :meth:`write` wrote.

        Raises
        ------
        ArgumentError
            If the file cannot be read, or is not of this format.
        """
        legal = "a JSON file that `tilekit bench --json-file` wrote"
        try:
            whole = json.loads(file.read_text("utf-8"))
            if whole["format"] != _FORMAT:
                raise KeyError("format")
            host = HostTimes(**whole["host"]) if "host" in whole else None
            found = cls(whole["about"], [_case(case) for case in whole["cases"]], whole["notes"], host)
            check_fields(found)
            if host is not None:
                check_fields(host)
            _ = found.about["device"]
            return found
        except OSError as error:
            raise ArgumentError.of(
                "FILE", str(file), legal=f"{legal} ({error.strerror})", code="TK-BENCH-003"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # whatever a damaged file holds
            raise ArgumentError.of("FILE", str(file), legal=legal, code="TK-BENCH-003") from None


def facts(machine: Machine) -> dict[str, str]:
    """Return what a reader must know about a run that begins: the GPU, the day, the versions of what takes part."""
    import tilekit

    return {
        "device": machine.device,
        "capability": f"{machine.capability[0]}.{machine.capability[1]}",
        "date": datetime.date.today().isoformat(),
        "library": machine.library,
        "tilekit": tilekit.__version__,
    }


def merged(records: Sequence[Record]) -> Record:
    """Return the runs as one: the parts of a suite side by side, a case that several runs measured from all of them.

    The figures of such a case are the medians over the rounds and bursts of all its runs.

    Raises
    ------
    ArgumentError
        If the runs are of different GPUs.
    """
    devices = sorted({record.about["device"] for record in records})
    if len(devices) > 1:
        raise ArgumentError.of("FILE", devices, legal="runs on one kind of GPU", code="TK-BENCH-003")
    keys = dict.fromkeys(key for record in records for key in record.about)
    about = {
        key: ", ".join(dict.fromkeys(record.about[key] for record in records if key in record.about)) for key in keys
    }
    cases: dict[tuple[str, str, str], Case] = {}
    for record in records:
        for case in record.cases:
            key = (case.suite, case.label, case.kind)
            cases[key] = _combined(cases[key], case) if key in cases else case
    notes = list(dict.fromkeys(note for record in records for note in record.notes))
    host = next((record.host for record in records if record.host is not None), None)
    return Record(about, sorted(cases.values(), key=lambda case: case.worst_ratio), notes, host)


def _combined(one: Case, other: Case) -> Case:
    results = {result.name: result for result in one.results}
    for result in other.results:
        mine = results.get(result.name)
        results[result.name] = result if mine is None else _joined(mine, result, one.flops)
    rest = {f.name: getattr(one, f.name) for f in fields(Case) if f.name not in ("seconds", "results")}
    return Case(**rest, seconds=one.seconds + other.seconds, results=list(results.values()))


def _joined(one: Result, other: Result, flops: int) -> Result:
    result = Result(
        one.name,
        error=_of(max, one.error, other.error),
        failure=one.failure or other.failure,
        rounds=[*one.rounds, *other.rounds],
        bursts=[*one.bursts, *other.bursts],
        ratios=[*one.ratios, *other.ratios],
        burst_ratios=[*one.burst_ratios, *other.burst_ratios],
        sm_mhz=_of(statistics.mean, one.sm_mhz, other.sm_mhz),
        watts=_of(statistics.mean, one.watts, other.watts),
    )
    result.summarise(flops)
    return result


def _of(function: Any, *values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return float(function(known)) if known else None


def _case(whole: dict[str, Any]) -> Case:
    case = Case(**{**whole, "results": [Result(**result) for result in whole["results"]]})
    for part in (case, *case.results):
        check_fields(part)
    if not case.results:
        raise ValueError("a case without a result")
    return case
