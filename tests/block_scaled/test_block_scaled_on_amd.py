"""`tilekit.scaled_matmul` of MXFP8 and MXFP4 on gfx950: the same calls and the same float64 as on sm_100a."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.block_scaled.operands import draw, laid_out, pairs
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates, pick
from tilekit.kernels.plan import EmulatedPlan
from tilekit.runtime.assembler import assemble
from tilekit.runtime.resources import GcnResources
from tilekit.targets import GFX950

KINDS = ("mxfp8", "mxfp4")
CONFIGS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"tile": (64, 64), "mma_waves": 2},
    {"tile": (128, 64), "swap_ab": True, "split_k": 2, "counters": 2},
    {"tile": (128, 128), "mma_columns": 2, "stages": 2, "in_flight": 1},
    {"tile": (32, 48), "load_waves": 2, "mma_waves": 1, "k_group": 2},
)
PING_PONGS: tuple[dict[str, Any], ...] = (
    {"tile": (256, 256)},
    {"tile": (128, 256), "split_k": 2},
    {"tile": (256, 128), "mma_columns": 2, "swap_ab": True},
    {"tile": (128, 128), "mma_waves": 4, "mma_columns": 2},
    {"tile": (64, 64), "mma_waves": 2, "mma_columns": 2},
)
"""Rows of a wave's scales are loaded by it, by two, or by waves that have none left."""
SPECS = tuple(
    BlockScaledSpec(dtype, dtype, scaled=kind)  # type: ignore[arg-type]
    for kind, dtype in (("mxfp8", tilekit.dtypes.E4M3), ("mxfp4", tilekit.dtypes.E2M1X2))
)


def config(fields: dict[str, Any] | None) -> tilekit.Cdna4Config | None:
    """A config of these fields; None for what the picker takes."""
    return None if fields is None else tilekit.Cdna4Config(**fields)


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_exact_products(kind: str, seed: int) -> None:
    """Bit for bit: shapes, types, configs and the layout of scales going round, each under another order of waves."""
    rng = np.random.default_rng(seed + 200)
    m, n, k = (int(rng.integers(1, most)) for most in (200, 200, 500))
    k += k % 2
    p = draw(kind, m, n, k, seed=seed, types=("e4m3 e4m3", "e5m2 e4m3", "e4m3 e5m2", "e5m2 e5m2")[seed % 4])
    scales = (laid_out(p.scale_a), laid_out(p.scale_b)) if seed % 3 == 0 else (p.scale_a, p.scale_b)
    chosen = config(CONFIGS[seed % len(CONFIGS)])
    found = tilekit.scaled_matmul(p.a, p.b, *scales, out_dtype="f32", config=chosen, target="gfx950")
    np.testing.assert_array_equal(found, p.exact.astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_as_on_sm_100a(kind: str) -> None:
    """An exact product with bias, activation, residual and a scale of a whole tensor is the same on both chips."""
    p = draw(kind, 130, 136, 320, seed=3)
    rng = np.random.default_rng(1)
    bias = rng.integers(-9, 10, 136).astype(np.float32)
    residual = rng.integers(-9, 10, (130, 136)).astype(ml_dtypes.bfloat16)
    how: dict[str, Any] = {"bias": bias, "residual": residual, "beta": 2.0, "scale": 0.5, "activation": "relu"}
    both = [tilekit.scaled_matmul(*p.call, **how, target=target) for target in ("sm_100a", "gfx950")]
    np.testing.assert_array_equal(*both)
    exact = np.maximum(p.exact * 0.5 + bias + 2 * residual.astype(np.float64), 0)
    np.testing.assert_array_equal(both[1], exact.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("kind", KINDS)
def test_every_scale_has_its_place(kind: str) -> None:
    """Each block's scale is another than its neighbours', in rows, columns and K; ones show where each goes."""
    m, n, count = 140, 150, 19
    rows, columns, steps = np.arange(m)[:, None], np.arange(n)[:, None], np.arange(count)[None, :]
    left, right = 2.0 ** ((3 * rows + 5 * steps) % 7 - 3), 2.0 ** ((2 * columns + 3 * steps) % 5 - 2)
    scales = [side.astype(ml_dtypes.float8_e8m0fnu) for side in (left, right)]
    dtype = ml_dtypes.float8_e4m3fn if kind == "mxfp8" else ml_dtypes.float4_e2m1fn
    k = 32 * count
    a, b = np.ones((m, k), dtype), np.ones((n, k), dtype)
    found = tilekit.scaled_matmul(a, b.T, *scales, out_dtype="f32", target="gfx950")
    np.testing.assert_array_equal(found, (32 * left @ right.T).astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_orders_of_waves(kind: str) -> None:
    """A kernel bound once finds nothing wrong under any order of waves."""
    p = draw(kind, 70, 40, 400, seed=8)
    given = (p.a, p.b, laid_out(p.scale_a), laid_out(p.scale_b))
    kernel = tilekit.scaled_kernel_for(*given, out_dtype="f32", target="gfx950", config=config(CONFIGS[1]))
    for seed in range(5):
        plan = kernel.bind(*given, seed=seed)
        np.testing.assert_array_equal(plan(), p.exact.astype(np.float32))
        assert isinstance(plan, EmulatedPlan)
        assert plan.report.clean


def ping_pong(kind: str, fields: dict[str, Any], seed: int) -> None:
    """A product of a ping-pong to the last bit, under an order of waves, with nothing found."""
    rng = np.random.default_rng(seed)
    m, n = (int(rng.integers(1, 400)) for _ in "mn")
    p = draw(kind, m, n, 32 * int(rng.integers(1, 45)), seed=seed)
    given = (p.a, p.b, laid_out(p.scale_a), laid_out(p.scale_b))
    chosen = tilekit.Cdna4Config(driver="ping_pong", **fields)
    kernel = tilekit.scaled_kernel_for(*given, out_dtype="f32", target="gfx950", config=chosen)
    plan = kernel.bind(*given, seed=seed)
    np.testing.assert_array_equal(plan(), p.exact.astype(np.float32))
    assert isinstance(plan, EmulatedPlan)
    assert plan.report.clean


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(PING_PONGS)))
def test_ping_pong(kind: str, number: int) -> None:
    """Scales come past registers with half a tile of A, and are read in halves."""
    ping_pong(kind, PING_PONGS[number], seed=number)


@pytest.mark.breadth
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20))
def test_ping_pong_under_many_orders(kind: str, seed: int) -> None:
    """Every config under 20 orders of waves, other shapes each time."""
    for fields in PING_PONGS:
        ping_pong(kind, fields, seed + 100)


