"""Specs, configs and picks: what is legal, what is refused and how, and what is chosen."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.gemv.gemv_case import kernel_for
from tests.matmul.matmul_machine import aligned
from tilekit import ElementwiseSpec, MatmulConfig
from tilekit.arrays import view_of
from tilekit.dtypes import E4M3
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.dispatch import offer
from tilekit.kernels.family import Declined, Selection
from tilekit.kernels.gemv.compiled import GemvKernel, compiled
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.family import GEMV
from tilekit.kernels.gemv.picker import candidates, estimate, pick, uneven
from tilekit.kernels.gemv.problem import access, read_gemv
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.problem import MatmulCall
from tilekit.targets import SM_90A

SPECS = (
    GemvSpec(),
    GemvSpec(b_major="mn", tokens=8),
    GemvSpec("e4m3", "e5m2", tokens=4),
    GemvSpec(a_access=2, b_access=16),
    GemvSpec(b_major="mn", a_access=16, b_access=4),
)

BROKEN = (
    {"groups": 3},
    {"depth": 0},
    {"warps": 5},
    {"cluster": 16},
    {"ctas_per_sm": 3},
    {"prefetch": 9},
    {"l2_bytes": 64},
    {"overlap": 0},
    {"depth": 8},
    {"groups": 4, "depth": 2},
    {"warps": 16, "cluster": 8},
    {"ctas_per_sm": 4},
)


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_the_nearest_value_mends_a_config(spec: GemvSpec, broken: dict[str, int]) -> None:
    """Every broken rule ends with a value; taking what is said until nothing is left gives a config that builds."""
    config = GemvConfig(**{"depth": 1, **broken})
    assert config.problems(SM_90A, spec)
    for _ in range(4):
        found = config.problems(SM_90A, spec)
        if not found:
            break
        changes = re.findall(r"(\w+)=(\d+)", found[0].partition("nearest:")[2])
        assert changes, found[0]
        config = replace(config, **{name: int(value) for name, value in changes})
    assert not config.problems(SM_90A, spec)
    assert GemvKernel(spec, config, SM_90A).ptx


def test_a_config_that_cannot_be_built_lists_its_problems() -> None:
    """Tracing a broken config raises with every rule at once: two fields, and then the registers of what is nearest."""
    with pytest.raises(ConfigError, match="warps=5") as caught:
        GemvKernel(GemvSpec(), GemvConfig(groups=3, warps=5), SM_90A)
    assert [problem.split("; nearest: ")[1] for problem in caught.value.problems] == ["groups=4", "warps=4", "depth=1"]
    assert caught.value.code == "TK-GV-005"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tokens": 3}, "TK-GV-001"),
        ({"a_access": 1}, "TK-GV-002"),
        ({"b_access": 32}, "TK-GV-002"),
        ({"b_dtype": "f16"}, "TK-MM-001"),
        ({"out_dtype": "e4m3", "functions": ElementwiseSpec(residual=E4M3)}, "TK-MM-002"),
        ({"a_dtype": "f32", "b_dtype": "f32"}, "TK-MM-001"),
        ({"a_dtype": "e4m3", "b_dtype": "e4m3", "b_major": "mn"}, "TK-GV-004"),
    ],
)
def test_specs_that_no_kernel_computes(changes: dict[str, Any], code: str) -> None:
    """Types, majors, tokens and widths that do not go together are refused where the spec is made."""
    with pytest.raises(ArgumentError) as caught:
        GemvSpec(**changes)
    assert caught.value.code == code


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_the_picker_has_candidates_for_every_spec(spec: GemvSpec) -> None:
    """Whatever the widths and types, there are legal candidates, and the pick is one of them."""
    legal = list(candidates(spec, SM_90A))
    assert legal
    for n, k in ((1, 1), (16, 0), (2112, 7168), (57344, 8192), (100_000, 64), (64, 100_000)):
        assert pick(spec, SM_90A, n=n, k=k) in legal


def test_the_pick_follows_the_shape() -> None:
    """Few columns divide K among the CTAs of a cluster; many do not; tiles end together on nearly all SMs."""
    spec = GemvSpec()
    few = pick(spec, SM_90A, n=512, k=16384)
    assert few.cluster > 1
    for n, k in ((4096, 4096), (8192, 8192), (57344, 8192), (2112, 7168), (28672, 4096), (24576, 1536)):
        config = pick(spec, SM_90A, n=n, k=k)
        chosen = estimate(config, spec, n=n, k=k, sms=132)
        assert config.cluster == 1
        assert 100 <= chosen.clusters <= 264
        tiles = -(-n // config.columns(spec))
        assert (chosen.rounds - 1) * chosen.clusters < tiles <= chosen.rounds * chosen.clusters
        assert config.ctas_per_sm * config.bytes_in_flight(spec) * chosen.filled >= 48 * 1024


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [(5120, 13824, True), (7168, 16384, True), (4608, 3584, True), (4608, 512, False), (4096, 4096, False)],
)
def test_tiles_that_spill_into_a_second_round_are_a_matmuls(n: int, k: int, expected: bool) -> None:
    """Where few tiles are left for a second round and K is long, the copy engine's matmul takes less time."""
    spec = GemvSpec()
    assert uneven(pick(spec, SM_90A, n=n, k=k), spec, SM_90A, n=n, k=k) is expected


