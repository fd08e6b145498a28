"""The suite watches itself: wrong results must be noticed, and the generator must draw what it promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from tests.matmul.cases_sm_100a import blackwell_cases
from tests.matmul.matmul_case import DATA, Case, Kernel, Layout, legal
from tests.matmul.matmul_data import Inputs, distinct_values, inputs_of
from tests.matmul.matmul_generator import CLUSTERS, EDGES, MAJORS, OUTS, TILES, TYPES, corner_cases, emulated, generated
from tests.matmul.matmul_machine import Array, Emulator
from tests.matmul.matmul_reference import Expected, Mismatch, activate, compare, expected_of
from tests.matmul.matmul_swapped import swapped_cases, swapped_cases_on_gpu
from tilekit.dtypes import BF16, DTYPES, E4M3, F16, F32
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

HOST = Emulator()
KERNELS = (
    Kernel(),
    Kernel(a="f16", b="f16", out="f32", scale="number", bias="bf16"),
    Kernel(a="e4m3", b="e5m2", bias="f32", activation="relu"),
    Kernel(out="f16", bias="f16", activation="gelu"),
    Kernel(out="f32", activation="silu"),
)
CASES = [
    Case(
        replace(kernel, batched=batched), 130, 136, 200, batches=(3, 3) if batched else (None, None), data=data, seed=5
    )
    for kernel, data, batched in product(KERNELS, DATA, (False, True))
]


@cache
def inputs_and_expected(case: Case) -> tuple[Inputs, Expected]:
    """The inputs of a case and what they must give."""
    inputs = inputs_of(case)
    return inputs, expected_of(case, inputs, HOST)


def perfect(case: Case, inputs: Inputs) -> Array:
    """What a kernel without rounding errors but the last would return."""
    x = np.matmul(inputs.a.astype(np.float64), inputs.b.astype(np.float64)) * (
        1 if inputs.scale is None else inputs.scale
    )
    x = x if inputs.bias is None else x + inputs.bias.astype(np.float64)
    return activate(x, case.kernel.activation).astype(np.float32).astype(case.out_dtype.numpy)


def tile_transposed(case: Case, inputs: Inputs) -> Array:
    out = perfect(case, inputs)
    out[..., 64:128, 64:128] = out[..., 64:128, 64:128].swapaxes(-1, -2).copy()
    return out


def rows_swapped(case: Case, inputs: Inputs) -> Array:
    out = perfect(case, inputs)
    out[..., [8, 9], :] = out[..., [9, 8], :]
    return out


def one_row_from_the_next_tile(case: Case, inputs: Inputs) -> Array:
    out = perfect(case, inputs)
    out[..., 63, :] = out[..., 127, :]
    return out


def chunks_swapped(case: Case, inputs: Inputs) -> Array:
    """Two 16-byte chunks of one row exchanged: a wrong swizzle."""
    out = perfect(case, inputs)
    width = 16 // case.out_dtype.bytes
    left, right = out[..., 5, :width].copy(), out[..., 5, width : 2 * width].copy()
    out[..., 5, :width], out[..., 5, width : 2 * width] = right, left
    return out


def last_k_block_dropped(case: Case, inputs: Inputs) -> Array:
    k = case.k // (128 // case.a_dtype.bytes) * (128 // case.a_dtype.bytes)
    return perfect(case, replace(inputs, a=inputs.a[..., :k], b=inputs.b[..., :k, :]))


def k_blocks_crossed(case: Case, inputs: Inputs) -> Array:
    """A's first half k-block multiplied by B's second: a stage read one k-step off."""
    half = 64 // case.a_dtype.bytes
    a = inputs.a.copy()
    a[..., :half], a[..., half : 2 * half] = inputs.a[..., half : 2 * half], inputs.a[..., :half]
    return perfect(case, replace(inputs, a=a))


def one_element_not_written(case: Case, inputs: Inputs) -> Array:
    out = perfect(case, inputs)
    out[..., -1, -1] = np.nan
    return out


def bias_one_column_off(case: Case, inputs: Inputs) -> Array:
    assert inputs.bias is not None
    return perfect(case, replace(inputs, bias=np.roll(inputs.bias, 1)))


def activation_left_out(case: Case, inputs: Inputs) -> Array:
    return perfect(replace(case, kernel=replace(case.kernel, activation=None)), inputs)


def matrices_swapped(case: Case, inputs: Inputs) -> Array:
    return perfect(case, inputs)[[1, 0, 2]]


def last_bit_flipped(case: Case, inputs: Inputs) -> Array:
    out = perfect(case, inputs)
    row, column = np.argwhere(out.reshape(-1, *out.shape[-2:])[0] != 0)[0]
    out.view(np.dtype(f"u{case.out_dtype.bytes}"))[..., row, column] ^= 1
    return out


Mistake = Callable[[Case, Inputs], Array]
MISTAKES: dict[Mistake, Callable[[Case], bool]] = {
    tile_transposed: lambda case: True,
    rows_swapped: lambda case: True,
    one_row_from_the_next_tile: lambda case: True,
    chunks_swapped: lambda case: True,
    last_k_block_dropped: lambda case: True,
    k_blocks_crossed: lambda case: True,
    one_element_not_written: lambda case: True,
    bias_one_column_off: lambda case: case.kernel.bias is not None and not case.data.startswith("coded"),
    activation_left_out: lambda case: case.kernel.activation is not None and not case.data.startswith("coded"),
    matrices_swapped: lambda case: case.kernel.batched,
    last_bit_flipped: lambda case: case.exact,
}
"""Each with the cases whose result it changes: coded values have no bias, and are positive before an activation."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_right_results_pass(case: Case) -> None:
    """The rounded float64 result is accepted."""
    inputs, expected = inputs_and_expected(case)
    compare(perfect(case, inputs), expected)


