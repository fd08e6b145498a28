"""Functions of an epilogue: in every epilogue and cluster, and what does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import upright
from composed import BF16, Array, integers, padded, run

import tilekit.compose as tk
from tilekit.arrays.staging import EmulatedStaging
from tilekit.assembly.errors import TraceError


def plus_gate(w: tk.Writer, x: tk.Value, gate: tk.Value) -> tk.Value:
    """Nothing like zero where the product is."""
    return x + gate + 1.0


def plus_one(w: tk.Writer, x: tk.Value) -> tk.Value:
    """One where the product is zero, beyond the output too."""
    return x + 1.0


def summed(w: tk.Writer, made: upright.Made, **options: Any) -> tk.RowSums:
    """Sums of the output's rows."""
    return tk.RowSums(w, "sums", **{"layout": made.layout, "raster": made.raster} | options)


def ring(w: tk.Writer, made: upright.Made) -> tk.SourceRing:
    """The gate, loaded by a role of its own."""
    roles = {"loads": upright.PLAN["epilogue_load"], "reads": upright.PLAN["mma"]}
    return tk.SourceRing(w, made.layout, name="gate", matrix="gate", dtype=tk.BF16, stages=2, **roles)


def staged_with_gate(w: tk.Writer, made: upright.Made) -> tuple[Any, Any]:
    """Through shared memory."""
    functions, gate = tk.Fused(plus_gate, source=tk.BF16, row_sums=summed(w, made)), ring(w, made)
    return upright.staged(w, made, functions, source=gate), gate


def direct_with_gate(w: tk.Writer, made: upright.Made) -> tuple[Any, Any]:
    """From registers; the gate's elements by coordinates."""
    functions = tk.Fused(plus_gate, source=tk.BF16, row_sums=summed(w, made))
    return upright.direct(w, made, functions, source="gate"), None


def staged_plain(w: tk.Writer, made: upright.Made) -> tuple[Any, Any]:
    """Without a second matrix."""
    return upright.staged(w, made, tk.Fused(plus_one, row_sums=summed(w, made))), None


GATE = tk.Input("gate", tk.BF16, "mn")
OUTPUTS = (upright.D, upright.SUMS)


