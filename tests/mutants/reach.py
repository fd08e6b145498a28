"""Which lines of the framework each test runs.

Every test file runs in a process of its own, so that a cache which one file filled hides nothing from another; within
a file it may, which is why a trial also runs tests of the same file that did not come by.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = "tilekit/"
STORE = ROOT / ".mutants" / "reach"
"""One JSON file for each test file."""

SELECTED = "not gpu and not golden"
"""The tests that count: a text that is kept in a file notices every change, meant or not."""


CASES = 12
"""How many cases of one test function are recorded, spread over all it has: the others run much the same lines."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """One test: its id, its processor time, and the lines it runs, as a bit mask for each source file."""

    node: str
    seconds: float
    lines: dict[str, int]

    @property
    def file(self) -> str:
        """The file it is in."""
        return self.node.partition("::")[0]

    @property
    def function(self) -> str:
        """The test without its parameters."""
        return self.node.partition("[")[0]


class Recorder:
    """A pytest plugin that records the lines of `SOURCES` that run while each test does."""

    def __init__(self) -> None:
        self.tests: list[dict[str, Any]] = []
        self._lines: dict[str, int] = {}
        self._prefix = f"{ROOT}/{SOURCES}"
        self._tool = sys.monitoring.PROFILER_ID
        sys.monitoring.use_tool_id(self._tool, "tilekit mutants")
        sys.monitoring.register_callback(self._tool, sys.monitoring.events.LINE, self._line)

    def _line(self, code: CodeType, number: int) -> object:
        if code.co_filename.startswith(self._prefix):
            file = code.co_filename
            self._lines[file] = self._lines.get(file, 0) | 1 << number
        return sys.monitoring.DISABLE  # until `restart_events`: a line counts once a test

    @contextmanager
    def recorded(self, node: str) -> Iterator[None]:
        """Record what runs under a name."""
        self._lines = {}
        sys.monitoring.restart_events()
        sys.monitoring.set_events(self._tool, sys.monitoring.events.LINE)
        began = time.process_time()
        yield
        seconds = time.process_time() - began
        sys.monitoring.set_events(self._tool, 0)
        lines = {file.removeprefix(f"{ROOT}/"): hex(mask) for file, mask in self._lines.items()}
        self.tests.append({"node": node, "seconds": round(seconds, 3), "lines": lines})

    @pytest.hookimpl(hookwrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """What runs while modules are imported counts for the file as a whole."""
        with self.recorded(""):
            yield

    @pytest.hookimpl(trylast=True)  # after those that are not to run are gone
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave `CASES` of each test function."""
        functions: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            functions[item.nodeid.partition("[")[0]].append(item)
        items[:] = [item for group in functions.values() for item in group[:: -(-len(group) // CASES)]]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """What runs between a test's set-up and its end."""
        with self.recorded(item.nodeid):
            yield


def record(files: Iterable[Path]) -> None:
    """Run test files one after the other, each in a forked process, and store what they reach."""
    STORE.mkdir(parents=True, exist_ok=True)
    for file in files:
        began = time.monotonic()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            os._exit(_record_one(file))
        _, status = os.waitpid(child, 0)
        state = "" if status == 0 else f"  exit status {os.waitstatus_to_exitcode(status)}"
        print(f"{time.monotonic() - began:6.1f} s  {file.relative_to(ROOT)}{state}", flush=True)


def _record_one(file: Path) -> int:
    recorder = Recorder()
    status = pytest.main(["-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-m", SELECTED, str(file)], [recorder])
    hashes = {source: fingerprint(source) for test in recorder.tests for source in test["lines"]}
    kept = {"file": str(file.relative_to(ROOT)), "sources": hashes, "tests": _shared(recorder.tests)}
    _stored(file).write_text(json.dumps(kept), "utf-8")
    return 0 if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else int(status)


def _shared(tests: list[dict[str, Any]]) -> dict[str, Any]:
    """Tests with their masks as indices into one list: many run the same lines."""
    masks: dict[tuple[str, str], int] = {}
    rows = []
    for test in tests:
        indices = [masks.setdefault(pair, len(masks)) for pair in test["lines"].items()]
        rows.append([test["node"], test["seconds"], indices])
    return {"masks": list(masks), "rows": rows}


def _stored(file: Path) -> Path:
    return STORE / (str(file.relative_to(ROOT)).replace("/", ".") + ".json")


def fingerprint(source: str) -> str:
    """What a source file held."""
    return hashlib.sha256((ROOT / source).read_bytes()).hexdigest()[:16]


class Reach:
    """The stored maps, by source line."""

    def __init__(self) -> None:
        self.tests: dict[str, Recorded] = {}
        self.imported: dict[str, dict[str, int]] = {}
        self.sources: dict[str, set[str]] = defaultdict(set)
        for stored in sorted(STORE.glob("*.json")):
            kept = json.loads(stored.read_text("utf-8"))
            masks = [(source, int(mask, 16)) for source, mask in kept["tests"]["masks"]]
            for source, found in kept["sources"].items():
                self.sources[source].add(found)
            for node, seconds, indices in kept["tests"]["rows"]:
                lines = dict(masks[index] for index in indices)
                if node:
                    self.tests[node] = Recorded(node, seconds, lines)
                else:
                    self.imported[kept["file"]] = lines

    def stale(self, source: str) -> bool:
        """Whether a file changed since some test was recorded."""
        return not self.sources[source] <= {fingerprint(source)}

    def of(self, source: str, first: int, last: int) -> list[Recorded]:
        """The tests that run one of these lines."""
        mask = (1 << (last + 1)) - (1 << first)
        return [test for test in self.tests.values() if test.lines.get(source, 0) & mask]

    def importing(self, source: str) -> list[Recorded]:
        """The tests that run anything of a file, or are of a test file that imports it."""
        files = {file for file, lines in self.imported.items() if source in lines}
        return [t for t in self.tests.values() if source in t.lines or t.file in files]
