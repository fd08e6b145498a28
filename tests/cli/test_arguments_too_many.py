"""An argument behind those that a command takes: which options say what it was meant to say."""

from __future__ import annotations

import json
from typing import Any

import pytest

MEANT = {
    "run matmul 64x48x32": "--m 64 --n 48 --k 32",
    "run matmul 4x64x48x32": "--batch 4 --m 64 --n 48 --k 32",
    "dump matmul 64 48 32": "--m 64 --n 48 --k 32",
    "trace matmul 64x48x32": "--m 64 --n 48 --k 32",
    "run conv2d 1x28x14x64": "--n 1 --h 28 --w 14 --c 64",
    "tune matmul 64x48x32": "--shape 64x48x32",
    "bench matmul 64x48x32": "--shape 64x48x32",
}


@pytest.mark.parametrize("words", MEANT)
def test_a_shape_is_given_by_options(words: str, invoke: Any) -> None:
    """The nearest legal command line is named."""
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert MEANT[words] in result.stderr


@pytest.mark.parametrize(
    "words", ["doctor now", "run attention 2x3x4", "dump matmul 4x64x48x32", "run matmul ax", "cache clear all"]
)
def test_what_no_option_says(words: str, invoke: Any) -> None:
    """The command's options are where to look; nothing is guessed."""
    command = words.split()[0]
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert f"legal: its options (`tilekit {command} --help`)" in result.stderr
    assert "nearest" not in result.stderr


def test_as_json(invoke: Any) -> None:
    """One object on stdout, as for every other error."""
    found = json.loads(invoke("run", "matmul", "64x48x32", "--json").stdout)
    assert (found["code"], found["exit"]) == ("TK-CLI-014", 2)
