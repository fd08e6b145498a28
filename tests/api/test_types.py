"""What a type checker sees of the calls, and what their loggers say."""

from __future__ import annotations

import logging
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilekit

ROOT = Path(__file__).parents[2]

CALLS = '''
import numpy as np
import numpy.typing as npt
from typing import Any
import tilekit

class Tensor:
    """An array of another library."""

a: npt.NDArray[np.float16] = np.ones((16, 16), np.float16)
t = Tensor()
reveal_type(tilekit.matmul(a, a))
reveal_type(tilekit.matmul(a, a, activation="relu", out_dtype="f32", stream=None))
reveal_type(tilekit.matmul(t, t, bias=a))
reveal_type(tilekit.grouped_matmul(a, a, counts=a))
reveal_type(tilekit.grouped_matmul(t, t, a))
reveal_type(tilekit.conv2d(a, a, padding=1))
reveal_type(tilekit.conv2d(t, t))
tilekit.matmul(a, a, activatoin="relu")
tilekit.matmul(a, a, activation="rleu")
'''


@pytest.mark.slow
def test_what_goes_in_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy in is NumPy out, another library's array its own; unknown keywords and words are errors."""
    api = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    said, failed, _ = api.run([str(file), "--no-error-summary", "--hide-error-context"])
    lines = [line.partition("calls.py:")[2] for line in said.splitlines() if "calls.py:" in line]
    revealed = [line for line in lines if "Revealed type" in line]
    kinds = ["ndarray" if "ndarray" in line else "Tensor" if "Tensor" in line else line for line in revealed]
    assert kinds == ["ndarray", "ndarray", "Tensor", "ndarray", "Tensor", "ndarray", "Tensor"], failed + said
    errors = [line.partition(":")[0] for line in lines if "error:" in line]
    count = len(CALLS.splitlines())
    assert set(errors) == {str(count - 1), str(count)}, said


def test_the_logger_says_what_was_chosen(caplog: pytest.LogCaptureFixture) -> None:
    """Under `tilekit`, which is silent by itself: the family and config of a call, and what was assembled."""
    caplog.set_level(logging.DEBUG, "tilekit")
    a = np.ones((40, 64), ml_dtypes.bfloat16)
    kernel = tilekit.kernel_for(a, a.T)
    chosen = [record for record in caplog.records if record.name == "tilekit.kernels.dispatch"]
    assert any(str(kernel.config) in record.getMessage() for record in chosen)
    assert any("gemv declines" in record.getMessage() for record in chosen)
    assert all(record.name.startswith("tilekit.") for record in caplog.records)
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("tilekit").handlers)
