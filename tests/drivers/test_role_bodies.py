"""Mistakes in the body of a role, which anyone may write: named with the method, the argument and what was meant."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit.assembly.errors import TraceError

EXAMPLE = Path(__file__).parents[2] / "examples" / "compose_matmul.py"

MISTAKES: dict[str, tuple[str, str, str]] = {
    "a stage that is not entered": (
        "with producer.acquire() as stage:",
        "if stage := producer.acquire():",
        r"PayloadCopies.load\(stage=\) is given a _Generator.*: it is no Stage; nearest: what `with` enters it as",
    ),
    "a stage and k exchanged": (
        "copies.load(w, stage, k)",
        "copies.load(w, k, stage)",
        r"load\(stage=\) is given a Value: it is no Stage; nearest: stage and k exchanged",
    ),
    "the number of a stage": (
        "copies.load(w, stage, k)",
        "copies.load(w, stage.index, k)",
        r"load\(stage=\) is given a Value: it is no Stage \[",
    ),
    "a tile and the writer exchanged": (
        "operands.at(w, tile)",
        "operands.at(tile, w)",
        r"BoundPayloadLoader.at\(w=\) is given a Tile: it is no Writer; nearest: w and tile exchanged",
    ),
    "a tile's row": (
        "operands.at(w, tile)",
        "operands.at(w, tile.row)",
        r"BoundPayloadLoader.at\(tile=\) is given a Value: it is no Tile",
    ),
    "accumulators and tile exchanged": (
        "storer.store(w, accumulators, tile)",
        "storer.store(w, tile, accumulators)",
        r"BoundStagedEpilogue.store\(accumulators=\) is given a Tile: .*; nearest: accumulators and tile exchanged",
    ),
    "accumulators that nobody produced": (
        "tk.RegisterAccumulators(op).producer(w, MMA)",
        "tk.RegisterAccumulators(op)",
        r"has no registers, which a role's producer declares; nearest: RegisterAccumulators\(...\).producer\(w, role\)",
    ),
    "the op that is not in a role": (
        "inputs.consumer(w, multiplier,",
        "inputs.consumer(w, op,",
        r"consumer\(reader=\) is given a Wgmma: it has no commit\(w\), .*; nearest: what its bind returns, in a role",
    ),
    "what the op does in a role": (
        "multiplier.multiply(",
        "op.multiply(",
        "'Wgmma' object has no attribute 'multiply'; nearest: what its bind returns, in a role",
    ),
    "a role's name": (
        "scheduler.tiles(w, LOAD)",
        'scheduler.tiles(w, "load")',
        r"StaticScheduler.tiles\(role=\) is given 'load': it is no Role",
    ),
}


def changed(folder: Path, old: str, new: str) -> Any:
    """The example's kernel with other words."""
    text = EXAMPLE.read_text()
    assert old in text
    file = folder / "changed.py"
    file.write_text(text.replace(old, new))
    spec = importlib.util.spec_from_file_location("changed", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.composed_matmul


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str, tmp_path: Path) -> None:
    """One line of the example is wrong."""
    old, new, says = MISTAKES[name]
    with pytest.raises(TraceError, match=says) as caught:
        changed(tmp_path, old, new).traced  # noqa: B018  # tracing raises
    assert caught.value.code == "TK-FIT-001"


def test_any_collection_says_what_a_role_may_do(tmp_path: Path) -> None:
    """Words in a list are a role's as those in a frozenset are, and of a plan's entry too."""
    words = '{"mma", "sync", "wait", "store"}'
    assert changed(tmp_path, f"may=frozenset({words})", f"may=[*{words}]").ptx
    assert tk.RoleEntry("spy", 1, ["memory"]) == tk.RoleEntry("spy", 1, frozenset({"memory"}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            lambda w: None,
            r"bodies\['spy'\]=\) is given <lambda>\(w\), but is called with \(w, warp, role\).*TK-FIT-001",
        ),
        (lambda w, warp, role, more: None, r"is called with \(w, warp, role\): missing .*'more'.*TK-FIT-001"),
    ],
)
def test_a_body_that_takes_other_arguments(body: Any, says: str) -> None:
    """A further role's body is called with the writer, the warp and the role."""
    a, b = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16)
    role = tilekit.OwnRole(tk.RoleEntry("spy", 1, frozenset({"memory"})), lambda w, kernel: body)
    with pytest.raises(TraceError, match=says):
        tilekit.matmul(a, b, components=tilekit.OwnComponents(role=role))


def test_what_a_component_lacks_in_a_role_too() -> None:
    """A plain error of attributes, which `hasattr` and defaults know as any."""
    op = tk.Wgmma(*(tk.OperandTile(name, tk.BF16, 64, "k") for name in "ab"), warpgroups=1)
    assert not hasattr(op, "multiply")
    assert getattr(op, "committed", None) is None
    with pytest.raises(AttributeError, match=r"'Wgmma' object has no attribute 'multiplies'$"):
        op.multiplies  # type: ignore[attr-defined]  # noqa: B018
