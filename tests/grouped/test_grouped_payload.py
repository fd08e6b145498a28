"""Components of the caller's in products of groups: values for rows of all groups, and for each group's columns."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tests.matmul.payload_factors import BLOCK, Side, payload
from tilekit import BlackwellConfig, MatmulConfig, MatmulSpec
from tilekit.errors import TilekitError

G, R, N, K = 4, 172, 72, 200
BLOCKS = -(-K // BLOCK)
SIZES = np.array([100, 0, 37, 150], np.int32)
ROWS = {"ends": int(SIZES.sum()) + 13, "counts": G * R}

CONFIGS: dict[str, tuple[str, Any]] = {
    "cooperative": ("sm_90a", MatmulConfig(tile=(128, 64), consumers=2, cluster=(1, 1), in_flight=0)),
    "two blocks": ("sm_90a", MatmulConfig(tile=(128, 64), consumers=1, cluster=(1, 1), in_flight=0)),
    "cluster": ("sm_90a", MatmulConfig(tile=(64, 64), consumers=1, cluster=(2, 1), in_flight=0)),
    "tensor memory": ("sm_100a", BlackwellConfig(tile=(128, 64), cta_group=1, cluster=(1, 1), k_group=1, clc_stages=0)),
    "pairs": ("sm_100a", BlackwellConfig(tile=(128, 64), cta_group=2, cluster=(2, 1), k_group=1, clc_stages=0)),
}
WAYS = {
    "ahead": (Side("left", "jm", False), Side("right", "gjn", False)),
    "staged along K": (Side("left", "mj", True), Side("right", "gjn", True)),
    "staged columns": (Side("left", "mj", False), Side("right", "gnj", True)),
    "columns for all": (Side("left", "mj", True), Side("right", "jn", False)),
}


def operands(kind: str) -> tuple[Any, Any, Any, Any]:
    """A, B, and powers of two: (M, blocks) for the rows of all groups, and (G, blocks, N) for columns."""
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (ROWS[kind], K)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-2, 3, (G, K, N)).astype(ml_dtypes.bfloat16)
    left, right = (2.0 ** rng.integers(-1, 2, shape) for shape in ((ROWS[kind], BLOCKS), (G, BLOCKS, N)))
    return a, b, left.astype("f4"), right.astype("f4")


def expected(kind: str, a: Any, b: Any, left: Any, right: Any) -> Any:
    """The product, which f32 holds exactly, in an output of sevens."""
    out = np.full((ROWS[kind], N), 7, np.float32)
    scaled_a = a.astype("f4") * left.repeat(BLOCK, axis=1)[:, :K]
    scaled_b = b.astype("f4") * right.repeat(BLOCK, axis=1)[:, :K]
    begins = np.cumsum(SIZES) - SIZES if kind == "ends" else np.arange(G) * R
    for group, (first, size) in enumerate(zip(begins, SIZES, strict=True)):
        out[first : first + size] = scaled_a[first : first + size] @ scaled_b[group]
    return out


def padded(values: Any) -> Any:
    """The same in rows of whole 16 bytes, as the copy engine asks for."""
    wide = np.full((*values.shape[:-1], -(-values.shape[-1] // 4) * 4 + 4), np.nan, np.float32)
    wide[..., : values.shape[-1]] = values
    return wide[..., : values.shape[-1]]


def arrays(sides: tuple[Side, Side], left: Any, right: Any) -> dict[str, Any]:
    """These as they are declared."""
    if not sides[1].own:
        right = right[0]
    turned = {"jm": left.T, "mj": left, "gjn": right, "gnj": right.swapaxes(1, 2) if right.ndim == 3 else right}
    return {side.name: padded(np.ascontiguousarray(turned.get(side.shape, right))) for side in sides}


def grouped(kind: str, a: Any, b: Any, **given: Any) -> Any:
    """What the call says of an output of sevens, as rows of all groups."""
    out = np.full((ROWS[kind], N), 7, np.float32)
    if kind == "ends":
        given |= {"ends": np.cumsum(SIZES).astype(np.int32), "out": out}
    else:
        given |= {"counts": SIZES, "out": out.reshape(G, R, N)}
        a = a.reshape(G, R, K)
    tilekit.grouped_matmul(a, b, **given)
    return out


@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("kind", ["ends", "counts"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("config", CONFIGS)
def test_exact(config: str, way: str, kind: str) -> None:
    """Values of rows and of each group's columns, staged or ahead: groups end anywhere, nothing else is touched."""
    (target, chosen), sides = CONFIGS[config], WAYS[way]
    if config == "pairs":
        sides = (Side("left", sides[0].shape, False), Side("right", sides[1].shape, False))
    a, b, left, right = operands(kind)
    if not sides[1].own:
        right = np.broadcast_to(right[:1], right.shape)
    own = tk.OwnComponents(payload=payload(*sides))
    given: dict[str, Any] = {"components": own, "arrays": arrays(sides, left, right), "target": target}
    np.testing.assert_array_equal(grouped(kind, a, b, config=chosen, **given), expected(kind, a, b, left, right))


EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "row_factors.py"))


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("way", ["staged", "ahead"])
def test_picked_and_again(way: str, target: str) -> None:
    """The family picks a config for a payload of a matmul; other values have another result."""
    kind = "counts" if way == "staged" else "ends"  # where groups begin anywhere, copies of values along M cannot
    a, b, left, right = operands(kind)
    own = tk.OwnComponents(payload=EXAMPLE["PAYLOADS"][way])
    given: dict[str, Any] = {"components": own, "target": target}
    for factor in (1, 2):
        found = grouped(kind, a, b, arrays={"factor": np.ascontiguousarray(factor * left.T)}, **given)
        np.testing.assert_array_equal(found, expected(kind, a, b, factor * left, np.ones_like(right)))


