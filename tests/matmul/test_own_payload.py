"""A payload of the caller's in the family's kernels: exact, counted in what a stage takes, and wrong ones are named."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit import BlackwellConfig, MatmulConfig, MatmulSpec
from tilekit.emulator.core.errors import Deadlock
from tilekit.errors import TilekitError
from tilekit.kernels.matmul.choices import MatmulChoices
from tilekit.tuning.table import Problem

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "row_factors.py"))
PAYLOADS: dict[str, tk.OwnPayload] = EXAMPLE["PAYLOADS"]
STAGED, AHEAD = PAYLOADS["staged"], PAYLOADS["ahead"]
RowFactors, load = EXAMPLE["RowFactors"], EXAMPLE["load"]

M, N, K = 300, 264, 328


def operands(seed: int = 0, m: int = M, n: int = N, k: int = K) -> tuple[Any, Any, Any, Any]:
    """A, B, factors that are powers of two, and their product, which f32 holds exactly."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    factor = 2.0 ** rng.integers(-2, 3, (-(-k // 64), m)).astype("f4")
    return a, b, factor, (a.astype("f4") * factor.repeat(64, axis=0)[:k].T) @ b.astype("f4")


def product(payload: tk.OwnPayload, target: str, config: Any = None, seed: int = 0, **changed: Any) -> tuple[Any, Any]:
    """What the kernel and NumPy say."""
    a, b, factor, expected = operands(seed)
    own = tk.OwnComponents(payload=payload)
    given = {"out_dtype": "f32", "arrays": {"factor": factor}} | changed
    return tilekit.matmul(a, b, components=own, target=target, config=config, **given), expected


HOPPER = (
    None,
    MatmulConfig(tile=(128, 128), consumers=2, in_flight=0),
    MatmulConfig(tile=(128, 64), schedule="pingpong", consumers=2, in_flight=0),
    MatmulConfig(tile=(128, 96), consumers=2, cluster=(2, 1), in_flight=0),
    MatmulConfig(tile=(64, 64), consumers=1, cluster=(1, 2), split_k=2, in_flight=0, stages=3),
    MatmulConfig(tile=(64, 64), consumers=1, cluster=(1, 1), stream_k=2, in_flight=0),
)
BLACKWELL = (
    None,
    BlackwellConfig(tile=(128, 64), cta_group=1, cluster=(1, 1), k_group=1),
    BlackwellConfig(tile=(128, 96), cta_group=2, cluster=(2, 1), k_group=1, accumulator_stages=2),
    BlackwellConfig(tile=(128, 64), cta_group=1, cluster=(1, 1), k_group=1, split_k=2, clc_stages=0),
)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("config", HOPPER)
@pytest.mark.parametrize("payload", [STAGED, AHEAD], ids=["staged", "ahead"])
def test_exact_on_hopper(payload: tk.OwnPayload, config: Any) -> None:
    """Factors that come into the stages, and those read ahead, in every schedule: rows and K end inside tiles."""
    result, expected = product(payload, "sm_90a", config)
    assert (result == expected).all()


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("config", BLACKWELL)
@pytest.mark.parametrize("payload", [STAGED, AHEAD], ids=["staged", "ahead"])
def test_exact_on_blackwell(payload: tk.OwnPayload, config: Any) -> None:
    """Factors that come into the stages, and those read ahead, these also of pairs."""
    if payload is STAGED and config is not None and config.cta_group > 1:
        config = replace(config, cta_group=1)
    result, expected = product(payload, "sm_100a", config)
    assert (result == expected).all()


class Misplaced(RowFactors):  # type: ignore[misc,valid-type]
    """Rows of the first warpgroup for all."""

    def bind(self, w: tk.Writer, group: tk.Warpgroup) -> None:
        """Forgets the warpgroup's part of the tile."""
        super().bind(w, replace(group, part=0))


class Exchanged(RowFactors):  # type: ignore[misc,valid-type]
    """The upper row's factor for the lower."""

    def factors(self, w: tk.Writer, block: int) -> Callable[[int, int], Any]:
        """In the wrong order."""
        four = super().factors(w, block)
        return lambda fragment, eight: four(fragment, eight)[::-1]


