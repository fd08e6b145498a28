"""Measured cases as a Markdown table and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from tilekit.bench.host import HostTimes
from tilekit.bench.machine import Machine
from tilekit.bench.matmul import Case, Result

__all__ = ["facts", "geometric_mean", "host_markdown", "to_json", "to_markdown"]

_HEADER = (
    "| case | kind | us | TFLOP/s | peer | peer us | peer TFLOP/s | ratio | within rounds | burst ratio "
    "| SM MHz, peer | W, peer |\n"
    "|---|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|\n"
)


def facts(machine: Machine) -> dict[str, str]:
    """Return what a reader must know about the run: the GPU and the versions of all that takes part."""
    import tilekit

    return {
        "device": machine.device,
        "capability": f"{machine.capability[0]}.{machine.capability[1]}",
        "library": machine.library,
        "tilekit": tilekit.__version__,
    }


def geometric_mean(cases: Sequence[Case], peer: str) -> float | None:
    """Return the geometric mean of one peer's sustained ratios; None if it was measured nowhere."""
    ratios = [result.ratio for case in cases for result in case.results if result.name == peer and result.ratio]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def to_markdown(cases: Sequence[Case], about: dict[str, str]) -> str:
    """Return the table, worst case first, with a line a peer below it."""
    rows = [row for case in cases for row in _rows(case)]
    peers = dict.fromkeys(result.name for case in cases for result in case.results[1:])
    lines = []
    for peer in peers:
        mean = geometric_mean(cases, peer)
        ratios = [result.ratio for case in cases for result in case.results if result.name == peer and result.ratio]
        if mean is not None:
            lines.append(f"- {peer}: geometric mean {mean:.3f}, worst {min(ratios):.3f}, {len(ratios)} case(s)")
    where = ", ".join(f"{key} {value}" for key, value in about.items())
    return (
        f"{where}\n\nRatio = peer's time / tilekit's: above 1, tilekit is faster. Sustained; median over rounds.\n\n"
        f"{_HEADER}{''.join(rows)}\n{chr(10).join(lines)}\n"
    )


def to_json(cases: Sequence[Case], about: dict[str, str], host: HostTimes | None = None) -> str:
    """Return everything that was measured."""
    whole: dict[str, object] = {"about": about, "cases": [asdict(case) for case in cases]}
    if host is not None:
        whole["host"] = asdict(host)
    return json.dumps(whole, indent=1)


def host_markdown(times: HostTimes) -> str:
    """Return the host times as a table."""
    rows = "".join(f"| {name} | {us:.2f} |\n" for name, us in times.us.items())
    return f"Host time a call, {times.shape} (the GPU is idle most of the time):\n\n| call | us |\n|---|--:|\n{rows}"


def _rows(case: Case) -> list[str]:
    ours, *peers = case.results
    if ours.failure is not None:
        return [f"| {case.label} | {case.kind} | **{ours.failure}** {'| ' * 9}|\n"]
    if not peers:
        return [_row(case, ours, None)]
    return [_row(case, ours, peer) for peer in peers]


def _row(case: Case, ours: Result, peer: Result | None) -> str:
    cells = [case.label, case.kind, _number(ours.us, 2), _number(ours.tflops, 0)]
    if peer is None:
        cells += ["", "", "", "", "", "", _pair(ours.sm_mhz, None), _pair(ours.watts, None)]
    elif peer.failure is not None:
        cells += [peer.name, peer.failure, "", "", "", "", _pair(ours.sm_mhz, None), _pair(ours.watts, None)]
    else:
        spread = "" if peer.spread is None else f"{peer.spread[0]:.3f}-{peer.spread[1]:.3f}"
        cells += [
            peer.name,
            _number(peer.us, 2),
            _number(peer.tflops, 0),
            f"**{_number(peer.ratio, 3)}**",
            spread,
            _number(peer.burst_ratio, 3),
            _pair(ours.sm_mhz, peer.sm_mhz),
            _pair(ours.watts, peer.watts),
        ]
    return f"| {' | '.join(cells)} |\n"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _pair(ours: float | None, peer: float | None) -> str:
    return ", ".join(_number(value, 0) for value in (ours, peer) if value is not None)
