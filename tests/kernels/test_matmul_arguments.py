"""Grid and parameters of a launch: in the order the kernel declares them, with the numbers of the problem."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tilekit.arrays import view_of
from tilekit.assembly.types import F32, GMEM, MAP, U32
from tilekit.dtypes import BF16, DType
from tilekit.dtypes import F32 as F32_TYPE
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.launch import Launch
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.matmul.compiled import MatmulKernel, compiled
from tilekit.kernels.matmul.kernel import KernelText
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.problem import MatmulCall, MatmulProblem, Matrix, matrix_view, output_matrix, read_problem
from tilekit.runtime import parameters as runtime
from tilekit.targets import SM_90A, SM_100A
from tilekit.tiles.call import Major

ADDRESSES = Addresses(a=0x10000, b=0x20000, out=0x30000, bias=0x40004, scale=0)
KINDS = {U32: runtime.U32, F32: runtime.F32, GMEM: runtime.Pointer, MAP: TensorMap}

SPECS = (
    MatmulSpec(),
    MatmulSpec(store="direct"),
    MatmulSpec(batched=True, functions=ElementwiseSpec("value", BF16, "gelu")),
    MatmulSpec(batched=True, store="direct", functions=ElementwiseSpec("pointer", None, "silu")),
    MatmulSpec(out_dtype=F32_TYPE, b_major="mn"),
)


def problem_of(
    m: int, n: int, k: int, batches: int = 0, *, shared_b: bool = False, out: DType = BF16
) -> tuple[MatmulProblem, Matrix]:
    """A problem in C order and the output of its shape."""
    lead = (batches,) if batches else ()
    a = np.zeros((*lead, m, k), BF16.numpy)
    b = np.zeros((n, k) if shared_b else (*lead, n, k), BF16.numpy).swapaxes(-1, -2)
    problem = read_problem(matrix_view(a, "a"), matrix_view(b, "b"))
    return problem, output_matrix(view_of(np.zeros((*lead, m, n), out.numpy), "out"))


def launch(
    spec: MatmulSpec,
    config: MatmulConfig,
    problem: tuple[MatmulProblem, Matrix],
    addresses: Addresses = ADDRESSES,
    resident: int = 66,
) -> tuple[KernelText, Launch, dict[str, Any]]:
    """The kernel, its launch, and the launch's parameters by name."""
    kernel = compiled(spec, config, SM_90A, MatmulKernel)
    made = kernel.launch_of(MatmulCall(*problem, scale=0.5), addresses, resident, _no_scratch)
    return kernel.text, made, named(kernel, made)


def named(kernel: MatmulKernel, made: Launch) -> dict[str, Any]:
    """A launch's parameters by name."""
    return {p.name: value for p, value in zip(kernel.text.parameters, made.parameters, strict=True)}


@pytest.mark.parametrize("spec", SPECS, ids=[s.name for s in SPECS])
def test_parameters_have_the_declared_types(spec: MatmulSpec) -> None:
    """Each parameter is of the kind that the kernel declares, in its order; none is missing."""
    shape = problem_of(300, 520, 200, 3 if spec.batched else 0, out=spec.out_dtype)
    scale = dataclasses.replace(ADDRESSES, scale=0x50000) if spec.functions.scale == "pointer" else ADDRESSES
    text, made, _ = launch(spec, MatmulConfig(), shape, scale)
    for declared, given in zip(text.parameters, made.parameters, strict=True):
        assert isinstance(given, KINDS[declared.type]), declared.name


def test_numbers_of_a_problem() -> None:
    """K and edges are in elements, pitches of the output too, pointers are as given."""
    spec = MatmulSpec(store="direct", batched=True, functions=ElementwiseSpec("value", BF16))
    _, _, values = launch(spec, MatmulConfig(tile=(128, 128)), problem_of(300, 520, 200, 3))
    assert values["k"] == runtime.U32(200)
    assert (values["rows"], values["columns"]) == (runtime.U32(300), runtime.U32(520))
    assert (values["row_pitch"], values["batch_pitch"]) == (runtime.U32(520), runtime.U32(300 * 520))
    assert (values["d"], values["bias"]) == (runtime.Pointer(0x30000), runtime.Pointer(0x40004))
    assert values["scale"] == runtime.F32(0.5)
    assert (values["tile_rows"], values["tile_columns"], values["tile_count"]) == (
        runtime.U32(2),
        runtime.U32(5),
        runtime.U32(30),
    )


@pytest.mark.parametrize(("shared", "steps"), [(False, (1, 1)), (True, (1, 0))])
def test_a_shared_operand_does_not_step_with_the_batch(shared: bool, steps: tuple[int, int]) -> None:
    """An operand that every batch index shares is one matrix to the copy engine, at batch coordinate 0."""
    _, _, values = launch(MatmulSpec(batched=True), MatmulConfig(), problem_of(64, 64, 64, 5, shared_b=shared))
    assert (values["a_batch_step"], values["b_batch_step"]) == tuple(map(runtime.U32, steps))
    assert tuple(values["b_map"].dims) == (64, 64, 1 if shared else 5)  # type: ignore[union-attr]