@pytest.mark.parametrize(
    ("wrong", "case"),
    [
        pytest.param(wrong, case, id=f"{wrong.__name__}-{case}")
        for (wrong, applies), case in product(MISTAKES.items(), CASES)
        if applies(case)
    ],
)
def test_wrong_results_are_noticed(wrong: Mistake, case: Case) -> None:
    """Every mistake is noticed with every kind of data."""
    inputs, expected = inputs_and_expected(case)
    with pytest.raises(Mismatch, match="elements are wrong, at indices"):
        compare(wrong(case, inputs), expected)


def test_the_bound_is_tight() -> None:
    """Off by a fiftieth of its standard deviation, a result of bf16 is beyond its bound; off by a third, one of fp8."""
    for kernel, off in ((Kernel(out="f32"), 0.02), (Kernel(a="e4m3", b="e4m3", out="f32"), 0.34)):
        case = Case(kernel, 64, 64, 512, data="normal")
        inputs = inputs_of(case)
        expected = expected_of(case, inputs, HOST)
        assert expected.bound is not None
        assert expected.bound.max() < off * case.k**0.5


def test_stray_writes_are_noticed() -> None:
    """One changed byte before, between or after the rows of an output is noticed, and so is a changed operand."""
    layout = Layout((5, 7), (9, 1), 1)
    for place in (0, 511, 512, 512 + 2 * 8, 512 + 2 * (1 + 7), -1):
        out = HOST.place_output(BF16, layout)
        out.check_surroundings()
        out._memory[place] ^= 1
        with pytest.raises(AssertionError, match="1 bytes around the array changed"):
            out.check_surroundings()
    operand = HOST.place(np.ones((3, 4), np.float16))
    operand.array[2, 3] = 2
    with pytest.raises(AssertionError, match="was written to"):
        operand.check_unchanged()


def test_an_output_is_not_written_at_first() -> None:
    """Outputs start as NaN, and gaps of operands are NaN in every type."""
    for dtype in DTYPES:
        layout = Layout((2, 3), (16, 1))
        if dtype in (BF16, F16, F32):
            assert np.isnan(HOST.place_output(dtype, layout).read().astype(np.float32)).all()
        placed = HOST.place(np.ones((2, 3), dtype.numpy), layout)
        gap = placed._memory[512 + 3 * dtype.bytes : 512 + 16 * dtype.bytes].view(dtype.numpy)
        assert np.isnan(gap.astype(np.float32)).all()


def test_coded_values_tell_places_apart() -> None:
    """A coded matrix of 128 by 200 holds no value of bf16 twice, and one of fp8 none twice in a row or column's 128."""
    wide = inputs_of(Case(Kernel(), 128, 8, 200, data="coded_a")).a
    assert len(np.unique(wide.view(np.uint16))) == wide.size
    narrow = inputs_of(Case(Kernel(a="e4m3", b="e4m3"), 128, 8, 200, data="coded_a")).a.view(np.uint8)
    assert all(len(np.unique(line[:128])) == 128 for line in (*narrow, *narrow.T))
    assert len(distinct_values(E4M3, BF16)) > 200


