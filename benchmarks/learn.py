"""Grow the trees that correct the picker's model of Hopper, and judge them on shapes that they have not seen.

    python -m benchmarks.learn                # losses of the model alone and corrected, cross-validated
    python -m benchmarks.learn --write        # grown on all times, into the package

Needs LightGBM (``pip install 'tilekit-gpu[learn]'``). What is learned is what is left over of the model: of each config
the logarithm of its time over the model's, less the mean of its case, since only the order within a case matters. A
shape is in one fold whole, with all its cases. Run it again after every change of the model or of a kernel's speed:
trees know nothing but what the model makes of a config. Times of older kernels (`benchmarks.sweep.KERNELS`) are told
from those of today's by a column of their own, whose splits are decided in the trees that are written.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.fit import Times
from benchmarks.model import ALL_TIMES, FEWEST, TIMES
from benchmarks.sweep import KERNELS, workload_of
from tilekit.bench.conv2d import ConvWorkload
from tilekit.heuristics.trees import Trees
from tilekit.kernels.matmul.estimates import Array
from tilekit.kernels.matmul.sm_90a import correction
from tilekit.kernels.matmul.sm_90a import model as hopper_model

LAYERS = sorted(TIMES.parent.glob("h200-*-conv2d-sweeps*.json.gz"))
"""Sweeps of convolutions."""

FOLDS = 6
LEARNED_NEAR = 1.6
"""Configs that take so many times as long as a case's best, by the model, are not learned from: nothing picks them."""

TREES = 800

CENTRED = 3
"""How often trees are grown, each time less what a case's configs have in common by the trees before.

A case's configs are no fair sample of all, so that their mean alone is not what the case takes more or less.
"""

SETTINGS: dict[str, Any] = {
    "num_leaves": 64,
    "max_depth": 14,
    "learning_rate": 0.05,
    "min_data_in_leaf": 12,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 60.0,  # of 1,533 cases 200 lose more than 5 %; with 5 it is 221
    "seed": 1,  # with 0 the losses are the same, and 8192 cubed takes 256x168, which was not timed there
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}


@dataclass(frozen=True)
class Case:
    """What is learned from a case's times.

    Attributes
    ----------
    shape
        Its extents, in a word.
    features, over
        Of each config, its last column whether the kernel is older than today's, and the logarithm of its time over the
        model's, less the case's mean.
    modelled, taken
        Logarithms of the model's time and of that measured, in clocks.
    """

    shape: str
    features: Array
    over: Array
    modelled: Array
    taken: Array

    @classmethod
    def of(cls, case: dict[str, Any]) -> Case | None:
        """Those of a sweep's case; None if there are fewer than two configs to tell apart."""
        times = Times.of(case)
        if times is None or not correction.corrects(times.workload.spec):
            return None
        configs, spec, grids = times.configs, times.workload.spec, times.grids
        block = hopper_model.BlockClocks.of(configs, spec, grids)
        clocks, total = hopper_model.modelled(configs, spec, grids, block)
        near = total <= LEARNED_NEAR * total.min()
        if near.sum() < 2:
            return None
        features = correction.features(configs, spec, grids, block, clocks, np.flatnonzero(near))
        older = [case.get("kernels", 1) < KERNELS and config.consumers == 1 for config in configs.each]
        features = np.column_stack((features, np.array(older)[near]))
        modelled, taken = np.log(total[near]), times.log_times[near]
        over = taken - modelled
        return cls(times.workload.label, features, over - over.mean(), modelled, taken)

    def loss(self, sums: Array | float = 0.0) -> float:
        """How many times as long as the quickest takes what the picker chooses, with the trees' `sums`."""
        better = self.modelled + sums
        better[np.argmin(self.modelled)] += math.log1p(-correction.DOUBT)
        return math.exp(self.taken[np.argmin(better)] - self.taken.min())


