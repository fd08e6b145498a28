"""Python epilogues in kernels for AMD chips: the same graph, of the fragments that every chip has."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tests.compose.amd_matmul import matmul
from tilekit.epilogue import exp, gelu, log, maximum, rsqrt, silu, uniform, where
from tilekit.errors import TilekitError

PLACES = {
    "like": tk.Place("matrix", tk.F32),
    "column": tk.Place("column", tk.BF16),
    "row": tk.Place("row", tk.F32),
    "one": tk.Place("scalar", tk.F32),
}
INPUTS = (
    tk.Input("like", tk.F32, "mn"),
    tk.Input("column", tk.BF16, "n"),
    tk.Input("row", tk.F32, "m"),
    tk.Input("one", tk.F32, "j"),
)


@tilekit.epilogue
def whole(x, like, column, row, one):  # type: ignore[no-untyped-def]
    """Exact on whole numbers, with numbers at random by place."""
    y = maximum(x * like, column - row) * one
    return where(uniform(5, x) < 0.5, y, -y)


@tilekit.epilogue
def smooth(x, like, column, row, one):  # type: ignore[no-untyped-def]
    """Functions."""
    return (
        silu(x) / (1 + abs(like)) + gelu(x + column, approximate="none") - log(1 + row * row) * rsqrt(one) * exp(-one)
    )


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("function", [whole, smooth], ids=["whole", "smooth"])
def test_composed_amd_kernels(target: str, function: tilekit.epilogue.python.EpilogueFunction) -> None:
    """Matrices, columns, rows and scalars on a ragged product."""
    rng = np.random.default_rng(1)
    m, n, k = 140, 72, 64
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    like, row = (rng.integers(-2, 3, shape).astype("f4") for shape in ((m, n), m))
    column, one = rng.integers(-2, 3, n).astype(ml_dtypes.bfloat16), np.full(1, 2, "f4")
    kernel = matmul(target, out=tk.F32, tile=(128, 64), fusion=partial(_traced, function), inputs=INPUTS)
    result = kernel(a, b, like, column, row, one)
    expected = function.reference(a.astype("f8") @ b.T.astype("f8"), like, column, row[:, None], 2.0)
    if function is whole:
        assert (result == expected).all()
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def _traced(function: tilekit.epilogue.python.EpilogueFunction, w: tk.Writer, **extents: object) -> tk.Fusion:
    return tk.Written.of(w, function, PLACES, **extents)  # type: ignore[arg-type]


def test_places_are_given() -> None:
    """An operand without a place is named."""
    w = tk.Writer("lacking", target="sm_90a", threads=128)
    n = w.parameter("n", tk.registers.U32)
    with pytest.raises(TilekitError, match="lacks the places of row") as caught:
        tk.Written.of(w, whole, {name: place for name, place in PLACES.items() if name != "row"}, columns=n)
    assert caught.value.code == "TK-EPI-001"
    for outputs in ((tk.F32,) * 5, (tk.S8,) * 5, tk.F32, "f32"):
        with pytest.raises(TilekitError, match=r"outputs=.*TK-EPI-001"):
            tk.Written.of(w, whole, PLACES, columns=n, rows=n, outputs=outputs)
    with pytest.raises(TilekitError, match="pass rows"):
        tk.Written.of(w, whole, PLACES, columns=n)


@tilekit.epilogue
def gated(x, gate, factor):  # type: ignore[no-untyped-def]
    """A second matrix, and a number."""
    return maximum(x, 0) * gate * factor


FIELDS = ({}, {"driver": "ping_pong"}, {"driver": "interleaved"}, {"mma_columns": 2, "swap_ab": True}, {"split_k": 2})


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("kind", [tilekit.Cdna3Config, tilekit.Cdna4Config])
def test_the_family_s_kernels(kind: type[tilekit.Cdna4Config], fields: dict[str, Any]) -> None:
    """`tilekit.matmul` of every driver applies a function with a matrix and a number, to the last bit."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((150, 72), (136, 72)))
    gate = rng.integers(-2, 3, (150, 136)).astype(ml_dtypes.bfloat16)
    found = tilekit.matmul(
        a, b.T, epilogue=gated(gate, 2.0), out_dtype="f32", target=kind.TARGET, config=kind(**fields)
    )
    expected = np.maximum(a.astype("f4") @ b.T.astype("f4"), 0) * gate.astype("f4") * 2
    np.testing.assert_array_equal(found, expected)