def check(kernel: tk.ComposedKernel, m: int, n: int, k: int, *, gate: bool, seed: int) -> None:
    """Small integers, to the bit."""
    rng = np.random.default_rng(seed)
    inputs = {"a": integers(rng, 3, m, k), "b": integers(rng, 3, n, k)}
    exact = inputs["a"].astype(np.float32) @ inputs["b"].astype(np.float32).T + 1
    if gate:
        inputs["gate"] = integers(rng, 9, m, n)
        exact += inputs["gate"].astype(np.float32)
    d, sums = np.zeros((m, n), BF16), np.zeros(m, np.float32)
    run(
        kernel,
        {name: padded(array) for name, array in inputs.items()},
        {"d": d, "sums": sums},
        on="emulator",
        seed=seed,
    )
    np.testing.assert_array_equal(d, exact.astype(BF16))
    np.testing.assert_array_equal(sums, exact.sum(1))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("cluster", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_row_sums_in_clusters(cluster: tuple[int, int]) -> None:
    """Tiles that only fill a cluster count too, and columns beyond the output add nothing."""
    kernel = upright.matmul(epilogue=staged_plain, cluster=cluster, outputs=OUTPUTS)
    for seed, (m, n) in enumerate([(70, 200), (1, 8), (130, 64)]):
        check(kernel, m, n, 72, gate=False, seed=seed)


def test_a_second_matrix_by_coordinates() -> None:
    """From registers, where N is odd, each element meets the gate's in its place."""
    kernel = upright.matmul(GATE, epilogue=direct_with_gate, outputs=OUTPUTS, loads=False)
    for seed, (m, n) in enumerate([(70, 201), (1, 1), (64, 64), (131, 63)]):
        check(kernel, m, n, 40, gate=True, seed=seed)


def test_a_narrow_last_piece() -> None:
    """A tile of 72 columns leaves in two pieces, the second narrower, and the gate comes in two likewise."""
    kernel = upright.matmul(GATE, epilogue=staged_with_gate, outputs=OUTPUTS, tile=72)
    for seed, (m, n) in enumerate([(70, 200), (64, 72)]):
        check(kernel, m, n, 64, gate=True, seed=seed)


def test_counters_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next launch on the same memory finds every counter at zero."""
    left: list[bytes] = []
    download = EmulatedStaging.download

    def look(staging: Any, view: Any) -> None:
        left.append(staging.read_scratch("sums_counters"))
        download(staging, view)

    monkeypatch.setattr(EmulatedStaging, "download", look)
    check(upright.matmul(epilogue=staged_plain, outputs=OUTPUTS), 70, 200, 64, gate=False, seed=1)
    assert left
    assert not any(b"".join(left))


def test_sums_do_not_depend_on_the_order_of_ctas() -> None:
    """Numbers whose sum depends on the order give the same sums under every schedule."""
    kernel = upright.matmul(epilogue=staged_plain, outputs=OUTPUTS)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((rows, 64)).astype(BF16) * np.array(100, BF16) for rows in (64, 512))
    found: set[bytes] = set()
    for seed in range(6):
        launch = kernel.bind(a, b, seed=seed)
        found.add(launch()[1].tobytes())
    assert len(found) == 1


# -- what does not fit ------------------------------------------------------------------------------------------------


def refused(*others: Any, epilogue: Any, cluster: tuple[int, int] = (1, 1), outputs: Any = OUTPUTS) -> TraceError:
    """The error of a kernel that cannot be traced."""
    with pytest.raises(TraceError) as caught:
        _ = upright.matmul(*others, epilogue=epilogue, cluster=cluster, outputs=outputs).ptx
    return caught.value


class Half:
    """Some of what an epilogue's functions are."""

    source = None
    uses_rows = False

    def bind(self, w: tk.Writer) -> None:
        """Nothing."""


@pytest.mark.parametrize("make", [upright.staged, upright.direct])
def test_functions_that_lack_something_are_named(make: Any) -> None:
    """An epilogue says what an object lacks that was given as its functions, and what may be given."""
    error = refused(epilogue=lambda w, made: (make(w, made, Half()), None))
    assert error.code == "TK-EPI-001"
    assert "Half as its functions, which lacks reduces_rows, rows, columns, apply, finish_rows" in str(error)


class Totalling(tk.Elementwise):
    """Functions that say that they combine elements, and do not go on from tile to tile."""

    reduces_rows = True  # type: ignore[assignment]


@pytest.mark.parametrize("make", [upright.staged, upright.direct])
def test_functions_that_reduce_are_told_of_tiles(make: Any) -> None:
    """What combines the elements of rows has the methods of `Reducing` too, or is refused with their names."""

    def epilogue(w: tk.Writer, made: Any) -> Any:
        columns = w.constant(tk.registers.U32, 8)
        return make(w, made, Totalling(w, tk.ElementwiseSpec(), columns=columns, precise=False)), None

    error = refused(epilogue=epilogue)
    assert error.code == "TK-EPI-001"
    assert "Totalling as its functions, which lacks begin_tile, finish_tile, finish;" in str(error)


def test_a_second_matrix_needs_one_that_reads_it() -> None:
    """Functions of two matrices in an epilogue that reads none, and the other way round, name both sides."""
    error = refused(GATE, epilogue=lambda w, made: (upright.staged(w, made, tk.Fused(plus_gate, source=tk.BF16)), None))
    assert error.code == "TK-EPI-001"
    assert "a second matrix of bf16, but StagedEpilogue reads no second matrix" in str(error)
    error = refused(
        GATE, epilogue=lambda w, made: (upright.staged(w, made, tk.Fused(plus_one), source=ring(w, made)), None)
    )
    assert "no second matrix, but StagedEpilogue reads a second matrix of bf16" in str(error)


@pytest.mark.parametrize("make", [upright.staged, upright.direct])
def test_row_sums_want_whole_rows(make: Any) -> None:
    """A transposed output, and a layout or a raster of other tiles, have no warp with whole rows of a tile."""

    def transposed(w: tk.Writer, made: upright.Made) -> Any:
        return make(w, made, tk.Fused(plus_one, row_sums=summed(w, made)), transposed=True), None

    error = refused(epilogue=transposed)
    assert error.code == "TK-EPI-001"
    assert "transpose of the output" in str(error)

    def other_tiles(w: tk.Writer, made: upright.Made) -> Any:
        layout = replace(made.layout, columns=32)
        return make(w, made, tk.Fused(plus_one, row_sums=summed(w, made, layout=layout))), None

    error = refused(epilogue=other_tiles)
    assert error.code == "TK-EPI-001"
    assert "parts of rows (of 32 columns), and the tile has 64" in str(error)


@pytest.mark.parametrize("result", [None, 1.0, "text"])
def test_a_function_must_return_a_value(result: Any) -> None:
    """What a function returns that is no f32 value is shown with the function's name."""

    def careless(w: tk.Writer, x: tk.Value) -> Any:
        return result

    error = refused(epilogue=lambda w, made: (upright.staged(w, made, tk.Fused(careless)), None), outputs=(upright.D,))
    assert error.code == "TK-EPI-002"
    assert "careless returned" in str(error)


def test_an_integer_is_no_element() -> None:
    """A predicate or an integer register in place of the element is refused too."""
    fused = tk.Fused(lambda w, x: w.lane())
    error = refused(epilogue=lambda w, made: (upright.staged(w, made, fused), None), outputs=(upright.D,))
    assert error.code == "TK-EPI-002"


def test_the_copy_engine_stores_whole_units() -> None:
    """Rows that end inside 16 bytes are refused by name before anything runs, with what takes them."""
    kernel = upright.matmul(epilogue=lambda w, made: (upright.staged(w, made, tk.Fused(plus_one)), None))
    arrays: list[Array] = [np.ones((64, 64), BF16), np.ones((60, 64), BF16)]
    with pytest.raises(ValueError, match=r"d has rows of 60 bf16, 120 bytes.*128 bytes.*DirectEpilogue.*TK-STORE-001"):
        kernel(*arrays)
