"""Reading what ``ptxas -v`` prints: resources, diagnostics, and the lines that mean a kernel would run slowly."""

from __future__ import annotations

import re

from tilekit.runtime.diagnostics import Diagnostic
from tilekit.runtime.resources import PtxResources

__all__ = ["diagnostics", "performance_losses", "read_resources"]

_LINE = re.compile(
    r"^ptxas (?:(?P<file>.+), line (?P<line>\d+); )?(?P<severity>info|warning|error|fatal)\s*: (?P<message>.*)$"
)
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '[^']+'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_CODE = re.compile(r"\((C\d+)\)")

# ptxas prints these as "info" and still exits with 0: setmaxnreg dropped, or the wgmma pipeline serialised.
_LOSSES = {"C7504", "C7505", "C7506", "C7507", "C7508", *(f"C{number}" for number in range(7510, 7519))}
_REMEDIES = {
    "C7508": "write .maxntid and .minnctapersm 1 (or .maxnreg), which fix the register count at entry",
    "C7511": "use a smaller accumulator tile or fewer live registers",
    "C7512": "use a smaller accumulator tile or fewer live registers",
    "C7514": "read accumulators only after the wgmma wait that retires them",
    "C7515": "write accumulators only before the first wgmma of a group or after its wait",
    "C7517": "wait for every wgmma group before its registers are used",
    "C7518": "put the wgmma wait where all four warps of the warpgroup pass together",
}


def diagnostics(log: str) -> list[Diagnostic]:
    """Return every message of a ptxas log, in order."""
    found = []
    for text in log.splitlines():
        match = _LINE.match(text)
        if match:
            line = int(match["line"]) if match["line"] else None
            found.append(Diagnostic(match["severity"], line, match["message"]))
    return found


def read_resources(log: str) -> dict[str, PtxResources]:
    """Return the resources of each entry that a ``ptxas -v`` log reports."""
    found: dict[str, PtxResources] = {}
    entry, frame = None, (0, 0, 0)
    for text in log.splitlines():
        if match := _ENTRY.search(text):
            entry, frame = match[1], (0, 0, 0)
        elif match := _FRAME.search(text):
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif entry is not None and (used := _count(r"Used (\d+) registers", text)):
            stack, stores, loads = frame
            found[entry] = PtxResources(
                used,
                stack_bytes=stack,
                spill_store_bytes=stores,
                spill_load_bytes=loads,
                static_shared_bytes=_count(r"(\d+) bytes smem", text),
                barriers=_count(r"used (\d+) barriers", text),
                constant_bytes=sum(int(size) for size in re.findall(r"(\d+) bytes cmem\[\d+\]", text)),
            )
            entry = None
    return found


def performance_losses(log: str) -> list[Diagnostic]:
    """Return the messages by which ptxas says that it gave up setmaxnreg or asynchronous wgmma, each with a remedy."""
    found = []
    for diagnostic in diagnostics(log):
        code = _CODE.search(diagnostic.message)
        if "Potential Performance Loss" in diagnostic.message or (code and code[1] in _LOSSES):
            remedy = _REMEDIES.get(code[1]) if code else None
            message = f"{diagnostic.message} ({remedy})" if remedy else diagnostic.message
            found.append(Diagnostic(diagnostic.severity, diagnostic.line, message))
    return found


def _count(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0
