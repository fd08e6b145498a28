"""Running tests on a copy of the tree with a mistake planted in it."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from .mutators import Mutant
from .reach import ROOT, Reach, Recorded

_START_SECONDS = 30.0
"""Processor time that pytest and the imports may take, with room for what a mistake makes slower."""

_WAIT = 8
"""A trial may take so many times its processor time: others use the machine too."""

_MEMORY = 16 << 30

_TREE = (
    *("tilekit", "ptx", "gcn", "tests", "benchmarks", "docs", "examples", ".ci"),
    *("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
)
"""What tests read."""


@dataclass(frozen=True)
class Verdict:
    """What came of one mistake.

    Attributes
    ----------
    caught
        Whether a test failed, or none came to an end in time.
    by
        The test that failed and the last line of its error, or "".
    tests
        How many tests were to run.
    seconds
        Processor time that they took.
    """

    caught: bool
    by: str
    tests: int
    seconds: float


class Copy:
    """A copy of the working tree in which files may be broken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _TREE:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / name, folder / name)

    @contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        """Plant the mistake, and put back what was there."""
        file = self._folder / mutant.file
        text = file.read_text("utf-8")
        self._forget(file)
        file.write_text(mutant.planted(text), "utf-8")
        yield
        file.write_text(text, "utf-8")
        self._forget(file)

    @staticmethod
    def _forget(file: Path) -> None:
        """Drop the compiled module: two versions within a second, of one length, would look the same."""
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()

    def run(self, tests: list[Recorded]) -> Verdict:
        """Run tests in the order given, until one fails."""
        seconds = _START_SECONDS + 4 * sum(test.seconds for test in tests)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line"]
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"PYTHONPATH": str(self._folder), "TILEKIT_CACHE_DIR": cache}
            before = _children_seconds()
            process = subprocess.Popen(
                [*command, *(test.node for test in tests)], cwd=self._folder, env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=lambda: _limit(int(seconds)),
            )  # fmt: skip
            try:
                output, _ = process.communicate(timeout=_WAIT * seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                output = ""
            used = _children_seconds() - before
        by = (
            "" if process.returncode == 0 else _culprit(output) if process.returncode > 0 else "out of time, or a crash"
        )
        return Verdict(process.returncode != 0, by, len(tests), used)


def _limit(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _culprit(output: str) -> str:
    """The failed test, or what stopped pytest, from its output."""
    failed = re.search(r"^(?:FAILED|ERROR) (.*)$", output, re.MULTILINE)
    return failed[1] if failed else (output.strip().splitlines() or ["no output"])[-1]


def reaching(mutant: Mutant, reach: Reach) -> list[Recorded]:
    """The tests to run, the most telling first: those that run the line, then those of its file that others hide.

    A line that only runs when its module is imported is reached by nearly every test: those that run the largest part
    of that module come first.
    """
    direct = reach.of(mutant.file, mutant.first, mutant.last)
    if direct:
        files = {test.file for test in direct}
        return list(dict.fromkeys([*spread(direct), *spread(t for t in reach.tests.values() if t.file in files)]))
    return sorted(spread(reach.importing(mutant.file)), key=lambda test: -test.lines.get(mutant.file, 0).bit_count())


def spread(tests: Iterable[Recorded]) -> list[Recorded]:
    """Tests in an order in which cheap ones come first, and each test function once before any comes a second time."""
    functions: dict[str, list[Recorded]] = defaultdict(list)
    for test in tests:
        functions[test.function].append(test)
    columns = [sorted(group, key=lambda test: test.seconds) for group in functions.values()]
    columns.sort(key=lambda group: group[0].seconds)
    return [test for test in chain.from_iterable(zip_longest(*columns)) if test is not None]


def affordable(tests: list[Recorded], *, seconds: float, most: int) -> list[Recorded]:
    """As many of them, in their order, as take so long; those that alone would take more than half of it are left."""
    chosen, left = [], seconds
    for test in tests:
        if test.seconds <= min(left, seconds / 2) and len(chosen) < most:
            chosen.append(test)
            left -= test.seconds
    return chosen
