"""``tilekit dump`` of each chip that kernels are built for: its text, and who does what in it."""

from __future__ import annotations

from typing import Any

import pytest

from tilekit.kernels.registry import families
from tilekit.targets import TARGETS

SMALL = ("--m", 16, "--n", 16, "--k", 64)


def test_every_target_has_a_matmul() -> None:
    """The targets of all families are those of the matmul, which the next test shows."""
    assert {name for family in families().values() for name in family.targets} == set(TARGETS)
    assert set(families()["matmul"].targets) == set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_text_and_explanation(invoke: Any, target: str) -> None:
    """Both are of that chip: the text begins with its name, the explanation names it, its roles and its memory."""
    text = invoke("dump", "matmul", "--target", target, *SMALL, "--what", "assembly")
    assert text.exit_code == 0, text.output
    begin = f'.amdgcn_target "amdgcn-amd-amdhsa--{target}' if TARGETS[target].isa == "gcn" else f".target {target}\n"
    assert begin in text.stdout[:200]
    shown = invoke("dump", "matmul", "--target", target, *SMALL, "--what", "explain")
    assert shown.exit_code == 0, shown.output
    assert f", {target}" in shown.stdout.split("\n\n")[0]
    assert "shared memory" in shown.stdout
    assert "per k-block" in shown.stdout
