"""Warnings of our tests are errors, and a plugin's own as it starts are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PLUGIN = """
import warnings

def pytest_configure(config):
    warnings.warn("a plugin's own, as pytest-benchmark's beside pytest-xdist")

def pytest_unconfigure(config):
    warnings.warn("and at the end")
"""

TESTS = """
import warnings
import pytest

def test_that_warns():
    warnings.warn("one")

@pytest.mark.filterwarnings("ignore")
def test_that_may():
    warnings.warn("one")

def test_that_uses_what_goes():
    warnings.warn("one", DeprecationWarning)

def test_that_is_quiet():
    pass
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_whose_warnings_are_errors(tmp_path: Path, workers: int) -> None:
    """A plugin warns and nothing happens; a test that warns fails; one that may does not; a module is not imported."""
    for name in ("conftest.py", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / ("tests" if name == "conftest.py" else ".") / name).read_text())
    (tmp_path / "noisy.py").write_text(PLUGIN)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_import.py").write_text("import warnings\nwarnings.warn('as it is imported')\ndef test(): pass\n")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "noisy", "-n", str(workers), "-q", "test_some.py"],
        cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert "INTERNALERROR" not in ended.stdout + ended.stderr
    assert "2 failed, 2 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "FAILED test_some.py::test_that_warns - UserWarning: one" in ended.stdout
    assert "FAILED test_some.py::test_that_uses_what_goes - DeprecationWarning: one" in ended.stdout
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "noisy", "-n", str(workers), "-q", "test_import.py"],
        cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert "UserWarning: as it is imported" in ended.stdout
    assert ended.returncode == 2 if workers == 0 else ended.returncode