def test_the_picker_takes_a_ping_pong() -> None:
    """For large products of rows that go past registers, and for no others."""
    for spec in SPECS:
        chosen = pick(spec, GFX950, m=4096, n=4096, k=4096)
        assert (chosen.driver, chosen.tile) == ("ping_pong", (256, 256))  # type: ignore[union-attr]
        narrow = pick(replace(spec, a_load=4), GFX950, m=4096, n=4096, k=4096)
        assert narrow.driver == "warp_specialized"  # type: ignore[union-attr]


def test_packed_pairs() -> None:
    """Pairs of e2m1 may come packed."""
    p = draw("mxfp4", 40, 48, 192, seed=2)
    found = tilekit.scaled_matmul(pairs(p.a), pairs(p.b.T).T, p.scale_a, p.scale_b, out_dtype="f32", target="gfx950")
    np.testing.assert_array_equal(found, p.exact.astype(np.float32))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.scaled)
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.breadth)])
def test_candidates_assemble(spec: BlockScaledSpec, step: int) -> None:
    """What the picker may choose needs no scratch memory, and no more registers than its waves have."""
    every = candidates(spec, GFX950)
    largest = sorted(every, key=lambda one: -one.accumulators)[:1]  # type: ignore[attr-defined]
    assert len(every) > 50
    for chosen in (*largest, *every[::step]):
        text = trace(spec, chosen, GFX950)
        used = assemble(text.assembly, "gfx950", kernel_name=text.name).resources
        assert isinstance(used, GcnResources)
        assert used.stack_bytes == 0
        assert used.registers <= 512 // -(-chosen.waves // 4)  # type: ignore[attr-defined]
        assert used.static_shared_bytes == text.shared_bytes


def test_bad_input() -> None:
    """A format that the chip lacks, a chip without scales, a driver that reads halves."""
    p = draw("nvfp4", 16, 16, 64)
    with pytest.raises(ArgumentError, match=r"nvfp4 on gfx950: a scale there is of 32 elements.*nearest: mxfp4"):
        tilekit.scaled_matmul(*p.call, target="gfx950")
    p = draw("mxfp8", 16, 16, 64)
    with pytest.raises(ArgumentError, match=r"built for sm_100a, .*gfx950, and the call is for gfx942"):
        tilekit.scaled_matmul(*p.call, target="gfx942")
    with pytest.raises(ArgumentError, match=r"mxfp8 on gfx942: its matrix cores take no scales; legal: .*gfx950"):
        tilekit.compile(BlockScaledSpec(), "gfx942")
    with pytest.raises(ConfigError, match=r"driver='interleaved': scales of blocks(?s:.*)driver='ping_pong'"):
        tilekit.scaled_matmul(*p.call, target="gfx950", config=tilekit.Cdna4Config(driver="interleaved"))
    for fields, wanted in (
        ({"stages": 1}, r"stages=1: scales of blocks are loaded a stage ahead; nearest: 2"),
        ({"tile": (256, 160), "mma_columns": 1}, r"tile N=160: a wave loads the scales of 64 rows"),
    ):
        with pytest.raises(ConfigError, match=wanted):
            tilekit.scaled_matmul(*p.call, target="gfx950", config=tilekit.Cdna4Config(driver="ping_pong", **fields))
    p = draw("mxfp8", 16, 16, 50)
    with pytest.raises(ConfigError, match=r"scales of blocks go past registers, and the operands beside them do not"):
        tilekit.scaled_matmul(*p.call, target="gfx950", config=tilekit.Cdna4Config(driver="ping_pong"))


def test_explain_says_what_differs() -> None:
    """The page names the scales' tiles, and has the loop of waves that multiply."""
    page = tilekit.compile(SPECS[0], "gfx950").explain()
    assert "scale_a" in page
    assert "ScaleTile of each operand" in page
    assert "matrix cores busy" in page
