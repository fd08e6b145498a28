"""Measured cases as Markdown: a table of the suites beside their aims, then every case, worst first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilekit.bench.classes import class_of
from tilekit.bench.entrants import OURS
from tilekit.bench.host import HostTimes
from tilekit.bench.matmul import Case, Result
from tilekit.bench.record import Record
from tilekit.bench.suites import DRAWN, SUITES

__all__ = ["Summary", "host_markdown", "summaries", "to_markdown"]

_BEST = "quickest peer"


@dataclass(frozen=True, slots=True)
class Summary:
    """One peer over the cases of one suite that it was measured in.

    Attributes
    ----------
    suite, peer : str
    cases : int
    geomean, worst : float
        Of the sustained ratios.
    worst_case : str
        Its label.
    burst_geomean : float or None
        None where no case had bursts.
    """

    suite: str
    peer: str
    cases: int
    geomean: float
    worst: float
    worst_case: str
    burst_geomean: float | None


def summaries(cases: Sequence[Case]) -> list[Summary]:
    """Return suite by suite, in their own order, every peer's summary.

    Where there are several peers, the quickest of each case has a line too: the bar that the best of all would set.
    """
    found = []
    for suite in _in_order(cases):
        own = [case for case in cases if case.suite == suite and case.results[0].failure is None]
        peers = dict.fromkeys(result.name for case in own for result in case.results[1:])
        whole = {result.name for case in own for result in case.results[1:] if not result.part}
        for peer in [*peers, *([_BEST] if len(whole) > 1 else [])]:
            pairs = [(case, result) for case in own for result in _measured(case, peer)]
            if not pairs:
                continue
            worst, worst_ratio = min(
                ((case, result.ratio or math.inf) for case, result in pairs), key=lambda pair: pair[1]
            )
            alike = [case for case in own if case.label == worst.label]
            bursts = [result.burst_ratio for _, result in pairs if result.burst_ratio is not None]
            found.append(
                Summary(
                    suite,
                    peer,
                    len(pairs),
                    _geometric_mean([result.ratio for _, result in pairs if result.ratio is not None]),
                    worst_ratio,
                    worst.label if len(alike) == 1 else f"{worst.label} {worst.kind}",
                    _geometric_mean(bursts) if bursts else None,
                )
            )
    return found


def _in_order(cases: Sequence[Case]) -> list[str]:
    """Return the suites that there are, the others behind them."""
    return [*SUITES, *dict.fromkeys(case.suite for case in cases if case.suite not in SUITES)]


def to_markdown(record: Record) -> str:
    """Return a run as Markdown."""
    about = ", ".join(f"{key} {value}" for key, value in record.about.items())
    blocks = [about]
    if record.cases:
        blocks += [
            "Ratio = peer's time / tilekit's: above 1, tilekit is faster. Sustained, median over rounds (smallest to "
            "largest); then burst.",
            _table(_SUITE_COLUMNS, [_suite_row(summary) for summary in summaries(record.cases)]),
            *_class_tables(record.cases),
            *_failures(record.cases),
            _case_table(record.cases),
        ]
    if record.host is not None:
        blocks.append(host_markdown(record.host))
    if record.notes:
        blocks.append("\n".join(f"- {note}" for note in record.notes))
    return "\n\n".join(block.rstrip() for block in blocks if block) + "\n"


def host_markdown(times: HostTimes) -> str:
    """Return the host times as a table."""
    rows = [[name, f"{us:.2f}"] for name, us in times.us.items()]
    title = f"Host time a call, {times.shape} (the GPU is idle most of the time):"
    return f"{title}\n\n{_table(['call', '>us'], rows)}"


def _measured(case: Case, peer: str) -> Iterator[Result]:
    """Yield a peer's result in a case, or that of the quickest peer, if it has a ratio."""
    named = [result for result in case.results[1:] if peer == result.name or (peer == _BEST and not result.part)]
    results = [result for result in named if result.ratio is not None]
    if results:
        yield min(results, key=lambda result: result.ratio or math.inf)


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def _class_tables(cases: Sequence[Case]) -> list[str]:
    """Return a table for each suite that has more than one class, and for the random one."""
    suites = {suite: [case for case in cases if case.suite == suite] for suite in _in_order(cases)}
    tables = {suite: _class_table(own, suite) for suite, own in suites.items()}
    return [
        f"{suite or 'shapes'}, by class:\n\n{table}"
        for suite, (count, table) in tables.items()
        if count > 1 or (count and suite in DRAWN)
    ]