def cases() -> Iterator[Case]:
    """Every case of the kept sweeps: of products, and of layers that are one."""
    for path in (*ALL_TIMES, *LAYERS):
        for case in json.loads(gzip.decompress(path.read_bytes())):
            product = case if path in ALL_TIMES else as_product(case)
            if product is not None and (found := Case.of(product)):
                yield found


def as_product(case: dict[str, Any]) -> dict[str, Any] | None:
    """A layer's case as that of the product whose kernels it takes; None where it has an own loader or an epilogue."""
    label, _, types = case["case"].rpartition(" ")
    if "+" in case["case"]:
        return None
    layer = ConvWorkload.parse(label)
    product = f"{layer.m}x{layer.n}x{layer.k} {types} k/k"
    return {**case, "case": product} if layer.spec == workload_of(product).spec else None


def grown(learned: Sequence[Case]) -> Any:
    """A LightGBM model of what is left over."""
    import lightgbm

    features, found = np.concatenate([case.features for case in learned]), None
    for _ in range(CENTRED):
        known = [0.0 if found is None else found.predict(case.features) for case in learned]
        over = np.concatenate([c.over - (c.over - p).mean() for c, p in zip(learned, known, strict=True)])
        found = lightgbm.train(SETTINGS, lightgbm.Dataset(features, over), TREES)
    return found


def trees_of(grown: Any, *, today: bool = False) -> Trees:
    """LightGBM's trees in arrays; those of `today` know no older kernels."""
    nodes: list[tuple[int, float, int, int, float]] = []
    last = grown.num_feature() - 1

    def add(node: dict[str, Any]) -> int:
        if today and node.get("split_feature") == last:
            return add(node["left_child"])
        at = len(nodes)
        nodes.append((0, 0.0, at, at, node.get("leaf_value", 0.0)))
        if "leaf_value" not in node:
            left, right = add(node["left_child"]), add(node["right_child"])
            nodes[at] = (node["split_feature"], node["threshold"], left, right, 0.0)
        return at

    roots = [add(tree["tree_structure"]) for tree in grown.dump_model()["tree_info"]]
    feature, threshold, left, right, value = zip(*nodes, strict=True)
    return Trees(
        np.array(roots, np.int32),
        np.array(feature, np.int8),
        np.array(threshold, np.float32),
        np.array(left, np.int32),
        np.array(right, np.int32),
        np.array(value, np.float32),
    )


def said(name: str, losses: Sequence[float]) -> str:
    """A line of the table."""
    mean = math.exp(sum(map(math.log, losses)) / len(losses))
    over = [sum(loss > most for loss in losses) for most in (1.05, 1.1, 1.2)]
    return f"{name:<12}{len(losses):>6}{mean:>9.4f}" + "".join(f"{count:>6}" for count in over) + f"{max(losses):>8.3f}"


def main(
    write: Annotated[bool, typer.Option(help="Write the trees that the picker reads.")] = False,
    seed: Annotated[int, typer.Option(help="Of the folds.")] = 0,
) -> None:
    """Judge by folds over shapes, and write trees of all cases."""
    every = list(cases())
    shapes = sorted({case.shape for case in every})
    fold = dict(zip(shapes, np.random.default_rng(seed).permutation(len(shapes)) % FOLDS, strict=True))
    before, after = [], []
    for number in range(FOLDS):
        trees = trees_of(grown([case for case in every if fold[case.shape] != number]))
        for case in every:
            if fold[case.shape] == number and len(case.over) >= FEWEST:
                before.append(case.loss())
                after.append(case.loss(trees.sums(case.features)))
    typer.echo(f"{'':<12}{'cases':>6}{'mean':>9}{'>1.05':>6}{'>1.1':>6}{'>1.2':>6}{'worst':>8}")
    typer.echo(said("model", before) + "\n" + said("corrected", after))
    if write:
        trees = trees_of(grown(every), today=True)
        trees.write(correction.PATH)
        typer.echo(f"{len(trees.roots)} trees, {len(trees.value)} nodes, {correction.PATH.stat().st_size} bytes")


if __name__ == "__main__":
    typer.run(main)
