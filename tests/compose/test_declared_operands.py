"""What components take an operand to be is what the kernel declares: else each of these runs, clean, and is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import upright

import tilekit
import tilekit.compose as tk
from tilekit.assembly.errors import TraceError
from tilekit.assembly.uses import Use
from tilekit.compose.declared import Declared


@tilekit.epilogue
def scaled(x: Any, scale: Any) -> Any:
    """The product times a scale."""
    return x * scale


@tilekit.epilogue
def summed(x: Any) -> Any:
    """The product, and the sums of its rows."""
    return x, tilekit.epilogue.row_sum(x)


def written(place: tk.Place) -> Callable[..., Any]:
    """An epilogue whose `scale` lies so."""

    def make(w: tk.Writer, made: upright.Made) -> tuple[Any, None]:
        places = {"scale": place}
        functions = tk.Written.of(w, scaled, places, columns=made.n, rows=made.m)
        return upright.staged(w, made, functions), None

    return make


def totals(w: tk.Writer, made: upright.Made) -> tuple[Any, None]:
    """An epilogue that adds rows up."""
    functions = tk.Written.of(w, summed, {}, columns=made.n, rows=made.m, layout=made.layout, tiles=made.raster)
    return upright.staged(w, made, functions), None


def elementwise(**spec: Any) -> Callable[..., Any]:
    """An epilogue of the built-in functions."""

    def make(w: tk.Writer, made: upright.Made) -> tuple[Any, None]:
        functions = tk.Elementwise(w, tk.ElementwiseSpec(**spec), columns=made.n, precise=False, rows=made.m)
        return upright.staged(w, made, functions), None

    return make


PLAIN = elementwise()
ROW = tk.Place("row", tk.F32)


def refusal(*others: Any, epilogue: Callable[..., Any], **options: Any) -> str:
    """What the kernel says when it is traced."""
    with pytest.raises(TraceError) as caught:
        upright.matmul(*others, epilogue=epilogue, loads=False, **options).traced  # noqa: B018  # tracing raises
    assert caught.value.code == "TK-COMP-009"
    return str(caught.value)


@pytest.mark.parametrize("out", [tk.F16, tk.F32])
def test_output_of_another_type(out: tk.DType) -> None:
    """An epilogue that stores bf16 to a matrix of another type."""
    said = refusal(epilogue=PLAIN, outputs=(tk.Output("d", out, "mn"),))
    assert f"StagedEpilogue(out=) uses 'd': the kernel upright declares it as {out}, and here it is bf16" in said
    assert f"nearest: {out} here" in said


def test_operand_of_another_type() -> None:
    """A tile of bf16 over an operand of as many bits, and over one of fewer."""
    for dtype in (tk.F16, tk.S8):
        inputs = (tk.Input("a", dtype, "mk"), tk.Input("b", tk.BF16, "nk"))
        said = refusal(epilogue=PLAIN, inputs=inputs)
        assert f"TmaLoader(tile=) uses 'a': the kernel upright declares it as {dtype}" in said


def test_operand_along_the_other_side() -> None:
    """B loaded along M, and an operand whose rows are not what the tile takes them to be."""
    inputs = (tk.Input("a", tk.BF16, "nk"), tk.Input("b", tk.BF16, "mk"))
    said = refusal(epilogue=PLAIN, inputs=inputs)
    assert "AlongRows(loader=) uses 'a'" in said
    assert "loaded along M, K contiguous; nearest: 'mk'" in said
    inputs = (tk.Input("a", tk.BF16, "mk"), tk.Input("b", tk.BF16, "kn"))
    assert "AlongColumns(loader=) uses 'b'" in (said := refusal(epilogue=PLAIN, inputs=inputs))
    assert "nearest: 'nk'" in said


@pytest.mark.parametrize(
    ("operand", "place", "says"),
    [
        (tk.Input("scale", tk.F32, "m"), tk.Place("row", tk.BF16), "as f32, and here it is bf16"),
        (tk.Input("scale", tk.F32, "m"), tk.Place("column", tk.F32), "an element for each column of d; nearest: 'n'"),
        (tk.Input("scale", tk.F32, "n"), ROW, "an element for each row of d; nearest: 'm'"),
        (tk.Input("scale", tk.F32, "nm"), tk.Place("matrix", tk.F32), "for each element of d; nearest: 'mn'"),
        (tk.Input("scale", tk.F32, "m"), tk.Place("scalar", tk.F32), "one element for all of d; nearest: a letter"),
        (tk.Input("scales", tk.F32, "m"), ROW, "declares only a, b, scales, d; nearest: 'scales'"),
    ],
)
def test_places(operand: tk.Input, place: tk.Place, says: str) -> None:
    """Operands of a Python epilogue whose places are not as they are declared."""
    said = refusal(operand, epilogue=written(place))
    assert "Written(places=) uses 'scale'" in said
    assert says in said


def test_totals() -> None:
    """Sums of rows in an output of another type or of columns."""
    for dtype, shape, says in ((tk.BF16, "m", "as bf16, and here it is f32"), (tk.F32, "n", "nearest: 'm'")):
        said = refusal(epilogue=totals, outputs=(upright.D, tk.Output("total0", dtype, shape)))
        assert "RowSums(name=) uses 'total0'" in said
        assert says in said


def test_built_in_functions() -> None:
    """A bias of another type, and scales of rows declared as of columns."""
    said = refusal(tk.Input("bias", tk.BF16, "n"), epilogue=elementwise(bias=tk.F32))
    assert "Elementwise(spec.bias=) uses 'bias'" in said
    said = refusal(tk.Input("scale_a", tk.F32, "n"), epilogue=elementwise(scale_a=True))
    assert "Elementwise(spec.scale_a=) uses 'scale_a'" in said


def test_as_declared() -> None:
    """What is as declared is taken: a scalar with a letter of its own, rows, and their sums."""
    random = np.random.default_rng(3)
    a, b = (random.integers(-2, 3, (rows, 64)).astype(tk.BF16.numpy) for rows in (70, 72))
    product = a.astype(np.float32) @ b.astype(np.float32).T
    scalar = upright.matmul(tk.Input("scale", tk.F32, "j"), epilogue=written(tk.Place("scalar", tk.F32)), loads=False)
    assert (scalar(a, b, np.float32([2])) == (2 * product).astype(tk.BF16.numpy)).all()
    sums = upright.matmul(epilogue=totals, outputs=(upright.D, tk.Output("total0", tk.F32, "m")))
    assert (sums(a, b)[1] == product.sum(1)).all()


@pytest.mark.parametrize("store", [upright.staged, upright.direct])
@pytest.mark.parametrize("transposed", [False, True])
def test_an_output_that_lies_the_other_way(store: Callable[..., Any], transposed: bool) -> None:
    """An epilogue that stores rows of M to an output declared with rows of N, and one that stores the transpose."""

    def epilogue(w: tk.Writer, made: upright.Made) -> tuple[Any, None]:
        functions = tk.Elementwise(w, tk.ElementwiseSpec(), columns=made.n, precise=False)
        return store(w, made, functions, transposed=transposed), None

    right, wrong = ("nm", "mn") if transposed else ("mn", "nm")
    said = refusal(epilogue=epilogue, outputs=(tk.Output("d", tk.BF16, wrong),))
    assert f"Epilogue(transposed=) uses 'd': the kernel upright declares its shape as '{wrong}'" in said
    assert f"nearest: '{right}'" in said


def test_the_transpose_is_stored_as_declared() -> None:
    """An output with rows of N and an epilogue that takes the accumulators for its transpose."""
    random = np.random.default_rng(4)
    a, b = (random.integers(-2, 3, (rows, 64)).astype(tk.BF16.numpy) for rows in (72, 80))

    def epilogue(w: tk.Writer, made: upright.Made) -> tuple[Any, None]:
        functions = tk.Elementwise(w, tk.ElementwiseSpec(), columns=made.m, precise=False)
        return upright.staged(w, made, functions, transposed=True), None

    kernel = upright.matmul(epilogue=epilogue, outputs=(tk.Output("d", tk.BF16, "nm"),), loads=False)
    expected = b.astype(np.float32) @ a.astype(np.float32).T
    assert (kernel(a, b) == expected.astype(tk.BF16.numpy)).all()


@pytest.mark.parametrize(
    ("function", "places", "says"),
    [
        (lambda x: x, {}, r"legal: a function that tilekit.epilogue marks.*nearest: @tilekit.epilogue above its def"),
        (scaled(2.0), {}, r"Written.of\(scaled\(\.\.\.\), called\).*nearest: scaled"),
        (scaled, {"scale": ROW, "scal": ROW}, "has no operand 'scal'; it has scale; nearest: scale"),
        (scaled, {}, "lacks the places of scale"),
    ],
)
def test_what_is_no_function_of_an_epilogue(function: Any, places: dict[str, tk.Place], says: str) -> None:
    """A plain function, one that has been called, and places that are not its operands'."""
    w = tk.Writer("written", target="sm_90a", threads=256)
    columns = w.parameter("columns", tk.registers.U32, lambda call: call.n)
    with pytest.raises(TraceError, match=says) as caught:
        tk.Written.of(w, function, places, columns=columns)
    assert caught.value.code == "TK-EPI-001"


def test_a_loader_of_ones_own_fills_a_tile_of_any_name() -> None:
    """What lies along M or N is known by its tile, whose name is no array's where a loader of one's own fills it."""
    operands = (tk.Input("b", tk.BF16, "nk"), tk.Input("b2", tk.BF16, "nk"), tk.Output("d", tk.BF16, "nk"))
    declared = Declared("dual", operands)
    declared(Use("AlongColumns", "loader", "both", None, "n"))
    with pytest.raises(TraceError, match=r"TmaLoader\(tile=\) uses 'both': .* declares only b, b2, d; nearest: 'b'"):
        declared(Use("TmaLoader", "tile", "both", tk.BF16))
