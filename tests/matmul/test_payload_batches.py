"""A payload of the caller's in products of batches: values for each matrix, or for all of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tests.matmul.payload_factors import BLOCK, Side, payload
from tilekit import BlackwellConfig, MatmulConfig, MatmulSpec
from tilekit.errors import TilekitError

B, M, N, K = 3, 140, 72, 200
BLOCKS = -(-K // BLOCK)

CONFIGS: dict[str, tuple[str, Any]] = {
    "cooperative": ("sm_90a", MatmulConfig(tile=(128, 64), consumers=2, cluster=(1, 1), in_flight=0)),
    "cluster": ("sm_90a", MatmulConfig(tile=(64, 64), consumers=1, cluster=(2, 1), in_flight=0)),
    "split": ("sm_90a", MatmulConfig(tile=(64, 64), consumers=1, cluster=(1, 1), split_k=2, in_flight=0)),
    "streamed": ("sm_90a", MatmulConfig(tile=(64, 64), consumers=1, cluster=(1, 1), stream_k=2, in_flight=0)),
    "tensor memory": ("sm_100a", BlackwellConfig(tile=(128, 64), cta_group=1, cluster=(1, 1), k_group=1)),
    "pairs": ("sm_100a", BlackwellConfig(tile=(128, 64), cta_group=2, cluster=(2, 1), k_group=1)),
}


def operands(batches_b: int = B) -> tuple[Any, Any, dict[str, Any]]:
    """A, B, and powers of two for rows and columns of each matrix."""
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (B, M, K)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-2, 3, (batches_b, K, N)).astype(ml_dtypes.bfloat16)
    found = {name: 2.0 ** rng.integers(-1, 2, (B, BLOCKS, extent)) for name, extent in (("left", M), ("right", N))}
    return a, b, {name: values.astype("f4") for name, values in found.items()}


def expected(a: Any, b: Any, values: dict[str, Any]) -> Any:
    """The product, which f32 holds exactly; values without a batch are for all."""
    rows, columns = (np.broadcast_to(one, (B, *one.shape[-2:])).repeat(BLOCK, axis=1)[:, :K] for one in values.values())
    return (a.astype("f4") * rows.transpose(0, 2, 1)) @ (b.astype("f4") * columns)


WAYS = {
    "own, staged": (Side("left", "bjm", True), Side("right", "bjn", True)),
    "own, ahead": (Side("left", "bjm", False), Side("right", "bjn", False)),
    "own rows, staged; columns for all, ahead": (Side("left", "bjm", True), Side("right", "jn", False)),
    "rows for all, staged; own columns, ahead": (Side("left", "jm", True), Side("right", "bjn", False)),
}


def shared(values: dict[str, Any], *sides: Side) -> dict[str, Any]:
    """Of values that all matrices share the first matrix's."""
    return {side.name: values[side.name] if side.own else values[side.name][0] for side in sides}


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("config", CONFIGS)
def test_exact(config: str, way: str) -> None:
    """Values of each matrix or of all, staged or read ahead, in every schedule: all extents end inside tiles."""
    (target, chosen), sides = CONFIGS[config], WAYS[way]
    if config == "pairs":
        sides = tuple(Side(side.name, side.shape, False) for side in sides)
    a, b, values = operands()
    given = shared(values, *sides)
    out = np.full((B, M, N), np.nan, np.float32)
    own = tk.OwnComponents(payload=payload(*sides))
    tilekit.matmul(a, b, components=own, arrays=given, target=target, config=chosen, out=out)
    np.testing.assert_array_equal(out, expected(a, b, given))


def test_one_matrix_for_all() -> None:
    """Where all of a batch share B, each matrix of A has values of its own still; a bound kernel says the same."""
    sides = WAYS["own, staged"]
    a, b, values = operands(batches_b=1)
    target, config = CONFIGS["cooperative"]
    given: dict[str, Any] = {"components": tk.OwnComponents(payload=payload(*sides)), "config": config}
    kernel: Any = tilekit.kernel_for(a, b, arrays=values, target=target, out_dtype="f32", **given)
    np.testing.assert_array_equal(kernel.bind(a, b, arrays=values)(), expected(a, b, values))


