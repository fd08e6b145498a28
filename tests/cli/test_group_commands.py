"""Products of groups of rows on the command line: run, shown and traced; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SMALL = ("--n", 72, "--k", 64)
BLOCKS = ("grouped_blockwise", "--n", 136, "--k", 144)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_100a", "gfx942"])
@pytest.mark.parametrize("room", [None, 56])
def test_run(invoke: Any, chip: str, room: int | None) -> None:
    """Behind each other and counted, one group without rows, on chips of each kind."""
    lie = () if room is None else ("--room", room)
    command = ("run", "grouped_matmul", *SMALL, "--sizes", "21,0,40", *lie, "--target", chip, "--json")
    found = json.loads(invoke(*command).stdout)
    assert found["right"]
    assert found["shape"] == "G3 61x72x64"
    assert found["name"].endswith("grouped_ends" if room is None else "grouped_counts")


@pytest.mark.parametrize("chip", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("lie", [(), ("--room", 40)])
def test_run_with_scales_of_blocks(invoke: Any, chip: str, lie: tuple[Any, ...]) -> None:
    """The same with scales, which the check knows."""
    found = json.loads(invoke("run", *BLOCKS, "--sizes", "21,0,40", *lie, "--target", chip, "--json").stdout)
    assert found["right"]
    assert found["name"].startswith("blockwise_")


def test_types_and_layouts(invoke: Any) -> None:
    """Those of the operands and of the result, and either layout of the matrices."""
    options = ("--dtype", "f16", "--out-dtype", "f32", "--b-major", "mn")
    assert json.loads(invoke("run", "grouped_matmul", *SMALL, "--sizes", "9", *options, "--json").stdout)["right"]


@pytest.mark.parametrize("kernel", ["grouped_matmul", "grouped_blockwise"])
def test_activations(invoke: Any, kernel: str, tmp_path: Path) -> None:
    """What is done with elements is computed, checked, said, and traced; a word that is none is refused."""
    options = (kernel, "--n", 72, "--k", 64, "--sizes", "9,0,21")
    found = json.loads(invoke("run", *options, "--activation", "gelu", "--json").stdout)
    assert found["right"]
    assert found["kind"].endswith(" +gelu")
    traced = invoke("trace", *options, "--activation", "relu", "--out", tmp_path / "trace.json")
    assert traced.exit_code == 0, traced.output
    refused = invoke("run", *options, "--activation", "gelo")
    assert (refused.exit_code, "gelu" in refused.output) == (2, True)


@pytest.mark.parametrize("kernel", ["grouped_matmul", "grouped_blockwise"])
def test_a_kernel_is_shown_and_ranked(invoke: Any, kernel: str) -> None:
    """The config is the one that the picker takes for these groups, or one that is asked for."""
    assert "GroupedScheduler" in invoke("dump", kernel, "--sizes", "5,9", "--n", 512, "--k", 512).stdout
    command = ("dump", kernel, "--sizes", "5,9", "--n", 512, "--k", 512, "--tile", "64x64", "--json")
    assert "64x64" in json.loads(invoke(*command).stdout)["config"]
    found = json.loads(invoke("dump", kernel, "--what", "ranking", "--top", 2, "--json").stdout)
    assert len(found["ranking"]["configs"]) == 2


def test_trace(invoke: Any, tmp_path: Path) -> None:
    """Each role notes its tiles, those of a group without rows aside."""
    out = tmp_path / "trace.json"
    found = json.loads(invoke("trace", *BLOCKS, "--sizes", "5,0,70", "--out", out, "--json").stdout)
    assert found["records"] > 0
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "matmul", "--sizes", "3,4"), "of grouped_matmul and grouped_blockwise only, which matmul is not"),
        (("run", "grouped_matmul", "--sizes", "3;4"), "--sizes: given '3;4'; legal: whole numbers with commas"),
        (("run", "grouped_matmul", "--sizes", "0,0"), "not all zero"),
        (
            ("run", "grouped_matmul", "--sizes", "3,9", "--room", 4),
            "no more than the 4 that there is room for; nearest legal: (3, 4)",
        ),
        (("run", "grouped_matmul", "--m", 4), "--m: given 4"),
        (("run", "grouped_matmul", "--bias"), "--bias"),
        (("run", "grouped_matmul", "--groups", 4), "--groups: given 4; legal: of conv2d only"),
        (("run", "grouped_matmul", "--n", 100), "nearest: 104"),
        (("run", "grouped_matmul", "--dtype", "e4m3,e5m2"), "one type: groups' operands have the same"),
        (("run", "grouped_blockwise", "--target", "sm_80"), "sm_80"),
        (("run", "grouped_blockwise", "--b-major", "mn"), "--b-major"),
        (("dump", "grouped_matmul", "--batched"), "--batch"),
    ],
)
def test_refused(invoke: Any, arguments: tuple[Any, ...], message: str) -> None:
    """What is wrong with the options is said, and what is legal."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
