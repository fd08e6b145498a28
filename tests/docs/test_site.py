"""The site: pictures are current, the notebook runs, the reference has every public name, it builds strictly."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pages import ROOT

import tilekit
from tilekit import compose, emulator, tensor

DOCS = ROOT / "docs"
PICTURES = runpy.run_path(str(DOCS / "pictures.py"))
NOTEBOOK = json.loads((DOCS / "first-steps.ipynb").read_text("utf-8"))


@pytest.mark.parametrize("name", PICTURES["PICTURES"])
def test_pictures_are_current(name: str) -> None:
    """`python docs/pictures.py` would change nothing; each is a small SVG document that names what it shows."""
    drawn = PICTURES["PICTURES"][name]()
    assert drawn == (DOCS / "pictures" / f"{name}.svg").read_text("utf-8")
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg")
    assert root[0].text
    assert len(drawn) < 40_000
    assert any(f"pictures/{name}.svg" in page.read_text("utf-8") for page in DOCS.glob("*.md"))


def test_no_picture_lies_about() -> None:
    """Every file of the folder is drawn by the command."""
    assert {path.stem for path in (DOCS / "pictures").glob("*")} == set(PICTURES["PICTURES"])


def test_measurements_are_read_whole() -> None:
    """The chart has every case of the three seeds, and its geometric means are those of the page."""
    text = PICTURES["RESULTS"].read_text("utf-8")
    stated = [int(count) for count in re.findall(r"^\| random \| cuBLAS \(torch\) \| (\d+) ", text, re.MULTILINE)]
    assert len(stated) == 3
    assert len(PICTURES["rows"]()) == sum(stated)


def shown(value: Any) -> str | None:
    """What a notebook would display of a cell's last expression."""
    draw = getattr(value, "_repr_html_", None)
    return None if value is None else draw() if draw is not None else repr(value)


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cells run from top to bottom without a GPU, and kernels, layouts and reports are pictures."""
    monkeypatch.chdir(DOCS)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    pictures = 0
    for number, cell in enumerate(NOTEBOOK["cells"]):
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"], "outputs are not kept"
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        if isinstance(last, ast.Expr):
            found = shown(eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace))
            pictures += found is not None and found.startswith(("<img", "<div"))
    assert pictures >= 6
    printed = capsys.readouterr().out
    assert "missing edge" in printed
    assert "shared memory" in printed


def test_the_reference_has_every_public_name() -> None:
    """Each name of the public packages is on a page of the reference, once, and names nothing that does not exist."""
    pages = "\n".join(page.read_text("utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    names = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    assert len(names) == len(set(names))
    shown_names = {name.rpartition(".")[2] for name in names}
    left_out = {"settings"}  # an object; its class is there
    for package in (tilekit, emulator, tensor):
        assert set(package.__all__) - left_out <= shown_names, package
    types = {name for name in compose.__all__ if isinstance(getattr(compose, name), compose.DType)}
    assert set(compose.__all__) - types <= shown_names


def test_the_navigation_leads_to_pages() -> None:
    """What the navigation names exists or is made of a page at the root; only pages that may come later are missing."""
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    named = set(re.findall(r": ([\w/-]+\.md)$", site, re.MULTILINE))
    missing = {name for name in named if not (DOCS / name).exists()}
    assert missing <= {"index.md", "contributing.md", "changelog.md", "epilogues.md"}
    assert len(named) > 30


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    """No broken link, no unknown name, no bad docstring section: every warning is an error."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    home = (tmp_path / "index.html").read_text("utf-8")
    assert "A whole kernel" in home
    assert (tmp_path / "source" / "examples" / "compose_matmul.py").exists()
    assert 'id="tilekit.compose.Writer"' in (tmp_path / "reference" / "compose" / "index.html").read_text("utf-8")