def test_no_cluster_for_short_rows_of_k() -> None:
    """A cluster adds its sums in every round: with 8 rows in clusters of eight it takes five times as long."""
    for n, k in ((688, 1104), (4288, 1232), (6128, 648), (16384, 2048)):
        assert pick(GemvSpec(tokens=8), SM_90A, n=n, k=k).cluster == 1


def bf16(shape: tuple[int, ...], dtype: Any = np.float16) -> Any:
    """An array at a multiple of 256 bytes."""
    array = aligned(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
    array[...] = 1
    return array


def offered(a: Any, b: Any, out: Any, **how: Any) -> Selection | Declined:
    """What the family answers to a matmul of these arrays."""
    return offer(GEMV, MatmulArguments.parse(a, b, out=out, **how))


def declined(a: Any, b: Any, out: Any, **how: Any) -> str:
    """Why it leaves a matmul to others; empty where it takes it."""
    answer = offered(a, b, out, **how)
    return answer.reason if isinstance(answer, Declined) else ""


def test_which_matmuls_a_gemv_takes() -> None:
    """Up to eight rows and K-major weights; no batches, no empty operands, no other chip: the reason is said."""
    b = bf16((48, 64)).T
    for m in (1, 8):
        found = offered(bf16((m, 64)), b, bf16((m, 48)))
        assert isinstance(found, Selection)
        assert (found.kernel.spec.tokens, found.kernel.spec.b_major) == (m, "k")
        assert found.kernel.spec == kernel_for(bf16((m, 64)), b, bf16((m, 48)), ElementwiseSpec()).spec
    rows = "it takes 1 to 8 rows, without batches"
    for m in (0, 9):
        assert declined(bf16((m, 64)), b, bf16((m, 48))) == rows
    a, out = bf16((2, 64)), bf16((2, 48))
    assert declined(a, b, out, target="sm_100a") == "it is built for sm_90a, and the call is for sm_100a"
    assert "its last dimension must be contiguous" in declined(bf16((64, 2)).T, b, out)
    assert declined(bf16((1, 2, 64)), b, bf16((1, 2, 48))) == rows
    assert declined(bf16((2, 0)), bf16((0, 48)), out) == rows
    assert declined(a, b, out, config=MatmulConfig()) == "a matmul's config is given"
    assert (
        declined(
            np.ones((2, 64), np.float32),
            np.ones((48, 64), np.float32).T,
            np.ones((2, 48), np.float32),
            precision="tf32",
        )
        == "precision and accumulation are the matmul's"
    )


@pytest.mark.parametrize(("kind", "accumulation"), [("bf16", "promoted"), ("bf16", "slow"), ("e4m3", "slow")])
def test_an_accumulation_that_no_product_has(kind: str, accumulation: Any) -> None:
    """Few rows do not excuse it: a gemv leaves it to the matmul, which says what is legal."""
    dtype = GemvSpec(kind, kind).a_dtype.numpy
    a, b = np.zeros((2, 64), dtype), np.zeros((48, 64), dtype).T
    with pytest.raises(ArgumentError, match="accumulation") as caught:
        tilekit.kernel_for(a, b, accumulation=accumulation)
    assert caught.value.code == "TK-MM-027"
    fp8 = GemvSpec("e4m3", "e4m3").a_dtype.numpy
    kernel = tilekit.kernel_for(a.astype(fp8), b.T.astype(fp8).T, accumulation="promoted")
    assert isinstance(kernel, GemvKernel)


def test_what_the_copy_engine_brings_a_matmul_is_left_to_it() -> None:
    """Weights with N contiguous, and 8-bit ones of three rows and more, are a gemv's only where TMA refuses them."""
    fp8, why = GemvSpec("e4m3", "e4m3").a_dtype.numpy, "the copy engine brings a matmul these operands"
    for n, reason in ((48, why), (47, "")):
        assert declined(bf16((2, 64)), bf16((64, n)), bf16((2, n))).startswith(reason)
        assert bool(declined(bf16((2, 64)), bf16((64, n)), bf16((2, n)))) == bool(reason)
    for m, taken in ((2, True), (3, False)):
        a, b, out = np.zeros((m, 64), fp8), np.zeros((48, 64), fp8).T, bf16((m, 48))
        assert isinstance(offered(a, b, out), Selection) == taken


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "code"),
    [((2, 64), (32, 48), "TK-GV-003"), ((9, 64), (64, 48), "TK-GV-003"), ((64,), (64, 48), "TK-GV-003")],
)
def test_shapes_that_are_no_gemv(a_shape: tuple[int, ...], b_shape: tuple[int, ...], code: str) -> None:
    """Another K, too many rows and missing dimensions are named."""
    with pytest.raises(ArgumentError) as caught:
        read_gemv(view_of(bf16(a_shape), "a"), view_of(bf16(b_shape), "b"))
    assert caught.value.code == code


