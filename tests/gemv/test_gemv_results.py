"""Every gemv gives the right numbers, writes every element of its output, and touches nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.gemv.gemv_case import Gemv, check, kernel_for, kernel_of
from tests.matmul.matmul_case import Layout
from tests.matmul.matmul_data import inputs_of
from tests.matmul.matmul_machine import Machine
from tilekit import ElementwiseSpec
from tilekit.dtypes import F16, as_dtype
from tilekit.kernels.gemv.compiled import compiled
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.targets import SM_90A

TYPES = ("bf16", "f16", "e4m3", "e5m2", "e4m3.e5m2")
OUTS = ("bf16", "f16", "f32")
RAGGED = (1, 7, 8, 129, 1000)

EVERY_TYPE = [
    Gemv(m, 83, 472 if out == "f32" else 200, dtype=dtype, out=out, major=major, seed=m)
    for dtype, out, major in itertools.product(TYPES, (*OUTS, "e4m3", "e5m2"), ("k", "n"))
    if major == "k" or dtype in ("bf16", "f16")
    for m in (1, 8)
]

CONFIGS = [
    *(GemvConfig(groups=g, depth=d) for g, d in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (4, 1))),
    *(GemvConfig(depth=2, warps=w, ctas_per_sm=s) for w, s in ((2, 8), (4, 2), (16, 1))),
    *(GemvConfig(depth=1, cluster=c, warps=w) for c, w in ((2, 8), (4, 4), (8, 2), (8, 8))),
    GemvConfig(depth=2, prefetch=0, overlap=1, l2_bytes=128),
    GemvConfig(depth=1, prefetch=8, overlap=64),
]


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("gemv", EVERY_TYPE, ids=str)
def test_every_type(machine: Machine, gemv: Gemv) -> None:
    """Integers whose sums are exact give every bit of the product, for each pair of types, output and major."""
    check(machine, gemv)


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize(("n", "k"), list(itertools.product(RAGGED, RAGGED)))
@pytest.mark.parametrize("major", ["k", "n"])
def test_ragged(machine: Machine, n: int, k: int, major: str) -> None:
    """Any N and K, odd ones too, in arrays without padding, with the picker's config."""
    check(machine, Gemv(3 if n == 129 else 1, n, k, major=major, out="bf16" if k == 7 else "f32", seed=n + k))


POSITIONS = [
    Gemv(5, 72, 2600, major=major, config=config, data=data, seed=2)  # type: ignore[arg-type]
    for config, major, data in itertools.product(CONFIGS, ("k", "n"), ("coded_a", "coded_b"))
    if not config.problems(SM_90A, GemvSpec(b_major="k" if major == "k" else "mn", tokens=8))
]


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("gemv", POSITIONS, ids=str)
def test_every_config_by_position(machine: Machine, gemv: Gemv) -> None:
    """Each element of A, then of B, is where it must be: its value tells its place and comes through unchanged."""
    check(machine, gemv)


@pytest.mark.parametrize("m", range(1, 9))
def test_every_m(machine: Machine, m: int) -> None:
    """Each number of tokens, with the narrowest kernel and with the one for eight, leaves the rows below alone."""
    for tokens in {None, 8}:
        check(machine, Gemv(m, 40, 264, tokens=tokens, data="coded_a", seed=m))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("major", ["k", "n"])
def test_functions(machine: Machine, activation: str | None, out: str, major: str) -> None:
    """Scale, bias and activation of normal numbers stay within the bound of the tensor core's sum and the rounding."""
    check(
        machine,
        Gemv(
            3,
            203,
            256,
            out=out,
            major=major,
            scale="array" if out == "f16" else "number",
            bias=out,
            activation=activation,
            data="normal",
            leads=(0, 0, 1),
        ),
    )


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("operand", "pad", "lead", "access"),
    [
        (o, *rest)
        for o in (0, 1)
        for rest in ((4, 0, 8), (0, 4, 8), (2, 0, 4), (0, 2, 4), (1, 0, 2), (0, 1, 2), (3, 5, 2))
    ],
)
@pytest.mark.parametrize("major", ["k", "n"])
def test_any_alignment(machine: Machine, major: str, operand: int, pad: int, lead: int, access: int) -> None:
    """An address or pitch that 16 bytes do not divide is read by the widest loads that do, nothing around it."""
    pads, leads = [0, 0, 0], [0, 0, 0]
    pads[operand], leads[operand] = pad, lead
    gemv = Gemv(2, 72, 136, major=major, pads=tuple(pads), leads=tuple(leads), data="coded_b" if operand else "coded_a")  # type: ignore[arg-type]
    spec = check(machine, gemv).spec
    assert (spec.a_access, spec.b_access)[operand] == access
    assert (spec.a_access, spec.b_access)[1 - operand] == 16


