"""The documentation says what is so: every snippet runs and prints what the page shows, every link leads somewhere."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT, Block, blocks, require_same
from typer.testing import CliRunner

from tilekit.assembly.fragment import KINDS
from tilekit.assembly.instruction_sets import DIALECTS
from tilekit.assembly.types import REGISTER_TYPES
from tilekit.bench import machine
from tilekit.cli.app import app
from tilekit.kernels.registry import families
from tilekit.runtime import driver
from tilekit.targets import TARGETS

WITH_CODE = [page for page in PAGES if blocks(page, "python")]


def _needs_gpu(block: Block) -> bool:
    return re.search(r"^import (torch|cupy)$", block.text, re.MULTILINE) is not None


def _quotes_a_file(block: Block) -> bool:
    """Whether a block shows a part of the examples or of the sources; other tests compare it with the file."""
    return block.text.startswith(("@tk.kernel", "# tilekit/", "# examples/"))


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch):
    """Each page's Python, run from top to bottom in one namespace, prints what the page shows."""
    monkeypatch.chdir(ROOT)
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python"):
        if ">>>" in block.text:
            example = doctest.DocTestParser().get_doctest(block.text, namespace, str(block), str(page), block.line)
            output = io.StringIO()
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=output.write, clear_globs=False)
            namespace.update(example.globs)
            assert not output.getvalue(), output.getvalue()
            continue
        if _quotes_a_file(block) or _needs_gpu(block):
            continue
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.output is not None:
            require_same(block.output, printed.getvalue(), block)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_readme_blocks_for_gpu_arrays_run(library: str):
    """The README's torch and CuPy snippets run on a GPU."""
    pytest.importorskip(library)
    (block,) = [b for b in blocks(ROOT / "README.md", "python") if f"import {library}\n" in b.text]
    exec(compile(block.text, str(block), "exec"), {})


def test_readme_shows_the_composed_kernel():
    """The kernel in the README is the one in the example, character by character."""
    (block,) = [b for b in blocks(ROOT / "README.md", "python") if b.text.startswith("@tk.kernel")]
    assert block.text in (ROOT / "examples" / "compose_matmul.py").read_text("utf-8")