def test_strides_that_are_no_gemv() -> None:
    """A must have K contiguous; B one of its dimensions, which for fp8 is K."""
    a, b = bf16((2, 64)), bf16((64, 48))
    fp8 = np.zeros((64, 48), GemvSpec("e4m3", "e4m3").a_dtype.numpy)
    for left, right in ((bf16((64, 2)).T, b), (a, b[::2, ::2].repeat(2, 0)[:, ::2]), (fp8[:2, :48], fp8[:48, :])):
        with pytest.raises(ArgumentError) as caught:
            read_gemv(view_of(left, "a"), view_of(right, "b"))
        assert caught.value.code == "TK-GV-004"


def test_one_row_has_no_pitch() -> None:
    """With a single row, or a single column, the other stride says nothing about alignment."""
    row = np.lib.stride_tricks.as_strided(bf16((1, 64)), (1, 64), (6, 2))
    view = view_of(row, "a")
    problem = read_gemv(view, view_of(bf16((64, 48)), "b"))
    assert access(view, problem.a) == 16


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda k, a, b: k.bind(bf16((4, 64)), b), "up to 2"),
        (lambda k, a, b: k.bind(a, b.T.copy().T), "b's major is k"),
        (lambda k, a, b: k.bind(a, bf16((64, 50))[:, 1:49]), r"GemvSpec\(b_access=2\)"),
        (lambda k, a, b: k.bind(a, b, bias=np.ones(48, np.float32)), "bias's type is f32"),
        (lambda k, a, b: k.bind(a, b, scale=2.0), "scale is value"),
        (lambda k, a, b: k.bind(a, b, device="gpu"), "'cuda'"),
    ],
)
def test_arrays_that_do_not_fit_the_kernel(call: Any, says: str) -> None:
    """What differs from what the kernel was built for is named, with the spec to build instead."""
    a, b = bf16((2, 64)), bf16((64, 48))
    out = bf16((2, 48))
    kernel = kernel_for(a, b, out, ElementwiseSpec())
    with pytest.raises(ArgumentError, match=says) as caught:
        call(kernel, a, b)
    assert caught.value.code == "TK-GV-007"


def test_extents_beyond_32_bits() -> None:
    """A K that cannot be counted is refused before anything is launched."""
    kernel = compiled(GemvSpec("f16", "f16", "f16", a_access=2, b_access=2), GemvConfig(depth=1), SM_90A)
    problem = read_gemv(view_of(bf16((1, 8)), "a"), view_of(bf16((8, 8)), "b"))
    huge = replace(problem, k=1 << 31)
    with pytest.raises(ArgumentError) as caught:
        kernel.launch_of(MatmulCall(huge, problem.b), Addresses(a=0, b=0, out=0), 132, lambda size: size)
    assert caught.value.code == "TK-GV-006"
