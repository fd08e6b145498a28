"""Sums of decision trees: as a walk from node to node has them, kept in a file and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tilekit.heuristics.trees import Trees

FEATURES = 5


def _drawn(seed: int, trees: int = 7) -> Trees:
    """Trees of random depth, some of a single leaf."""
    random = np.random.default_rng(seed)
    nodes: list[tuple[int, float, int, int, float]] = []

    def add(depth: int) -> int:
        at = len(nodes)
        nodes.append((0, 0.0, at, at, float(random.normal())))
        if depth and random.random() < 0.8:
            left, right = add(depth - 1), add(depth - 1)
            nodes[at] = (int(random.integers(FEATURES)), float(random.normal()), left, right, 0.0)
        return at

    roots = [add(int(random.integers(6))) for _ in range(trees)]
    columns = zip(*nodes, strict=True)
    types = (np.int8, np.float32, np.int16, np.int16, np.float32)
    return Trees(np.array(roots, np.int16), *(np.array(c, t) for c, t in zip(columns, types, strict=True)))


def _walked(trees: Trees, row: Any) -> float:
    """The same by hand, of one row."""
    total = 0.0
    for root in trees.roots.tolist():
        at = root
        while trees.left[at] != at:
            at = int(trees.left[at] if row[trees.feature[at]] <= trees.threshold[at] else trees.right[at])
        total += float(trees.value[at])
    return total


def test_sums_are_those_of_a_walk() -> None:
    """Of rows on either side of every threshold, and just at some."""
    for seed in range(20):
        trees = _drawn(seed)
        rows = np.random.default_rng(seed).normal(size=(9, FEATURES)).astype(np.float32)
        rows[0] = trees.threshold[trees.left != np.arange(len(trees.left))][:1].sum()
        np.testing.assert_allclose(trees.sums(rows), [_walked(trees, row) for row in rows], rtol=1e-5, atol=1e-6)
    assert trees.sums(rows[:0]).shape == (0,)


def test_a_file_holds_them(tmp_path: Path) -> None:
    """What is read back sums to the same bits."""
    trees, path = _drawn(3), tmp_path / "trees.npz"
    trees.write(path)
    rows = np.random.default_rng(1).normal(size=(40, FEATURES)).astype(np.float32)
    assert (Trees.read(path).sums(rows) == trees.sums(rows)).all()
