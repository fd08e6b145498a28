"""`tilekit run attention` and `dump`: what options say, what is checked, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.bench.attention import AttentionWorkload
from tilekit.dtypes import F16

SMALL = ("--queries", 40, "--keys", 70, "--heads", 2, "--kv-heads", 1)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--causal",), "attention_bf16_d64_right"),
        (("--window", "9,", "--dtype", "f16", "--softcap", 20, "--head-dim", 40), "attention_f16_d64_left_softcap"),
        (("--batch", 2, "--queries", 1), "attention_bf16_d64_group2"),
    ],
)
def test_run(invoke: Any, options: tuple[object, ...], name: str) -> None:
    """The emulator's result is right, by the kernel that the options describe."""
    ran = json.loads(invoke("run", "attention", *SMALL, *options, "--json").stdout)
    assert (ran["right"], ran["name"]) == (True, name)


def test_packed_sequences(invoke: Any) -> None:
    """Lengths with commas: each sequence is right, and `dump` shows the kernel."""
    given = ("attention", "--lengths", "70,0,3", "--heads", 2, "--kv-heads", 1, "--causal")
    ran = json.loads(invoke("run", *given, "--json").stdout)
    assert (ran["right"], ran["name"]) == (True, "attention_bf16_d64_right_packed")
    assert "role load" in invoke("dump", *given).output


@pytest.mark.parametrize("page", [(), ("--page", 16)], ids=["one array", "blocks"])
def test_caches(invoke: Any, page: tuple[object, ...]) -> None:
    """Keys in use with commas: each entry is right, none among them, and nothing is said of what is not in use."""
    given = ("attention", "--key-lengths", "70,0,3", "--queries", 2, "--heads", 2, "--kv-heads", 1, *page)
    ran = json.loads(invoke("run", *given, "--json").stdout)
    name = "attention_bf16_d64_group2_lengths" + ("_page16" if page else "")
    assert (ran["right"], ran["name"]) == (True, name)
    assert name in invoke("dump", *given).output


def test_dump(invoke: Any) -> None:
    """The same options show the kernel's text and words, without memory for its arrays."""
    shown = json.loads(invoke("dump", "attention", *SMALL, "--causal", "--what", "ptx", "--json").stdout)
    q, k = np.zeros((1, 40, 2, 64), np.float16), np.zeros((1, 70, 1, 64), np.float16)
    assert "wgmma.mma_async" in shown["ptx"]
    assert shown["name"] == tilekit.attention_kernel_for(q, k, k, causal=True).name.replace("f16", "bf16")
    assert "role load" in invoke("dump", "attention", "--keys", 1 << 20, "--heads", 4).output


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("run", "attention", "--m", 3), "--m: given 3"),
        (("run", "attention", "--bias"), "--bias"),
        (("run", "attention", "--stages", 2), "--stages"),
        (("run", "attention", "--window", "3"), "nearest legal: '128,0'"),
        (("run", "attention", "--window=-3,2"), "left + right"),
        (("run", "attention", "--heads", 0), "--heads: given 0"),
        (("run", "attention", "--heads", 4, "--kv-heads", 3), "nearest legal: 2"),
        (("run", "attention", "--head-dim", 12), "nearest legal: 16"),
        (("run", "attention", "--dtype", "e4m3"), "bf16, f16"),
        (("run", "attention", "--target", "sm_80"), "TK-ATT-005"),
        (("run", "attention", "--queries", 1 << 21), "TK-"),
        (("run", "matmul", "--heads", 3), "of attention only"),
        (("dump", "conv2d", "--causal"), "of attention only"),
        (("dump", "attention", "--what", "ranking"), "nearest legal: 'explain'"),
        (("run", "attention", "--lengths", "3,-4"), "nearest legal: '3,0'"),
        (("run", "attention", "--lengths", "0,0"), "not all of them 0"),
        (("run", "attention", "--lengths", "3,4", "--queries", 9), "without --lengths"),
        (("run", "matmul", "--lengths", "3,4"), "of attention only"),
        (("run", "matmul", "--page", 8), "of attention only"),
        (("run", "attention", "--page", 16), "with --key-lengths"),
        (("run", "attention", "--key-lengths", "3", "--keys", 9), "without --key-lengths"),
        (("run", "attention", "--key-lengths", "3", "--page", 12), "nearest legal: 16"),
        (("run", "attention", "--key-lengths", "3", "--page", -8), "nearest legal: 0"),
        (("run", "attention", "--key-lengths", "3", "--lengths", "3"), "without --lengths"),
        (("run", "attention", "--key-lengths", "three"), "nearest legal: '128,1,300'"),
        (
            ("run", "attention", "--heads", 4, "--kv-heads", 3),
            "--kv-heads: given 3; legal: a divisor of --heads, 4",
        ),
        (("trace", "attention", "--m", 3), "--m: given 3"),
        (("bench", "attention", "--shape", "64x64x64"), "hH or hH/G"),
        (("bench", "attention", "--shape", "1x33 h2 d12"), "head dim"),
        (("bench", "attention", "--shape", "1x33 h3/2 d16"), "k's heads"),
        (("bench", "attention", "--out-dtype", "f32"), "another family"),
        (("bench", "attention", "--a-major", "mn"), "another family"),
        (("bench", "attention", "--accumulation", "promoted"), "another family"),
        (("tune", "attention", "--shape", "64x64x64"), "hH or hH/G"),
    ],
)
def test_bad_input(invoke: Any, command: tuple[object, ...], words: str) -> None:
    """An error in two lines that names the option, and no traceback."""
    result = invoke(*command)
    assert result.exit_code == 2
    assert words in result.output


def test_trace(invoke: Any, tmp_path: Path) -> None:
    """`tilekit trace attention` runs with its options' call and writes the events."""
    out = tmp_path / "attention.json"
    shown = invoke("trace", "attention", "--queries", 70, "--causal", "--kv-heads", 1, "--out", out, "--json")
    facts = json.loads(shown.stdout)
    assert facts["kernel"] == "attention_bf16_d64_right"
    assert facts["records"] == 10
    names = {event["name"] for event in json.loads(out.read_text())["traceEvents"]}
    assert {"load (0, 1)", "mma 1 (0, 0)", "epilogue (0, 1)"} <= names


def test_a_wrong_answer_is_seen() -> None:
    """One value that is of the next head, a row that should be 0, or NaN, is beyond its limit; float64's own is not."""
    workload = AttentionWorkload(1, 20, 8, 2, 1, 16, F16, causal=True)
    given = workload.operands(3)
    out = tilekit.attention(given.q, given.k, v=given.v, causal=True)
    assert workload.accuracy(given, out).right
    for place, value in (((0, 15, 1, 3), out[0, 15, 0, 3]), ((0, 0, 0, 0), 0.01), ((0, 19, 1, 15), np.nan)):
        wrong = out.copy()
        wrong[place] = value
        assert not workload.accuracy(given, wrong).right


def test_a_family_among_the_others() -> None:
    """A spec builds its kernel, by name; another family's config is refused."""
    kernel = tilekit.compile(tilekit.AttentionSpec(F16, 64, 64))
    assert kernel.name == "attention_f16_d64"
    with pytest.raises(tilekit.TilekitError, match="an AttentionConfig or a Blackwell"):
        tilekit.compile(tilekit.AttentionSpec(), config=tilekit.MatmulConfig())