def test_the_generator_covers_its_axes() -> None:
    """Each axis has every value often, pairs that have met bugs elsewhere all occur, and ids are unique."""
    cases = generated()
    assert len(cases) >= 500
    assert len(emulated()) >= 150
    assert len({str(case) for case in (*cases, *corner_cases())}) == len(cases) + len(corner_cases())
    kernels = {case.kernel for case in cases if case.kernel.config}
    assert all(legal(kernel) for kernel in kernels)
    configs = [kernel.config for kernel in kernels if kernel.config]
    for drawn, values, least in (
        ([(k.a, k.b) for k in kernels], TYPES, 6),
        ([k.out for k in kernels], OUTS, 20),
        ([k.majors for k in kernels], MAJORS, 6),
        ([c.cluster for c in configs], CLUSTERS, 6),
        ([(c.tile, c.consumers) for c in configs], TILES, 2),
        ([c.in_flight for c in configs], (0, 1), 20),
        ([c.output_buffers for c in configs], (1, 2, 4), 10),
        ([c.raster_group for c in configs], (None, 1, 2, 3, 8), 6),
        ([c.prefetch for c in configs], (0, 1, 4), 20),
        ([c.raster_order for c in configs], ("m", "n"), 20),
        ([c.stages for c in configs], (None, 1, 2, 3), 4),
        ([k.bias for k in kernels], (None, *OUTS), 10),
        ([k.activation for k in kernels], (None, "relu", "gelu", "silu"), 10),
        ([k.scale for k in kernels], (None, "number", "array"), 10),
        ([k.direct for k in kernels], (False, True), 10),
        ([k.batched for k in kernels], (False, True), 20),
        ([case.data for case in cases], DATA, 100),
    ):
        counts = Counter(drawn)
        assert all(counts[value] >= least for value in values), (values, counts)
    for axis in ("m", "n", "k"):
        assert {getattr(case, axis) for case in corner_cases()} >= set(EDGES)
        assert max(getattr(case, axis) for case in cases) == 8192


def test_the_blackwell_cases_cover_their_axes() -> None:
    """Every layout of tensor memory meets every major, and every schedule, store and number of accumulators occurs."""
    cases = blackwell_cases()
    assert len({str(case) for case in cases}) == len(cases)
    assert all(legal(case.kernel) or case.kernel.direct for case in cases)  # a direct one at an odd pitch never is TMA
    configs = [c for case in cases if isinstance(c := case.kernel.config, BlackwellConfig)]
    kernels = [case.kernel for case in cases if case.kernel.config]
    layouts = Counter((config.cta_group, config.tile[0]) for config in configs)
    assert all(layouts[group, rows] >= 10 for group in (1, 2) for rows in (64, 128))
    majors = Counter((kernel.a[0] == "e", kernel.majors) for kernel in kernels)
    assert all(majors[eight, major] >= 2 for eight in (False, True) for major in MAJORS)
    for drawn, values in (
        ([config.clc_stages for config in configs], (0, 2, 3)),
        ([config.accumulator_stages for config in configs], (1, 2, 3)),
        ([config.k_group for config in configs], (1, 2, 4)),
        ([config.cluster for config in configs], ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1))),
        ([kernel.direct for kernel in kernels], (False, True)),
        ([kernel.activation for kernel in kernels], (None, "relu", "gelu", "silu")),
    ):
        counts = Counter(drawn)
        assert all(counts[value] >= 2 for value in values), (values, counts)


def test_the_swapped_cases_cover_their_axes() -> None:
    """On each chip every operand type and output meets transposed stores, narrow subtiles and shared sums."""
    cases = swapped_cases()
    assert len({str(case) for case in cases}) == len(cases)
    assert len({str(case) for case in swapped_cases_on_gpu()}) == len(swapped_cases_on_gpu())
    assert {case.kernel.target for case in swapped_cases_on_gpu()} == {"sm_90a"}
    for target in ("sm_90a", "sm_100a"):
        kernels = [case.kernel for case in cases if case.kernel.target == target]
        swapped = [(k, c) for k in kernels if (c := k.config) is not None and c.swap_ab]
        assert len(swapped) < len(kernels)
        for drawn, values in (
            ([(k.out, k.direct) for k, _ in swapped], product((*OUTS, "e4m3", "e5m2"), (False, True))),
            ([(k.a, k.b) for k, _ in swapped], (*TYPES, ("f32", "f32"))),
            ([k.majors for k, _ in swapped], MAJORS),
            ([c.split_k for _, c in swapped], (1, 2, 3)),
            ([c.k_group for _, c in swapped], (1, 2, 4)),
            ([c.tile[1] % 16 for _, c in swapped], (0, 8)),
            ([getattr(c, "l2_stream", None) for _, c in swapped], (None, "a", "b") if target == "sm_90a" else (None,)),
            ([k.bias is None for k, _ in swapped], (False, True)),
        ):
            counts = Counter(drawn)
            assert all(counts[value] >= 1 for value in values), (target, counts)