def test_tensor_maps_describe_the_arrays() -> None:
    """Address, extents, pitches and boxes of each map; loads are promoted in L2 as the config says, stores are not."""
    config = MatmulConfig(tile=(128, 208), l2_promotion="128B")
    text, _, values = launch(MatmulSpec(), config, problem_of(300, 520, 200))
    boxes = {"a_map": (64, 128), "b_map": (64, 104), "d_map": (64, 64), "d_tail_map": (16, 64)}
    expected = {
        "a_map": (0x10000, (200, 300), (400,), "128B"),
        "b_map": (0x20000, (200, 520), (400,), "128B"),
        "d_map": (0x30000, (520, 300), (1040,), None),
        "d_tail_map": (0x30000, (520, 300), (1040,), None),
    }
    assert expected.keys() == {p.name for p in text.parameters if p.type is MAP}
    for name, (address, dims, strides, promotion) in expected.items():
        given = values[name]
        assert isinstance(given, TensorMap)
        assert (given.address, tuple(given.dims), tuple(given.strides)) == (address, dims, strides)
        assert (tuple(given.box), given.l2_promotion, given.swizzle) == (boxes[name], promotion, "128B")


@pytest.mark.parametrize(("a_major", "b_major"), [("mn", "k"), ("k", "mn"), ("mn", "mn")])
def test_f32_along_m_or_n_is_swizzled_by_32_bytes(a_major: Major, b_major: Major) -> None:
    """The maps of f32 operands whose M or N is contiguous keep 32 bytes together, those of the others 16."""
    spec = MatmulSpec(F32_TYPE, F32_TYPE, F32_TYPE, a_major, b_major, precision="tf32")
    kernel = compiled(spec, BlackwellConfig(), SM_100A, MatmulKernel)
    a, b = np.zeros((256, 64), np.float32), np.zeros((64, 256), np.float32)
    views = (
        matrix_view(a if a_major == "k" else np.asfortranarray(a), "a"),
        matrix_view(b if b_major == "mn" else np.asfortranarray(b), "b"),
    )
    out = output_matrix(view_of(np.zeros((256, 256), np.float32), "out"))
    values = named(kernel, kernel.launch_of(MatmulCall(read_problem(*views), out), ADDRESSES, 66, _no_scratch))
    for name, major in (("a_map", a_major), ("b_map", b_major)):
        wanted = ((32, 32), "128B_atom_32B") if major == "mn" else ((32, 128), "128B")
        assert (tuple(values[name].box), values[name].swizzle) == wanted
    assert values["d_map"].swizzle == "128B"


def test_an_empty_sum_reads_nothing() -> None:
    """With K = 0 there are no k-blocks, and the operands' maps point somewhere legal although there may be no array."""
    nowhere = Addresses(a=0, b=0, out=0x30002)
    _, _, values = launch(MatmulSpec(store="direct"), MatmulConfig(), problem_of(64, 64, 0), nowhere)
    assert values["k"] == runtime.U32(0)
    assert values["a_map"].address == values["b_map"].address == 0x30000  # type: ignore[union-attr]


@pytest.mark.parametrize(("resident", "grid"), [(66, 60), (10, 20), (1, 2), (7, 12)])
def test_grid_is_whole_clusters(resident: int, grid: int) -> None:
    """30 cluster tiles: as many clusters as finish in the fewest waves, times the CTAs of each."""
    config = MatmulConfig(tile=(128, 128), cluster=(2, 1))
    _, made, _ = launch(MatmulSpec(batched=True), config, problem_of(300, 520, 64, 3), resident=resident)
    assert made.grid == grid


def test_too_large_for_the_kernel() -> None:
    """A pitch that 32 bits cannot count, and a tensor beyond a tensor map's limits, are refused by name."""
    problem, out = problem_of(64, 64, 64)
    far = dataclasses.replace(out, pitch=1 << 34)
    with pytest.raises(ArgumentError, match="TK-MM-015") as caught:
        launch(MatmulSpec(store="direct"), MatmulConfig(), (problem, far))
    assert "out's row pitch" in str(caught.value)
    wide = dataclasses.replace(problem, a=dataclasses.replace(problem.a, pitch=1 << 40))
    with pytest.raises(ArgumentError, match="TK-MM-015") as caught:
        launch(MatmulSpec(), MatmulConfig(), (wide, out))
    assert str(caught.value).startswith("a cannot be described to the copy engine")
    long = dataclasses.replace(problem, a=dataclasses.replace(problem.a, extents=(1 << 31, 64)))
    with pytest.raises(ArgumentError, match="TK-MM-015") as caught:
        launch(MatmulSpec(a_load=2), MatmulConfig(cluster=(1, 1)), (long, out))
    assert "a has rows of 2147483648 contiguous elements" in str(caught.value)


def _no_scratch(name: str, size: int) -> int:
    raise AssertionError(f"this kernel asks for {size} bytes for its {name}")
