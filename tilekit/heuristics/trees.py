"""Sums of binary decision trees, as gradient boosting grows them: evaluated for many rows of features at once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Trees:
    """Nodes of all trees, in arrays.

    Attributes
    ----------
    roots
        The first node of each tree.
    feature, threshold
        A node's feature, and the most of it that goes left.
    left, right
        Where a node goes on; a leaf's are the leaf itself.
    value
        What a leaf adds to the sum; 0 elsewhere.
    """

    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    value: Array

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote."""
        with np.load(path) as arrays:
            return cls(*(arrays[field.name] for field in fields(cls)))

    def write(self, path: Path) -> None:
        """Write them to an ``.npz`` file."""
        np.savez_compressed(path, **{field.name: getattr(self, field.name) for field in fields(self)})

    @cached_property
    def _ways(self) -> Array:
        """Where each node goes on: right, then left."""
        return np.stack([self.right, self.left], axis=1).astype(np.intp).ravel()

    def sums(self, rows: Array) -> Array:
        """The sum over all trees, of each row of features: ``(rows, features)`` to ``(rows,)``."""
        count, width = rows.shape
        flat, first = np.ascontiguousarray(rows).ravel(), width * np.arange(count)[:, None]
        nodes = np.tile(self.roots.astype(np.intp), (count, 1))
        while True:
            below = flat.take(first + self.feature.take(nodes)) <= self.threshold.take(nodes)
            on = self._ways.take(2 * nodes + below)
            if (on == nodes).all():
                return np.asarray(self.value.take(nodes).sum(axis=1))
            nodes = on
