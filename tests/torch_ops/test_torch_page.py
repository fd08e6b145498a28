"""The page on torch says what is so."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "torch.md"


@pytest.mark.filterwarnings("ignore")  # Inductor's own, where there is a GPU
def test_the_page_runs_and_prints_what_it_shows() -> None:
    """Its blocks, one after another in one namespace, print what stands below them."""
    torch.manual_seed(0)
    namespace: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 4
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), namespace)
        assert printed.getvalue() == shown
