"""Tables print what they are given, brackets and all."""

from __future__ import annotations

import pytest

from tilekit.cli.tables import print_facts


def test_brackets_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """An extra such as ``[cuda]`` in a remedy reaches the reader."""
    print_facts("remedies", {"cuda": "pip install 'tilekit-gpu[cuda]'"})
    assert "tilekit-gpu[cuda]" in capsys.readouterr().out
