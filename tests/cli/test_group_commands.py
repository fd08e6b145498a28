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


@pytest.mark.parametrize(
    "arguments",
    [
        ("grouped_matmul", "--sizes", "5,6", "--n", 64, "--k", 100),
        ("grouped_matmul", "--sizes", "5,6", "--n", 64, "--k", 100, "--room", 7),
        ("grouped_matmul", "--sizes", "5,6", "--n", 104, "--k", 101, "--b-major", "mn"),
        ("grouped_blockwise", "--sizes", "5,0,130", "--n", 72, "--k", 200),
        ("grouped_blockwise", "--sizes", "5,0,130", "--n", 72, "--k", 200, "--room", 133),
    ],
    ids=lambda given: " ".join(map(str, given)),
)
def test_rows_are_padded(invoke: Any, arguments: tuple[Any, ...]) -> None:
    """Operands begin rows at multiples of 16 bytes, however many columns they have."""
    result = invoke("run", *arguments, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["right"]


@pytest.mark.parametrize("chip", ["sm_90a", "sm_100a", "gfx942"])
def test_rows_of_m_that_begin_apart(invoke: Any, chip: str) -> None:
    """They lie as one array of (K, G, R), as kernels take them."""
    command = ("run", "grouped_matmul", *SMALL, "--sizes", "5,6", "--a-major", "mn", "--room", 8, "--target", chip)
    result = invoke(*command, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["right"]


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
        (("run", "grouped_matmul", "--sizes", "0,0"), "--sizes: given '0,0'; legal: rows of each group"),
        (("run", "grouped_matmul", "--sizes", "99999999999,6"), "2147483647 at most; nearest legal: '2147483647,6'"),
        (
            ("dump", "grouped_matmul", "--sizes", "999999999,999999999,999999999"),
            "2147483647 in all at most; nearest legal: '715827882,715827882,715827882'",
        ),
        (
            ("run", "grouped_matmul", "--sizes", "3,9", "--room", 4),
            "--room: given 4; legal: from 1 on, and at least the largest of --sizes; nearest legal: 9",
        ),
        (("run", "grouped_matmul", "--sizes", "5,6", "--room", -3), "--room: given -3; legal: from 1 on"),
        (("run", "grouped_matmul", "--sizes", "5,6", "--room", 0), "--sizes; nearest legal: 6"),
        (("run", "grouped_matmul", "--sizes", "5,6", "--room", 1 << 40), "--room: given 1099511627776"),
        (
            ("run", "grouped_matmul", "--room", 3),
            "--room: given 3; legal: from 1 on, and at least the largest of the usual --sizes 100,0,37,175; nearest "
            "legal: 175",
        ),
        (("bench", "grouped_matmul", "--shape", "0,0x8x8"), "--shape '0,0x8x8': sizes: given (0, 0)"),
        (("run", "grouped_matmul", "--n", 0), "--n: given 0"),
        (("run", "grouped_matmul", "--m", 4), "--m: given 4"),
        (("run", "grouped_matmul", "--bias"), "--bias"),
        (("run", "grouped_matmul", "--groups", 4), "--groups: given 4; legal: of conv2d only"),
        (("run", "grouped_matmul", "--n", 100), "nearest: 104"),
        (("run", "grouped_matmul", "--dtype", "e4m3,e5m2"), "one type: groups' operands have the same"),
        (("dump", "grouped_blockwise", "--dtype", "e4m3,e5m2"), "one type: groups' operands have the same"),
        (("dump", "grouped_blockwise", "--dtype", "e4m3,bf16"), "legal: e4m3 or e5m2; nearest legal: 'e4m3'"),
        (("run", "grouped_blockwise", "--target", "sm_80"), "sm_80"),
        (("run", "grouped_blockwise", "--b-major", "mn"), "--b-major"),
        (("dump", "grouped_matmul", "--batched"), "--batched: given True; legal: of a product that has batches only"),
    ],
)
def test_refused(invoke: Any, arguments: tuple[Any, ...], message: str) -> None:
    """What is wrong with the options is said, and what is legal."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("command", ["run", "dump", "trace", "bench"])
@pytest.mark.parametrize("kernel", ["blockwise", "grouped_blockwise"])
def test_a_type_that_is_the_default_of_others(invoke: Any, command: str, kernel: str) -> None:
    """bf16 that is given is refused where scales of blocks are; where nothing is given, e4m3 is computed."""
    result = invoke(command, kernel, "--dtype", "bf16")
    assert result.exit_code == 2
    assert "--dtype: given 'bf16'; legal: e4m3 or e5m2; nearest legal: 'e4m3'" in " ".join(result.output.split())
    assert "e4m3" in invoke("dump", kernel).stdout
