"""What a newcomer meets on the command line: estimates before memory, the CLI's own words, the cache, the ranking."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tilekit
from tilekit.bench.workload import MatmulWorkload
from tilekit.runtime.cache import DiskCache, Entry, entry_key


@pytest.mark.parametrize(
    ("shape", "code"), [((100000, 100000, 1000), "TK-EMU-001"), ((10_000_000, 10_000_000, 1), "TK-CLI-010")]
)
def test_a_run_is_estimated_before_anything_is_allocated(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], code: str
) -> None:
    """What takes the emulator too long, or more memory than there is, is refused from its extents: no array is made."""

    def allocate(*_: Any) -> Any:
        raise AssertionError("operands were made")

    monkeypatch.setattr(MatmulWorkload, "operands", allocate)
    m, n, k = shape
    result = invoke("run", "matmul", "--device", "emulator", "--m", m, "--n", n, "--k", k)
    assert result.exit_code == 2, result.output
    assert code in result.output or "TK-EMU-001" in result.output


def test_errors_speak_of_options(invoke: Any) -> None:
    """`--dtype f32` names the option that reads f32 operands, not a keyword of Python."""
    for command in (("run", "matmul"), ("dump", "matmul"), ("trace", "matmul")):
        result = invoke(*command, "--dtype", "f32")
        assert result.exit_code == 2, result.output
        assert "--dtype tf32" in result.output
        assert "precision=" not in result.output


def put(folder: Path, name: str) -> Path:
    """An entry of the cache."""
    cache = DiskCache(folder / "kernels")
    cache.put(entry_key(name), Entry({"kernel": f"matmul_{name}", "target": "sm_90a", "log": ""}, b"payload"))
    return cache.folder / f"{entry_key(name)}.tkc"


def test_the_cache_is_listed_verified_and_cleared(invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`tilekit cache` counts entries; verify removes damaged ones and exits with 1; clear leaves none."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path))
    assert "0 entries" in invoke("cache").output
    whole, damaged = put(tmp_path, "one"), put(tmp_path, "two")
    listed = json.loads(invoke("cache", "list", "--json").output)
    assert (listed["folder"], listed["entries"]) == (str(tmp_path / "kernels"), 2)
    assert {entry["key"] for entry in listed["files"]} == {whole.stem, damaged.stem}
    assert {(entry["kernel"], entry["target"]) for entry in listed["files"]} == {
        ("matmul_one", "sm_90a"), ("matmul_two", "sm_90a")
    }  # fmt: skip
    assert re.search(rf" s  {whole.stem[:12]}  sm_90a  matmul_one\n", invoke("cache", "list").output)
    (tmp_path / "kernels" / "foreign.tkc").write_bytes(b"TKCACHE1 and nothing that is a header")
    assert re.search(r"foreign  \?  \?\n", invoke("cache", "list").output)
    assert "damaged, removed: foreign" in invoke("cache", "verify").output
    assert invoke("cache", "verify").exit_code == 0
    damaged.write_bytes(damaged.read_bytes()[:-1])
    result = invoke("cache", "verify")
    assert result.exit_code == 1
    assert damaged.stem in result.output
    assert whole.exists()
    assert not damaged.exists()
    assert json.loads(invoke("cache", "clear", "--json").output) == {"removed": 1}
    assert not whole.exists()
    result = invoke("cache", "clean")
    assert result.exit_code == 2
    assert "clear" in result.output
    assert "TK-CLI-005" in result.output


def test_the_cache_says_which_config_a_kernel_has(invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels of one name are told apart; an entry that says nothing of a config is listed without one."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path))
    configs = [tilekit.MatmulConfig((rows, 64), (1, 1), consumers=rows // 64) for rows in (64, 128)]
    kernels = [tilekit.compile(tilekit.MatmulSpec(), "sm_90a", config) for config in configs]
    assert all(kernel.resources.registers for kernel in kernels)
    put(tmp_path, "old")
    listed = json.loads(invoke("cache", "--json").output)["files"]
    named = {(entry["kernel"], entry["config"]) for entry in listed}
    assert named == {("matmul_old", None), *((kernel.name, str(kernel.config)) for kernel in kernels)}
    lines = invoke("cache").output.splitlines()
    assert len(lines) == len(listed) + len(kernels) + 1
    for kernel in kernels:
        (line,) = [index for index, line in enumerate(lines) if line.strip() == str(kernel.config)]
        assert lines[line - 1].endswith(kernel.name)
    assert sum(line.endswith("matmul_old") for line in lines) == 1


@pytest.mark.parametrize(("command", "units"), [("matmul", "clocks"), ("gemv", "microseconds")])
def test_a_ranking_has_a_legend_a_top_and_json(invoke: Any, command: str, units: str) -> None:
    """Units and columns are explained; --top cuts each table; JSON holds numbers by name, in the order of the table."""
    text = invoke("dump", command, "--what", "ranking").output
    assert units in text
    short = invoke("dump", command, "--what", "ranking", "--top", 3).output
    assert len(short.splitlines()) < len(text.splitlines())
    whole = json.loads(invoke("dump", command, "--what", "ranking", "--json").output)["ranking"]
    few = json.loads(invoke("dump", command, "--what", "ranking", "--json", "--top", 3).output)["ranking"]
    assert few["configs"] == whole["configs"][:3]
    assert set(few["units"]) <= set(few["configs"][0])
    assert all(isinstance(few["configs"][0][name], int | float) for name in few["units"])
    result = invoke("dump", command, "--what", "ranking", "--top", 0)
    assert result.exit_code == 2
