"""Block-scaled products on the command line: run, shown and traced; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ON = ("block_scaled", "--target", "sm_100a")
SMALL = ("--m", 40, "--n", 72, "--k", 64)


@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
def test_run(invoke: Any, kind: str) -> None:
    """Each format is computed and right, with what is fused."""
    found = json.loads(invoke("run", *ON, *SMALL, "--dtype", kind, "--bias", "--json").stdout)
    assert found["right"]
    assert found["name"].startswith(f"scaled_matmul_{kind}_")


def test_dump_and_trace(invoke: Any, tmp_path: Path) -> None:
    """The kernel of a format is explained and ranked, and notes its times."""
    assert "swapped      BlockScaledTcgen05" in invoke("dump", *ON, "--dtype", "nvfp4").stdout
    assert "1 accumulator" in invoke("dump", *ON, "--what", "ranking", "--top", 3).stdout
    found = json.loads(invoke("trace", *ON, *SMALL, "--out", tmp_path / "t.json", "--json").stdout)
    assert found["records"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", *ON, "--dtype", "bf16"), "mxfp8, mxfp4, nvfp4"),
        (("run", *ON, "--dtype", "nvfp4", "--k", 63), "nearest legal: 64"),
        (("run", *ON, "--b-major", "mn"), "--b-major"),
        (("run", *ON, "--batch", 2), "--batch"),
        (("run", "block_scaled"), "built for sm_100a"),
        (("bench", "block_scaled", "--dtype", "e4m3"), "mxfp8, mxfp4, nvfp4"),
        (("bench", "block_scaled", "--dtype", "nvfp4", "--shape", "64x64x63"), "nearest legal: 64"),
        (("bench", "block_scaled", "--shape", "2x64x64x64"), "no batches"),
        (("bench", "block_scaled", "--accumulation", "promoted"), "--accumulation"),
    ],
)
def test_refused(invoke: Any, arguments: tuple[Any, ...], message: str) -> None:
    """Each says what is legal."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