def test_values_of_another_matrix() -> None:
    """Values of batches in another order give another result."""
    sides = WAYS["own, ahead"]
    a, b, values = operands()
    target, config = CONFIGS["cooperative"]
    turned = {"left": values["left"][::-1].copy(), "right": values["right"]}
    own = tk.OwnComponents(payload=payload(*sides))
    result = tilekit.matmul(a, b, components=own, arrays=turned, target=target, config=config, out_dtype="f32")
    assert (result != expected(a, b, values)).any()


def call(sides: tuple[Side, Side], *, batched: bool = True, wrong: bool | None = None, **changed: Any) -> Any:
    """A call with something that is not as it should be."""
    a, b, values = operands()
    given = shared(values, *sides) | changed
    if not batched:
        a, b = a[0], b[0]
    own = tk.OwnComponents(payload=payload(*sides, wrong=wrong))
    target, config = CONFIGS["cooperative"]
    return tilekit.matmul(a, b, components=own, arrays=given, target=target, config=config)


class Confused(Side):
    """Values that are read as if they were of all batches, or of each."""

    @property
    def own(self) -> bool:
        """The other way."""
        return not super().own


VALUES = operands()[2]
WRONG: dict[str, tuple[Any, str]] = {
    "no batch": (
        lambda: call(WAYS["own, staged"], batched=False),
        "left, 'bjm', has values for batches, and this product has no batches; nearest: .*'jm'.*TK-MM-028",
    ),
    "too few": (
        lambda: call(WAYS["own, staged"], left=VALUES["left"][:2]),
        "b is 2 in left and 3 in the product; nearest: 3.*TK-COMP-003",
    ),
    "one for all": (
        lambda: call(WAYS["own, staged"], left=np.broadcast_to(VALUES["left"][0], (B, BLOCKS, M))),
        "left is declared as 'bjm', and its batches share one place.*nearest: 'jm'.*TK-COMP-003",
    ),
    "loaded for all": (
        lambda: call(WAYS["own, staged"], wrong=False),
        r"ValueLoader\(batched=False\); legal: True: of left each batch.*TK-PART-001",
    ),
    "loaded for each": (
        lambda: call((Side("left", "jm", True), Side("right", "jn", True)), wrong=True),
        r"ValueLoader\(batched=True\); legal: False: of left all batches.*TK-PART-001",
    ),
    "read for all": (
        lambda: call((Confused("left", "bjm", False), Side("right", "bjn", False)), left=VALUES["left"]),
        r"Ahead\(grouped=False\); legal: True: of left each batch.*TK-PART-001",
    ),
    "built for batches": (
        lambda: tilekit.compile(MatmulSpec(components=tk.OwnComponents(payload=payload(*WAYS["own, staged"])))),
        "this product has no batches.*TK-MM-028",
    ),
    "a batch behind": (lambda: payload(Side("left", "jbm", True), WAYS["own, staged"][1]), "b, which counts.*bjm"),
    "a batch of groups": (lambda: payload(Side("left", "bgm", True), WAYS["own, staged"][1]), "g, which counts"),
    "groups of rows": (lambda: payload(Side("left", "gjm", True), WAYS["own, staged"][1]), "no g beside rows.*'jm'"),
    "three letters": (lambda: payload(Side("left", "jmn", True), WAYS["own, staged"][1]), "a letter or two, and"),
    "a taken letter": (lambda: tk.Blocks("b", "k", 64), "other than m, n, k, b and g.*TK-COMP-001"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    """What does not fit is named, with what would."""
    make, words = WRONG[name]
    with pytest.raises(TilekitError, match=f"(?s){words}"):
        make()