def _class_table(cases: Sequence[Case], suite: str) -> tuple[int, str]:
    """Return how many classes cases are of, and a table of them beside the first peer, worst first, and of all."""
    classes: dict[tuple[str, ...], list[tuple[float, str]]] = {}
    for case in cases:
        if len(case.results) > 1 and case.results[1].ratio is not None:
            found = classes.setdefault(class_of(case.label, case.kind), [])
            found.append((case.results[1].ratio, case.label))
    if not classes:
        return 0, ""
    ordered = sorted(classes.items(), key=lambda entry: _geometric_mean([ratio for ratio, _ in entry[1]]))
    own = DRAWN.get(suite) or SUITES.get(suite)
    aims = "" if own is None else f"aim: {', '.join(f'{aim:.2f}' for aim in own.aims)}"
    ordered.append((("all", "", aims), [pair for pairs in classes.values() for pair in pairs]))
    rows = []
    for name, pairs in ordered:
        pairs.sort()
        worst, label = pairs[0]
        mean = _geometric_mean([ratio for ratio, _ in pairs])
        tenth = pairs[len(pairs) // 10][0]
        rows.append([*name, str(len(pairs)), f"**{mean:.3f}**", f"{tenth:.3f}", f"{worst:.3f}", label])
    columns = ["M", "layout", "type", ">cases", ">geomean", ">tenth percentile", ">worst", "worst case"]
    return len(classes), _table(columns, rows)


def _failures(cases: Sequence[Case]) -> list[str]:
    count = sum(case.results[0].failure is not None for case in cases)
    return [f"**{OURS} failed in {count} case(s)**, which are in no mean."] if count else []


_SUITE_COLUMNS = [
    "suite", "peer", ">cases", ">geomean", ">aim", ">worst", ">aim", "worst case", ">burst geomean",
]  # fmt: skip


def _suite_row(summary: Summary) -> list[str]:
    aims = SUITES.get(summary.suite)
    return [
        summary.suite or "shapes",
        summary.peer,
        str(summary.cases),
        f"**{summary.geomean:.3f}**",
        "" if aims is None else f"{aims.geomean:.2f}",
        f"{summary.worst:.3f}",
        "" if aims is None else f"{aims.worst:.2f}",
        summary.worst_case,
        _number(summary.burst_geomean, 3),
    ]


def _case_table(cases: Sequence[Case]) -> str:
    peers = list(dict.fromkeys(result.name for case in cases for result in case.results[1:]))
    named = any(case.suite for case in cases)
    columns = ["case", *(["suite"] if named else []), "kind", f">{OURS} us", ">TFLOP/s", ">GB/s"]
    for peer in peers:
        columns += [f">{peer} us", ">ratio", ">burst"]
    columns += [">SM MHz", ">W"]
    rows = []
    for case in cases:
        ours = case.results[0]
        cells = [case.label, *([case.suite] if named else []), case.kind]
        if ours.failure is not None:
            cells += [f"**{ours.failure}**", "", ""]
        else:
            bandwidth = None if ours.us is None else case.bytes / ours.us / 1e3
            cells += [_number(ours.us, 2), _number(ours.tflops, 0), _number(bandwidth, 0)]
        results = {result.name: result for result in case.results}
        for peer in peers:
            cells += _peer_cells(results.get(peer))
        shown = [ours, *(results[peer] for peer in peers[:1] if peer in results)]
        cells += [_list(result.sm_mhz for result in shown), _list(result.watts for result in shown)]
        rows.append(cells)
    return _table(columns, rows)


def _peer_cells(result: Result | None) -> list[str]:
    if result is None:
        return ["", "", ""]
    if result.failure is not None:
        return [result.failure, "", ""]
    ratio = _number(result.ratio, 3)
    if result.spread is not None:
        low, high = result.spread
        ratio = f"**{ratio}** ({low:.3f}-{high:.3f})"
    return [_number(result.us, 2), ratio, _number(result.burst_ratio, 3)]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; a ``>`` before a column's name aligns it to the right."""
    lines = [
        [column.removeprefix(">") for column in columns],
        ["--:" if column.startswith(">") else "---" for column in columns],
        *([cell.replace("|", "\\|") for cell in row] for row in rows),
    ]
    head, rule, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, rule.replace(" ", ""), *body]) + "\n"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _list(values: Iterable[float | None]) -> str:
    return ", ".join(_number(value, 0) for value in values if value is not None)