def loaded(w: tk.Writer, tile: tk.OperandTile, **how: Any) -> tk.TmaLoader:
    """A loader of the caller's: TMA's, which promotes nothing in L2."""
    return tk.TmaLoader(w, tile, **{**how, "l2_promotion": None})


def doubled(w: tk.Writer, x: tk.Value) -> tk.Value:
    """A function of elements."""
    return x * 2.0


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("target", "config"), [CONFIGS["cooperative"], CONFIGS["tensor memory"]], ids=str)
@pytest.mark.parametrize(
    "own",
    [
        tk.OwnComponents(loader_a=loaded, loader_b=loaded),
        tk.OwnComponents(epilogue=tk.DirectEpilogue),
        tk.OwnComponents(functions=lambda w, **extents: tk.Fused(doubled)),
        tk.OwnComponents(
            epilogue=lambda w, layout, functions, **how: tk.DirectEpilogue(w, layout, functions, **how),
            functions=lambda w, **extents: tk.Fused(doubled),
        ),
    ],
    ids=lambda own: " ".join(own.names),
)
def test_other_components(own: tk.OwnComponents, target: str, config: Any) -> None:
    """Loaders, functions and an epilogue of the caller's stand in the family's place: groups end inside tiles."""
    a, b, left, right = operands("ends")
    factor = 2.0 if own.functions is not None else 1.0
    found = grouped("ends", a, b, components=own, target=target, config=config)
    np.testing.assert_array_equal(found, expected("ends", a, b, np.full_like(left, factor), np.ones_like(right)))


A, B, LEFT, RIGHT = operands("ends")
ENDS = np.cumsum(SIZES).astype(np.int32)


def call(*sides: Side, **changed: Any) -> Any:
    """A call with something that is not as it should be."""
    given = {"arrays": arrays((sides[0], sides[1]), LEFT, RIGHT), "target": "sm_90a"} | changed
    return tilekit.grouped_matmul(A, B, ENDS, components=tk.OwnComponents(payload=payload(*sides)), **given)


OF_GROUPS = MatmulSpec(components=tk.OwnComponents(payload=payload(*WAYS["ahead"])), groups="ends")
LARGE = tk.OwnComponents(
    payload=replace(
        payload(*WAYS["staged along K"]),
        inputs=(tk.Input("left", tk.F32, "mj"),),
        tiles=lambda rows, columns: [tk.ValueTile("left", 65536, along_k=True)],
    )
)
BYTES = np.zeros((G, K, N), ml_dtypes.float8_e4m3fn)
WRONG: dict[str, tuple[Any, str]] = {
    "batches": (
        lambda: call(Side("left", "bjm", False), WAYS["ahead"][1], arrays={"left": LEFT, "right": RIGHT}),
        "left, 'bjm', has values for batches, and this product has no batches; nearest: .*'jm'.*TK-MM-028",
    ),
    "without groups": (
        lambda: tilekit.compile(replace(OF_GROUPS, groups=None)),
        "right, 'gjn', has values for groups, and this product has no groups; nearest: .*'jn'.*TK-MM-028",
    ),
    "too few groups": (
        lambda: call(*WAYS["ahead"], arrays={"left": LEFT.T.copy(), "right": RIGHT[:3]}),
        "g is 3 in right and 4 in the product; nearest: 4.*TK-COMP-003",
    ),
    "rows of one group": (
        lambda: call(*WAYS["ahead"], arrays={"left": LEFT[:100].T.copy(), "right": RIGHT}),
        "m is 100 in left and 300 in the product; nearest: 300.*TK-COMP-003",
    ),
    "none": (lambda: call(*WAYS["ahead"], arrays=None), "missing: left, right.*TK-COMP-002"),
    "nothing reads them": (
        lambda: tilekit.grouped_matmul(A, B, ENDS, arrays={"left": LEFT}),
        "no component reads it.*TK-COMP-002",
    ),
    "an older chip": (lambda: call(*WAYS["ahead"], target="sm_80"), "sm_80.*TK-MM-028"),
    "no room": (
        lambda: tilekit.grouped_matmul(A, B, ENDS, arrays={"left": LEFT}, components=LARGE, target="sm_90a"),
        "shared memory: .* over the .*TK-MM-006",
    ),
    "no role beside others": (
        lambda: tilekit.grouped_matmul(
            A, B, ENDS, target="sm_80", components=tk.OwnComponents(consumers=lambda w: tk.Cooperative())
        ),
        "consumers of the caller's divides tiles, and all of its warps are one role.*TK-MM-006",
    ),
    "the transpose": (
        lambda: call(*WAYS["ahead"], config=MatmulConfig(swap_ab=True, in_flight=0)),
        "the caller.s payload is upright.*nearest: swap_ab=False.*TK-MM-006",
    ),
    "a scheduler": (
        lambda: tilekit.grouped_matmul(A, B, ENDS, components=tk.OwnComponents(scheduler=len)),
        "groups of rows are scheduled by their bounds.*TK-MM-028",
    ),
    "scales of blocks": (
        lambda: tilekit.grouped_matmul(
            A.astype(BYTES.dtype),
            BYTES,
            ENDS,
            scale_a=LEFT,
            scale_b=RIGHT,
            components=tk.OwnComponents(consumers=lambda w: tk.Cooperative()),
        ),
        "components beside scale_a and scale_b.*TK-MM-028",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    """What does not fit is named, with what would."""
    make, words = WRONG[name]
    with pytest.raises(TilekitError, match=f"(?s){words}"):
        make()