def test_pages_quote_the_examples():
    """What a page shows of an example is in it, line by line; the page on kernels shows both."""
    quotes = [block for page in PAGES for block in blocks(page, "python") if block.text.startswith("# examples/")]
    for block in quotes:
        name, _, shown = block.text.removeprefix("# ").partition("\n")
        assert shown in (ROOT / name).read_text("utf-8"), block
    assert {block.text.partition("\n")[0] for block in quotes} >= {
        "# examples/gated_row_sums.py",
        "# examples/int8_weights.py",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_is_shown(page: Path, monkeypatch: pytest.MonkeyPatch):
    """Each `$ tilekit ...` of a page prints what the page shows, on a machine without a GPU."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(machine, "find_machine", lambda: None)
    monkeypatch.setattr(driver, "why_unavailable", lambda: "no NVIDIA driver on this machine: none")
    for block in blocks(page, "console"):
        for command, shown in re.findall(r"^\$ tilekit (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            result = CliRunner().invoke(app, command.split())
            assert result.exit_code == 0, result.output
            require_same(shown, result.output, block)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    """Every relative link of a page names a file of the repository."""
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text("utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_readme_lists_families_and_targets():
    """The README's tables have a row for every family and target that exists; its first commands are as promised."""
    text = (ROOT / "README.md").read_text("utf-8")
    for family in families().values():
        assert re.search(rf"^\| `{family.name}` \|.*\|.*`{'`, `'.join(family.targets)}` \|$", text, re.MULTILINE)
    for target in TARGETS:
        assert re.search(rf"^\| `{target}` \|.*kernels built", text, re.MULTILINE)
    assert "pip install . && tilekit run matmul\n" in text
    assert "pip install '.[test]' && pytest -n auto\n" in text


def test_the_readme_begins_with_figures_of_its_table():
    """Each ratio of the first paragraphs is a geometric mean that the table of speeds has, rounded."""
    text = (ROOT / "README.md").read_text("utf-8")
    told = [float(ratio) for ratio in re.findall(r"\b\d\.\d\d\b", text.partition("```")[0])]
    table = text.partition("<!-- speed -->")[2].partition("<!-- /speed -->")[0]
    means = [float(row.split("|")[4]) for row in table.splitlines() if re.match(r"\| .*\| *\d+ \|", row)]
    assert len(means) > 10
    assert told
    assert all(min(abs(ratio - mean) for mean in means) <= 0.0051 for ratio in told)


def test_pages_speak_of_the_project_alone():
    """No page names a path of some machine."""
    for page in PAGES:
        assert not re.search(r"/(work|home|tmp|root|Users)/", page.read_text("utf-8")), page


def test_examples_are_part_of_the_tests():
    """Every example is run by the tests of this folder."""
    tested = (Path(__file__).parent / "test_examples.py").read_text("utf-8")
    for example in (ROOT / "examples").glob("*.py"):
        assert example.name in tested


def test_generated_tables_are_current():
    """`python docs/tables.py` would change nothing: fragments, error codes and the model's constants are there."""
    tables = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    fragments, errors = ((ROOT / "docs" / name).read_text("utf-8") for name in ("fragments.md", "errors.md"))
    for isa, dialect in DIALECTS.items():
        assert tables["with_table"](fragments, f"fragments {isa}", tables["fragments_table"](dialect)) == fragments
    assert tables["with_table"](errors, "errors", tables["errors_table"](errors)) == errors
    model = (ROOT / "docs" / "hopper-model.md").read_text("utf-8")
    assert tables["with_table"](model, "model", tables["model_table"]()) == model
    readme = (ROOT / "README.md").read_text("utf-8")
    assert tables["with_table"](readme, "chips", tables["chips_table"]()) == readme
    protocols = (ROOT / "docs" / "reference" / "protocols.md").read_text("utf-8")
    assert tables["with_table"](protocols, "protocols", tables["protocols_table"]()) == protocols
    assert all(f"\n::: tilekit.compose.{one.__name__}\n" in protocols for one in tables["protocols"]())
    assert model.count("\n| `") > 25


def test_the_blackwell_model_page_is_current():
    """`python docs/blackwell_model.py` would change nothing: its numbers are the picker's model's."""
    written = runpy.run_path(str(ROOT / "docs" / "blackwell_model.py"))
    assert written["page"]() == (ROOT / "docs" / "blackwell-model.md").read_text("utf-8")
    assert all(written["best"](n).n == n for n in (4096, 8192))


def test_the_cycle_models_page_is_current():
    """`python docs/cdna_model.py` would change nothing, and no loop that is said to be reproduced is off by 10%."""
    written = runpy.run_path(str(ROOT / "docs" / "cdna_model.py"))
    assert written["page"]() == (ROOT / "docs" / "cdna-model.md").read_text("utf-8")
    for one in written["REPORTED"]:
        assert one.report.utilisation == pytest.approx(one.percent / 100, rel=0.1), one.what
    for rows, columns, stages, percent in written["TILES"]:
        loop = written["streams"].sliced(rows, columns, stages=stages)
        assert written["replayed"](loop, 4).utilisation == pytest.approx(percent / 100, rel=0.1)


def test_the_page_of_amds_matmul_loops_is_current():
    """`python docs/cdna_matmul_model.py` would change nothing: its numbers are those of the drivers' kernels."""
    written = runpy.run_path(str(ROOT / "docs" / "cdna_matmul_model.py"))
    assert written["page"]() == (ROOT / "docs" / "cdna-matmul-model.md").read_text("utf-8")


def test_the_emulators_rules_name_tests_that_exist():
    """Every test that docs/emulator-blackwell.md names is there, and every rule names one."""
    page = (ROOT / "docs" / "emulator-blackwell.md").read_text("utf-8")
    rows = [row for row in re.findall(r"^\| (.*) \|$", page, re.MULTILINE) if row.count("|") == 2][1:]
    rules = [row for row in rows if not row.startswith(("**", "---"))]
    assert len(rules) > 40
    for rule in rules:
        named = re.findall(r"`([\w/.]+)::(\w+)`", rule.split("|")[2])
        assert named, rule
        for file, test in named:
            folder = ROOT / "tests" / "emulator" / ("ptx/blackwell" if "/" not in file else "")
            assert f"def {test}(" in (folder / file).resolve().read_text("utf-8"), rule


def test_every_error_code_is_explained():
    """No row of the error table lacks its meaning or what to do."""
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| `TK-\w+-\d+` \|(.*)\|(.*)\|(.*)\|$", page, re.MULTILINE)
    assert len(rows) > 50
    assert all(cell.strip() for row in rows for cell in row)


def test_fragments_page_lists_types_and_kinds():
    """The page on fragments names every register type and explains every kind in the words of the code."""
    text = (ROOT / "docs" / "fragments.md").read_text("utf-8")
    for name in REGISTER_TYPES:
        assert f"`{name}`" in text, name
    for kind, meaning in KINDS.items():
        assert f"| `{kind}` | {meaning.partition(':')[0]}" in text, kind
