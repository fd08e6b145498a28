"""Block-scaled products on the command line: run, shown and traced; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.bench.scaled import ScaledWorkload

ON = ("block_scaled", "--target", "sm_100a")
SMALL = ("--m", 40, "--n", 72, "--k", 64)


@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
def test_run(invoke: Any, kind: str) -> None:
    """Each format is computed and right, with what is fused, on a chip that has it where none is named."""
    found = json.loads(invoke("run", "block_scaled", *SMALL, "--dtype", kind, "--bias", "--json").stdout)
    assert found["right"]
    assert found["name"].startswith(f"scaled_matmul_{kind}_")


@pytest.mark.parametrize("to", ["mxfp8", "mxfp4", "nvfp4"])
def test_quantised_results(invoke: Any, to: str, tmp_path: Path) -> None:
    """They are run and right, shown, and traced."""
    words = (*ON, *SMALL, "--dtype", "mxfp4", "--out-dtype", to)
    found = json.loads(invoke("run", *words, "--bias", "--activation", "relu", "--json").stdout)
    assert found["right"]
    assert found["kind"] == f"mxfp4→{to} +bias +relu"
    assert found["name"].endswith(f"_to_{to}")
    assert 0.01 < found["relative_error"] < 0.2
    assert "swapped      QuantisedEpilogue" in invoke("dump", *words).stdout
    traced = json.loads(invoke("trace", *words, "--out", tmp_path / "t.json", "--json").stdout)
    assert traced["records"] > 0


@pytest.mark.parametrize("to", ["nvfp4", "e4m3", "e5m2", "f16"])
def test_results_of_nvfp4_fit_what_they_are_written_as(invoke: Any, to: str) -> None:
    """Its operands are standard normal, as those of other formats are: no sum is too large for a narrow type."""
    words = ("run", *ON, "--m", 20, "--n", 20, "--k", 130, "--dtype", "nvfp4", "--out-dtype", to, "--json")
    result = invoke(*words)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["right"]
    operands = ScaledWorkload(20, 20, 512, scaled="nvfp4").operands(0)
    values = tilekit.dequantise(operands.a, operands.scales[0])
    assert 0.9 < values.std() < 1.1


def test_a_wrong_quantised_result_is_seen() -> None:
    """One element, or one scale, that is another."""
    case = ScaledWorkload(40, 72, 64, out_scaled="mxfp8")
    operands = case.operands(3)
    a, b, keywords = case.call(operands)
    values, scales = tilekit.scaled_matmul(a, b, out_dtype="mxfp8", **keywords)
    assert case.accuracy(operands, tilekit.dequantise(values, scales)).right
    scales.view(np.uint8)[3, 1] += 1
    assert not case.accuracy(operands, tilekit.dequantise(values, scales)).right
    scales.view(np.uint8)[3, 1] -= 1
    values[7, 9] = -values[7, 9]
    assert not case.accuracy(operands, tilekit.dequantise(values, scales)).right


def test_dump_and_trace(invoke: Any, tmp_path: Path) -> None:
    """The kernel of a format is explained and ranked, and notes its times."""
    shown = invoke("dump", "block_scaled", "--dtype", "nvfp4").stdout
    assert "swapped      BlockScaledTcgen05" in shown
    assert shown == invoke("dump", *ON, "--dtype", "nvfp4").stdout
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
        (("run", "block_scaled", "--target", "sm_90a"), "built for sm_100a"),
        (("run", *ON, "--out-dtype", "mxfp6"), "--out-dtype: given 'mxfp6'; legal: mxfp8, mxfp4, nvfp4 with scales"),
        (("run", "blockwise", "--dtype", "bf16"), "--dtype: given 'bf16'; legal: e4m3 or e5m2; nearest legal: 'e4m3'"),
        (("run", "matmul", "--out-dtype", "mxfp8"), "--out-dtype"),
        (("bench", "block_scaled", "--out-dtype", "mxfp8"), "--out-dtype"),
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
