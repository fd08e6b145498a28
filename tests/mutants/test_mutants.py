"""The tool that plants mistakes in the framework's Python: what it plants, what it runs, what it knows."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from .__main__ import table
from .known import KNOWN, Known
from .mutators import mutants, sample
from .reach import ROOT, Recorded, Recorder
from .trial import Copy, Verdict, affordable, spread

SOURCE = '''
"""The module's 1 docstring."""
from functools import lru_cache

LIMIT: int = 8


class Ring:
    """A ring of 2 stages."""

    stages: tuple[int, int] = (4, 5)

    def __repr__(self) -> str:
        return f"{self.stages[0] + 1}"


@lru_cache(maxsize=64)
def turn(stage: int, *, count: int = 3) -> int:
    """Add 1."""
    if stage < 0 or not count:
        raise ValueError(f"stage={stage + 1}", 99)
    log(stage, count, end="")
    low, high = min(stage, 7), [s for s in (stage, count) if s][1:-1]
    return (low + 1) % count
'''


def of(source: str) -> list[str]:
    """What can be planted, as before and after."""
    return [f"{m.kind}: {m.before} -> {m.after}" for m in mutants("x.py", source)]


def test_every_kind_is_planted() -> None:
    """One function holds a place for each kind of mistake."""
    found = of(SOURCE)
    for expected in (
        "constant: 8 -> 9", "constant: 8 -> 7", "constant: 3 -> 4", "constant: 4 -> 3",
        "comparison: stage < 0 -> (stage <= 0)",
        "condition negated: stage < 0 or not count -> not (stage < 0 or not count)",
        "condition dropped: stage < 0 or not count -> False", "condition dropped: s -> True",
        "and, or: stage < 0 or not count -> (stage < 0 and (not count))",
        "condition dropped: stage < 0 or not count -> not count", "sign or not dropped: not count -> count",
        'statement deleted: raise ValueError(f"stage={stage + 1}", 99) -> pass',
        'statement deleted: log(stage, count, end="") -> pass',
        'arguments swapped: log(stage, count, end="") -> log(count, stage, end=\'\')',
        'argument dropped: log(stage, count, end="") -> log(stage, count)',
        'argument dropped: log(stage, count, end="") -> log(stage, end=\'\')',
        "min, max, any, all: min(stage, 7) -> max(stage, 7)", "slice: 1:-1 -> 1 + 1:-1", "slice: 1:-1 -> 1:-1 + 1",
        "arithmetic: low + 1 -> (low - 1)", "arithmetic: (low + 1) % count -> ((low + 1) // count)",
        "result changed: (low + 1) % count -> ((low + 1) % count) + 1",
    ):  # fmt: skip
        assert expected in found


def test_what_people_read_is_left_alone() -> None:
    """Docstrings, annotations, messages, decorators and representations hold nothing that is changed."""
    found = of(SOURCE)
    for before in ("1 docstring", "-> 100", "stage + 1", "64", "stages[0]", "int]", "Add"):
        assert not [entry for entry in found if before in entry and not entry.startswith("statement deleted")], before


@pytest.mark.parametrize("file", ["tilekit/tensor/layout.py", "tilekit/emulator/ptx/compiler/uniformity.py"])
def test_each_mistake_is_one_change_that_compiles(file: str) -> None:
    """Planted in real files, each gives another program, which can be compiled, and leaves the lines around it."""
    text = (ROOT / file).read_text("utf-8")
    known = ast.dump(ast.parse(text))
    found = mutants(file, text)
    assert len(found) > 100
    for mutant in found[::8]:
        planted = mutant.planted(text)
        compile(planted, file, "exec")
        assert ast.dump(ast.parse(planted)) != known, str(mutant)
        assert planted.startswith("".join(text.splitlines(keepends=True)[: mutant.first - 1]))
        assert planted.endswith("".join(text.splitlines(keepends=True)[mutant.last :]))


def test_a_seed_draws_the_same_mistakes() -> None:
    """The draw follows the seed, holds no mistake twice, and gives longer files and rare kinds their share."""
    texts = {"long.py": SOURCE * 9, "short.py": SOURCE, "empty.py": ""}
    drawn = sample(texts, 100, 1)
    assert drawn == sample(texts, 100, 1) != sample(texts, 100, 2)
    assert len(set(drawn)) == 100
    files = Counter(mutant.file for mutant in drawn)
    assert files["long.py"] > 2 * files["short.py"] > 0
    assert len({mutant.kind for mutant in drawn}) > 8


def test_cheap_and_various_tests_come_first() -> None:
    """Each function's cheapest case comes before any second one; what a budget leaves out is what costs most."""
    tests = [
        Recorded(name, seconds, {})
        for name, seconds in (("a[1]", 1), ("a[2]", 0.1), ("b", 3), ("c[1]", 0.5), ("c[2]", 9))
    ]
    order = spread(tests)
    assert [test.node for test in order] == ["a[2]", "c[1]", "b", "a[1]", "c[2]"]
    assert [test.node for test in affordable(order, seconds=5, most=9)] == ["a[2]", "c[1]", "a[1]"]
    assert [test.node for test in affordable(order, seconds=99, most=2)] == ["a[2]", "c[1]"]


def test_the_table_counts_what_matters() -> None:
    """Judged mistakes are not counted against the tests; the others that went unnoticed are listed."""
    first, second = mutants("tilekit/emulator/ops/x.py", "A = 1\n")
    text = table([(first, Verdict(True, "test_x", 3, 1.0)), (second, Verdict(False, "", 3, 1.0))])
    assert "| emulator/ops | 2 | 1 | 1 |  |  |  | 50 % |" in text
    assert str(second) in text
    assert str(first) not in text


def test_what_is_known_is_still_there() -> None:
    """Each judgement is of a mistake that can be planted today."""
    for known in KNOWN:
        found = mutants(known.file, (ROOT / known.file).read_text("utf-8"))
        assert any(known.covers(mutant) for mutant in found), known


def test_a_judgement_is_of_one_place() -> None:
    """File, function, and both texts must match."""
    mutant, other = mutants("x.py", "def f(a):\n    return a + 1\n")[:2]
    known = Known("x.py", "f", r"a \+ 1", r"\(a - 1\)", "equivalent", "")
    assert known.covers(mutant)
    assert not known.covers(other)
    assert not known.covers(replace(mutant, where="g"))
    assert not known.covers(replace(mutant, file="y.py"))


def test_a_trial_catches_a_mistake_and_puts_it_back(tmp_path: Path) -> None:
    """In a copy of the tree a test fails with the mistake and passes without; the tree itself stays as it is."""
    copy = Copy(tmp_path)
    file = "tilekit/tensor/swizzle.py"
    text = (ROOT / file).read_text("utf-8")
    mutant = next(mutant for mutant in mutants(file, text) if mutant.kind == "arithmetic")
    tests = [Recorded("tests/tensor/test_swizzle.py", 5.0, {})]
    with copy.broken(mutant):
        assert (tmp_path / file).read_text("utf-8") == mutant.planted(text)
        verdict = copy.run(tests)
    assert verdict.caught
    assert "test_swizzle.py" in verdict.by
    assert (tmp_path / file).read_text("utf-8") == (ROOT / file).read_text("utf-8") == text
    assert copy.run(tests[:1]) == Verdict(False, "", 1, pytest.approx(5, abs=5))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_lines_are_recorded_once_a_test() -> None:
    """A line counts for each test that runs it, however often; what runs outside of tests for none."""
    from tilekit.tensor.layout import Layout

    recorder = Recorder()
    file = str(Path(Layout.row_major.__code__.co_filename).relative_to(ROOT))
    for name in ("one", "two"):
        with recorder.recorded(name):
            for _ in range(3):
                Layout.row_major(3, 4)
    with recorder.recorded("nothing"):
        pass
    Layout.row_major(3, 4)
    one, two, nothing = (test["lines"] for test in recorder.tests)
    number = Layout.row_major.__code__.co_firstlineno
    assert one == two
    assert int(one[file], 16) >> number
    assert not nothing