@pytest.mark.parametrize("k", [1, 2, 4, 8, 100])
def test_fp8_of_any_width(machine: Machine, k: int) -> None:
    """8-bit operands whose rows only single bytes, or 2, 4 and 8, divide."""
    spec = check(machine, Gemv(4, 37, 3 * k, dtype="e4m3")).spec
    assert spec.a_access == spec.b_access == (k if k < 100 else 4)


@pytest.mark.parametrize(
    "config",
    [
        GemvConfig(depth=1, warps=2),
        GemvConfig(depth=1, warps=2, cluster=2),
        GemvConfig(groups=2, depth=1, warps=2),
    ],
    ids=str,
)
@pytest.mark.parametrize("major", ["k", "n"])
def test_many_tiles_a_cta(machine: Machine, config: GemvConfig, major: str) -> None:
    """With more tiles than CTAs, loads run on from tile to tile, the last tile is ragged, and no sum leaks over."""
    columns = 16 if major == "k" else 64
    sms = 4 if machine.name == "emulator" else 132
    tiles = sms // config.cluster * 2 + 1
    n = columns * config.groups * tiles - 8
    check(machine, Gemv(2, n, 344, major=major, config=config, bias="f32", pads=(0, 8, 3), sms=sms))


@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize(("m", "major", "warps"), [(1, "k", 8), (8, "n", 2)])
def test_residual(machine: Machine, out: str, m: int, major: str, warps: int) -> None:
    """A residual is added before the activation."""
    n, k, dtype = 75, 96, as_dtype(out)
    rng = np.random.default_rng(m)
    a, b, c = (rng.integers(-2, 3, shape).astype(dtype.numpy) for shape in ((m, k), (k, n), (m, n)))
    expected = np.maximum(0.5 * (a.astype(np.float64) @ b.astype(np.float64)) - 2 * c.astype(np.float64), 0)
    operand = F16 if out == "f32" else dtype
    functions = ElementwiseSpec(scale="value", residual=dtype, activation="relu")
    left = machine.place(a.astype(operand.numpy))
    strides = (1, k) if major == "k" else (n, 1)
    right = machine.place(b.astype(operand.numpy), Layout((k, n), strides))
    into = machine.place_output(dtype, Layout((m, n), (n + 2, 1), 3))
    added = machine.place(c, Layout((m, n), (n + 5, 1), 1))
    spec = kernel_for(left.array, right.array, into.array, functions).spec
    kernel = compiled(spec, GemvConfig(depth=1, warps=warps), SM_90A)
    kernel.bind(left.array, right.array, into.array, scale=0.5, residual=added.array, beta=-2.0)()
    assert np.array_equal(into.read().astype(np.float64), expected)
    into.check_surroundings()
    added.check_unchanged()


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("major", ["k", "n"])
def test_early_weights(machine: Machine, ready: bool, major: str) -> None:
    """Weights that are read before the kernel ahead is complete, or brought into L2, are the same weights."""
    check(machine, Gemv(4, 72, 1544, major=major, ready=ready, config=GemvConfig(depth=1, cluster=2)))


@pytest.mark.parametrize("out", OUTS)
def test_without_k(machine: Machine, out: str) -> None:
    """An empty sum is zero, and scale, bias and activation still apply."""
    check(machine, Gemv(2, 70, 0, out=out, scale="number", bias="f32", activation="relu"))


@pytest.mark.parametrize(("m", "n"), [(0, 16), (2, 0), (0, 0)])
def test_empty_outputs(machine: Machine, m: int, n: int) -> None:
    """An output without elements is returned as it is."""
    a = machine.place(np.zeros((m, 32), np.float16)).array
    b = machine.place(np.zeros((32, n), np.float16)).array
    out = machine.place(np.zeros((m, n), np.float16)).array
    other = machine.place(np.zeros((2, 8), np.float16)).array
    weights = machine.place(np.zeros((8, 8), np.float16)).array
    kernel = kernel_of(Gemv(2, 8, 8, dtype="f16"), other, weights, other)
    assert kernel.bind(a, b, out)() is out


def test_the_same_bits_each_time(machine: Machine) -> None:
    """Normal numbers, whose sums depend on the order of adding, give the same bits in every schedule."""
    gemv = Gemv(3, 75, 2056, config=GemvConfig(depth=1, cluster=2), data="normal")
    inputs = inputs_of(gemv.case)
    a_layout, b_layout, out_layout = gemv.layouts
    a, b = machine.place(inputs.a, a_layout), machine.place(inputs.b, b_layout)
    results = []
    for seed in range(3 if machine.name == "emulator" else 50):
        out = machine.place_output(gemv.case.out_dtype, out_layout)
        kernel = kernel_of(gemv, a.array, b.array, out.array)
        kernel.bind(a.array, b.array, out.array, seed=seed)()
        results.append(out.read())
    assert np.isfinite(results[0]).all()
    for result in results[1:]:
        assert np.array_equal(result.view(np.uint32), results[0].view(np.uint32))