class Stale(RowFactors):  # type: ignore[misc,valid-type]
    """The first k-block's factors for all."""

    def take(self, w: tk.Writer, stage: tk.Stage) -> None:
        """Reads the first stage, whichever is full."""
        super().take(w, replace(stage, index=w.constant(tk.registers.U32, 0)))


def loaded(**wrong: Any) -> tk.OwnPayload:
    """A payload whose loader is made in a wrong way."""
    how: dict[str, Any] = {"block": 64, "first": lambda tile: tile.row, "batched": False} | wrong
    return replace(STAGED, loader=lambda w, tile: tk.ValueLoader(w, tile, **how))


class Doubled(tk.ValueTile):
    """An image that is said to be larger than what comes."""

    @property
    def bytes(self) -> int:
        """Of twice as many values."""
        return 2 * super().bytes


MISTAKES = {
    "the warpgroup's part": replace(STAGED, factors=Misplaced),
    "rows exchanged": replace(STAGED, factors=Exchanged),
    "the first stage": replace(STAGED, factors=Stale),
    "a column's place": loaded(first=lambda tile: tile.column),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(mistake: str) -> None:
    """A wrong row, stage or block gives another result."""
    config = MatmulConfig(tile=(128, 64), consumers=2, cluster=(1, 1), in_flight=0)
    result, expected = product(MISTAKES[mistake], "sm_90a", config)
    assert (result != expected).any()


class OtherBlock(RowFactors):  # type: ignore[misc,valid-type]
    """Values for twice as many elements of K, read ahead."""

    def __init__(self, w: tk.Writer, layout: tk.AccumulatorLayout, staged: Any) -> None:
        self.layout, self.staged = layout, None
        self.ahead = tk.Ahead(w, "factor", block=128, grouped=False)


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        (loaded(block=128), r"ValueLoader\(block=128\)"),
        (replace(STAGED, blocks=(tk.Blocks("j", "k", 32),)), r"ValueLoader\(block=64\)"),
        (replace(AHEAD, factors=OtherBlock), r"Ahead\(block=128\)"),
        (replace(AHEAD, blocks=(tk.Blocks("j", "k", 32),)), r"Ahead\(block=64\)"),
    ],
)
def test_a_block_of_another_size(payload: tk.OwnPayload, where: str) -> None:
    """What reads values counts the elements of K that share one as the array's declaration does."""
    size = payload.blocks[0].size
    factor = np.ones((-(-K // size), M), "f4")
    with pytest.raises(TilekitError, match=where + f"; legal: {size}, the elements of K for which factor has a value"):
        product(payload, "sm_90a", arrays={"factor": factor})


class ListOfFactors(RowFactors):  # type: ignore[misc,valid-type]
    """Values where a function is asked for."""

    def factors(self, w: tk.Writer, block: int) -> Any:
        """No function."""
        return [1.0, 1.0, 1.0, 1.0]


class TwoFactors(RowFactors):  # type: ignore[misc,valid-type]
    """One factor a row."""

    def factors(self, w: tk.Writer, block: int) -> Any:
        """Two of four."""
        return lambda fragment, eight: self.values[:2]


class OneOffset(RowFactors):  # type: ignore[misc,valid-type]
    """A number of values where their places are asked for."""

    def turn(self, w: tk.Writer, tile: tk.Tile) -> None:
        """As read ahead."""
        if self.staged is not None:
            self.staged.turn(w, tile)
        if self.ahead is not None:
            self.ahead.turn(w, tile, tile.row + self.row, 2)

    def take(self, w: tk.Writer, stage: tk.Stage) -> None:
        """As staged."""
        if self.staged is not None:
            self.values = self.staged.take(w, stage, self.row, 2)


@pytest.mark.parametrize(("payload", "target"), [(STAGED, "sm_90a"), (AHEAD, "sm_100a"), (STAGED, "sm_100a")])
@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (ListOfFactors, r"ListOfFactors\(factors=.*a function of a fragment"),
        (TwoFactors, r"TwoFactors\(factors=.*four values"),
        (OneOffset, r"(StagedValues|Ahead)\(offsets=2\); legal: a list of whole numbers"),
    ],
)
def test_factors_of_no_use(payload: tk.OwnPayload, target: str, factors: Any, words: str) -> None:
    """What is no function, gives no four values, or asks for values at no places is named."""
    with pytest.raises(TilekitError, match=words):
        product(replace(payload, factors=factors), target)


def test_too_few_bytes() -> None:
    """A loader that brings less than its tile has leaves the barrier waiting, and the emulator says for what."""
    short = replace(STAGED, tiles=lambda rows, columns: [Doubled("factor", rows, along_k=False)])
    with pytest.raises(Deadlock, match="needs 512 of 25600 bytes"):
        product(short, "sm_90a", MatmulConfig(tile=(128, 64), consumers=2, cluster=(1, 1), in_flight=0))


def test_what_follows_from_the_bytes() -> None:
    """Stage, shared-memory map, stage count, name and `explain` follow from the payload; rules and picker know it."""
    a, b, factor, _ = operands()
    own = tk.OwnComponents(payload=STAGED)
    given: dict[str, Any] = {"components": own, "arrays": {"factor": factor}, "out_dtype": "f32", "target": "sm_90a"}
    kernel: Any = tilekit.kernel_for(a, b, **given)
    rows = kernel.config.tile[0]
    assert kernel.config.payload(kernel.spec).tiles[2] == tk.ValueTile("factor", rows, along_k=False)
    assert kernel.config.memory(kernel.spec).stage_bytes == kernel.config.memory(MatmulSpec()).stage_bytes + 4 * rows
    assert kernel.name == "matmul_bf16_bf16_f32_kn_own_payload"
    for line in ("payload, of the caller's: factor", "scaled sums", "inputs.factor"):
        assert line in kernel.explain()
    config = MatmulConfig(tile=(128, 128), consumers=2, in_flight=0)
    wide = replace(STAGED, tiles=lambda rows, columns: [tk.ValueTile("factor", 4096, along_k=False)])
    specs = [MatmulSpec(components=tk.OwnComponents(payload=one)) for one in (STAGED, wide)]
    plain = config.stage_budget(tk.target("sm_90a"), MatmulSpec())
    few, fewer = (config.stage_budget(tk.target("sm_90a"), spec) for spec in specs)
    assert plain >= few > fewer
    for change in ({"swap_ab": True}, {"in_flight": 1}, {"k_group": 2}, {"tile": (16, 128), "consumers": 1}):
        assert replace(config, **change).problems("sm_90a", specs[0]), change  # type: ignore[arg-type]


def test_bound_again_and_again() -> None:
    """A kernel binds the arrays; calls with other factors have other results; a plan reads what is there."""
    a, b, factor, expected = operands()
    own = tk.OwnComponents(payload=STAGED)
    given: dict[str, Any] = {"components": own, "out_dtype": "f32", "target": "sm_90a"}
    kernel = tilekit.kernel_for(a, b, arrays={"factor": factor}, **given)
    plan = kernel.bind(a, b, arrays={"factor": factor})  # type: ignore[call-arg]
    assert (plan() == expected).all()
    factor *= 2
    assert (plan() == 2 * expected).all()
    assert kernel.check(a, b, arrays={"factor": factor})  # type: ignore[attr-defined]
    for scale in (1.0, 4.0):
        others = {"factor": factor * np.float32(scale / 2)}
        assert (tilekit.matmul(a, b, arrays=others, **given) == scale * expected).all()
    with pytest.raises(TilekitError, match=r"takes factor; missing: factor.*TK-COMP-002"):
        kernel.bind(a, b)


def test_tuning_keeps_it_apart() -> None:
    """What tuning found for plain products is not taken, and every config that is tried can be built."""
    spec, chip = MatmulSpec(components=tk.OwnComponents(payload=STAGED)), tk.target("sm_90a")
    extents = {"m": 512, "n": 512, "k": 512, "batches": 1}
    assert Problem.of(spec, **extents) != Problem.of(MatmulSpec(), **extents)
    assert Problem.of(replace(spec, components=tk.OwnComponents(scheduler=len)), **extents) == Problem.of(
        MatmulSpec(), **extents
    )
    found = MatmulChoices().ranked(spec, chip, tuning=True, **extents)
    assert found
    assert all(config.legal(chip, spec) for config in found)


A, B, FACTOR, _ = operands()
WRONG_ARRAYS: dict[str, tuple[dict[str, Any] | None, str]] = {
    "none": (None, "takes factor; missing: factor.*TK-COMP-002"),
    "another name": ({"factors": FACTOR}, "there is no factors; nearest: factor.*TK-COMP-002"),
    "turned": ({"factor": FACTOR.T.copy()}, "j is 300 in factor and 6 in runs of 64 of k; nearest: 6.*TK-COMP-003"),
    "too short": ({"factor": FACTOR[:5]}, "j is 5 in factor and 6 in runs of 64 of k; nearest: 6.*TK-COMP-003"),
    "rows": ({"factor": FACTOR[:, :296].copy()}, "m is 296 in factor and 300 in the product.*TK-COMP-003"),
    "type": ({"factor": FACTOR.astype("f2")}, r"declared as f32 of shape \(j, m\); given f16.*TK-COMP-003"),
    "rank": ({"factor": FACTOR[0]}, r"given f32 of shape \(300,\).*TK-COMP-003"),
    "strides": ({"factor": FACTOR.T.copy().T}, "last dimension must be contiguous.*TK-COMP-003"),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_wrong_arrays(name: str) -> None:
    """An array too few, of another name, shape or type is named with what was declared."""
    arrays, words = WRONG_ARRAYS[name]
    with pytest.raises(TilekitError, match=words):
        tilekit.matmul(A, B, components=tk.OwnComponents(payload=STAGED), arrays=arrays, target="sm_90a")


def test_arrays_that_nobody_reads() -> None:
    """Without a payload there are none, and a result does not lie in one."""
    with pytest.raises(TilekitError, match=r"no component reads it.*TK-COMP-002"):
        tilekit.matmul(A, B, arrays={"factor": FACTOR})
    k = np.zeros((64, 64), ml_dtypes.bfloat16)
    shared = np.zeros((64, 64), "f4")
    own = tk.OwnComponents(payload=STAGED)
    with pytest.raises(TilekitError, match=r"overlaps factor.*TK-ARRAY-009"):
        tilekit.matmul(k, k, components=own, arrays={"factor": shared[:1]}, out=shared, target="sm_90a")


def of(**changed: Any) -> MatmulSpec:
    """The spec of a payload that is not what it should be."""
    return MatmulSpec(components=tk.OwnComponents(payload=replace(STAGED, **changed)))


def tile(name: str, values: int = 128) -> Callable[[int, int], list[tk.ValueTile]]:
    """Tiles of a stage: one."""
    return lambda rows, columns: [tk.ValueTile(name, values, along_k=False)]


class OfAnother(RowFactors):  # type: ignore[misc,valid-type]
    """Factors of longer k-blocks than a stage."""

    k_block = 128


class Nameless:
    """Lacks what a stage must agree with."""

    bind = turn = take = advance = factors = lambda self, *given: None
    registers = 0


class Many(RowFactors):  # type: ignore[misc,valid-type]
    """Factors that keep more than was said."""

    registers = 8


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a taken tile": (lambda: tilekit.compile(of(tiles=tile("a"))), "own_a.*TK-PART-001"),
    "twice a tile": (
        lambda: tilekit.compile(of(tiles=lambda rows, columns: 2 * tile("factor")(rows, columns))),
        "tiles of different names.*TK-PART-001",
    ),
    "no list": (lambda: tilekit.compile(of(tiles=lambda rows, columns: None)), "list of tiles.*TK-PART-001"),
    "no tile": (lambda: tilekit.compile(of(tiles=lambda rows, columns: [3])), r"OwnPayload\(tiles=\).*TK-FIT-001"),
    "other arguments": (lambda: tilekit.compile(of(tiles=lambda rows: [])), r"OwnPayload\(tiles=\).*TK-FIT-001"),
    "values the other way": (
        lambda: tilekit.compile(of(tiles=lambda rows, columns: [tk.ValueTile("factor", rows, along_k=True)])),
        "along_k=True.*False, since 'factor' is declared as 'jm': m is contiguous; nearest: False.*TK-PART-001",
    ),
    "no loader": (lambda: tilekit.compile(of(loader=lambda w, tile: 3)), r"OwnPayload\(loader=\).*TK-FIT-001"),
    "another's loader": (
        lambda: tilekit.compile(of(loader=lambda w, one: load(w, tile("other")(0, 0)[0]))),
        "one of tile 'factor'.*TK-PART-001",
    ),
    "no factors": (lambda: tilekit.compile(of(factors=lambda w, layout, staged: 3)), "factors=.*TK-FIT-001"),
    "no k-block": (lambda: tilekit.compile(of(factors=lambda w, layout, staged: Nameless())), "k_block.*TK-FIT-001"),
    "another k-block": (lambda: tilekit.compile(of(factors=OfAnother)), "OfAnother.*k_block=128.*64.*TK-PART-001"),
    "more registers": (lambda: tilekit.compile(of(factors=Many)), "Many.*registers=8.*TK-PART-001"),
    "shared memory": (
        lambda: tilekit.compile(of(tiles=tile("factor", 65536)), config=MatmulConfig(in_flight=0)),
        "shared memory: .* over the .*TK-MM-006",
    ),
    "no room at all": (
        lambda: tilekit.kernel_for(
            A,
            B,
            components=of(tiles=tile("factor", 65536)).components,
            arrays={"factor": FACTOR},
            target="sm_90a",
        ),
        "shared memory.*TK-MM-006",
    ),
    "a loader alone": (lambda: replace(STAGED, tiles=None), "tiles.*TK-COMP-001"),
    "a taken input": (lambda: replace(STAGED, inputs=(tk.Input("bias", tk.F32, "n"),)), "own_bias.*TK-COMP-001"),
    "an unknown letter": (lambda: replace(STAGED, blocks=()), r"Blocks\('j', 'k', 64\).*TK-COMP-001"),
    "a letter of the product": (lambda: tk.Blocks("n", "k", 64), "TK-COMP-001"),
    "runs of nothing": (lambda: tk.Blocks("j", "k", 0), "at least 1.*TK-COMP-001"),
    "tiles of pairs": (
        lambda: tilekit.compile(of(), "sm_100a", BlackwellConfig(tile=(128, 128), cta_group=2)),
        "cta_group=2: threads read a payload's tiles.*TK-MM-006",
    ),
    "another chip": (lambda: tilekit.compile(of(), target="gfx950"), "gfx950.*TK-MM-028"),
    "an older chip": (lambda: tilekit.compile(of(), target="sm_80"), "sm_80.*TK-MM-028"),
    "whole numbers": (
        lambda: tilekit.compile(replace(of(), a_dtype=tk.S8, b_dtype=tk.S8, out_dtype=tk.F32)),
        "s8.*TK-MM-028",
    ),
    "copies": (lambda: tilekit.compile(replace(of(), a_load=8)), "threads copy.*TK-MM-028"),
}


def test_values_as_they_are_declared() -> None:
    """Tiles whose values lie as those of the array, either way, and tiles that no array is declared for."""
    for name, shape, along_k in (("factor", "mj", True), ("factor", "jm", False), ("mine", "jm", True)):
        tiles = [tk.ValueTile(name, 128, along_k=along_k)]
        inputs = (tk.Input("factor", tk.F32, shape),)
        own = replace(STAGED, inputs=inputs, tiles=lambda rows, columns, tiles=tiles: tiles)
        assert own.stage_tiles(128, 128) == tuple(tiles)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_payload(name: str) -> None:
    """What does not fit is named, with what would."""
    make, words = WRONG[name]
    with pytest.raises(TilekitError, match=f"(?s){words}"):
        make()
