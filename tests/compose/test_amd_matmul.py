"""The warp-specialised driver on AMD chips: the file that NVIDIA's kernels have, with software loads and counters."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit.compose as tk
from tests.compose.amd_matmul import Sync, matmul
from tests.compose.composed import Array, coded, integers, padded, picking, run
from tilekit.drivers import warp_specialized
from tilekit.emulator import EmulatorError
from tilekit.emulator.gcn.kernel import Kernel
from tilekit.errors import ArgumentError, FindingWarning
from tilekit.kernels.plan import EmulatedPlan
from tilekit.runtime.resources import GcnResources

CHIPS = ("gfx942", "gfx950")
SYNCS: tuple[Sync, ...] = (tk.SplitCounterSync, tk.SingleCounterSync)
SHAPES = ((128, 64, 64), (1, 1, 1), (129, 65, 65), (77, 200, 136), (300, 130, 331), (64, 257, 7), (256, 128, 512))
F16 = np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)
VENDORS = re.compile(r"gfx|gcn|amd|nvidia|cuda|ptx|sm_\d|gmma|tcgen05|mfma|barrier|counter|\.isa\b|\.has\(|lanes", re.I)


def test_the_driver_knows_no_vendor() -> None:
    """Its code, docstrings aside, names neither vendor nor instruction set, nor asks what a chip has."""
    tree = ast.parse(Path(warp_specialized.__file__).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    assert VENDORS.search(ast.unparse(tree)) is None


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.__name__)
@pytest.mark.parametrize("target", CHIPS)
def test_exact_integers(target: str, sync: Sync) -> None:
    """Small integers, bit for bit, in shapes that end anywhere, under a seed each."""
    kernel = matmul(target, sync=sync, tile=(128, 64))
    rng = np.random.default_rng(1)
    for seed, (m, n, k) in enumerate(SHAPES):
        a, b, d = integers(rng, 3, m, k), integers(rng, 3, n, k), np.zeros((m, n), BF16)
        run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=seed)
        np.testing.assert_array_equal(d, product(a, b).astype(BF16))


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.__name__)
@pytest.mark.parametrize("target", CHIPS)
def test_loads_to_lds(target: str, sync: Sync, stages: int) -> None:
    """The same with loads that pass no registers, several stages ahead: a loader is swapped by one argument."""
    kernel = matmul(target, sync=sync, load=tk.BufferToLdsLoader, tile=(64, 64), waves=(4, 2), stages=stages)
    assert "ds_write" not in "".join(line for line in kernel.assembly.splitlines() if "tile_io" in line)
    rng = np.random.default_rng(stages)
    for seed, (m, n, k) in enumerate(((64, 64, 64), (1, 1, 8), (77, 200, 136), (129, 65, 520))):
        k += 0 if target == "gfx950" else 2
        a, b, d = integers(rng, 3, m, k), integers(rng, 3, n, k), np.zeros((m, n), BF16)
        run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=seed)
        np.testing.assert_array_equal(d, product(a, b).astype(BF16))


def test_loads_run_ahead() -> None:
    """While a stage is handed over, the loads of the next one go on; without the wait for its own, it is found."""
    kernel = matmul("gfx950", load=tk.BufferToLdsLoader, tile=(64, 64), waves=(4, 2), stages=4)
    waits = [line for line in kernel.assembly.splitlines() if "LdsWriter.wait" in line]
    assert ["vmcnt(4)" in line for line in waits] == [True, False]
    lines = kernel.assembly.replace(waits[0], "").splitlines()
    rng = np.random.default_rng(0)
    a, b = integers(rng, 3, 64, 640), integers(rng, 3, 64, 640)
    d = np.zeros((64, 64), BF16)
    broken = matmul("gfx950", load=tk.BufferToLdsLoader, tile=(64, 64), waves=(4, 2), stages=4)
    broken.__dict__["traced"] = replace(broken.traced, text="\n".join(lines))
    with pytest.raises((AssertionError, EmulatorError, FindingWarning)):
        run(broken, {"a": a, "b": b}, {"d": d}, on="emulator")
    run(kernel, {"a": a, "b": b}, {"d": d}, on="emulator")


@pytest.mark.parametrize(("target", "k", "nearest"), [("gfx950", 12, 32), ("gfx942", 7, 16)])
def test_rows_that_are_not_whole(target: str, k: int, nearest: int) -> None:
    """Loads to LDS bring a lane's bytes whole: what does not come so is refused with the nearest length."""
    kernel = matmul(target, load=tk.BufferToLdsLoader, tile=(64, 64), waves=(4, 2))
    with pytest.raises(ArgumentError, match=rf"a at address .* rows of {2 * k} bytes.*{nearest} bytes.*TK-LOAD-001"):
        kernel.bind(padded(np.zeros((3, k), BF16)), padded(np.zeros((3, k), BF16)))
    odd = beginning(np.zeros((3, 16), BF16), 0, 1)
    with pytest.raises(ArgumentError, match=r"at multiples of 4.*TK-LOAD-001"):
        kernel.bind(odd, odd)


@pytest.mark.parametrize("target", CHIPS)
def test_places(target: str) -> None:
    """Each row picks one column of the other operand: every element of the output says where it comes from."""
    kernel = matmul(target, tile=(128, 64), out=tk.F32)
    values = np.arange(1, 252, dtype=np.float32).astype(BF16)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        m, n, k = (int(rng.integers(1, most)) for most in (280, 150, 200))
        a, b, d = picking(rng, m, k), coded(rng, n, k, values=values), np.zeros((m, n), np.float32)
        run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=seed)
        np.testing.assert_array_equal(d, product(a, b))
        a, b = coded(rng, m, k, values=values), picking(rng, n, k)
        run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=seed)
        np.testing.assert_array_equal(d, product(a, b))


CONFIGS: tuple[dict[str, Any], ...] = (
    {"tile": (32, 16), "waves": (1, 1), "stages": 1},
    {"tile": (64, 32), "waves": (2, 1), "stages": 2, "slices": 2},
    {"tile": (64, 48), "waves": (1, 2), "stages": 3, "in_flight": 1},
    {"tile": (128, 128), "waves": (4, 2), "stages": 1},
    {"tile": (256, 16), "waves": (1, 4), "stages": 1, "slices": 1},
    {"tile": (256, 64), "waves": (4, 4), "stages": 1, "slices": 1},
    {"tile": (256, 128), "waves": (4, 8), "stages": 1},
    {"tile": (128, 64), "waves": (8, 4), "stages": 2, "in_flight": 1},
    {"tile": (64, 64), "waves": (4, 2), "stages": 3, "slices": 1, "load": tk.BufferToLdsLoader},
)


@pytest.mark.sampled(one_in=24)
@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.__name__)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config["tile"]))
@pytest.mark.parametrize("target", CHIPS)
def test_configs(target: str, config: dict[str, Any], sync: Sync) -> None:
    """Tiles, waves, stages and slices; assembled without a spill, and exact on the emulator."""
    kernel = matmul(target, sync=sync, dtype=tk.F16, out=tk.F16, **config)
    resources = kernel.resources
    assert isinstance(resources, GcnResources)
    assert resources.stack_bytes == 0
    assert resources.static_shared_bytes == sum(array.size for array in kernel.traced.shared)
    rng = np.random.default_rng(7)
    for seed in range(2):
        m, n, k = (int(rng.integers(1, most)) for most in (300, 200, 400))
        k = k if "load" not in config else -(-k // 8) * 8
        a, b, d = integers(rng, 2, m, k, dtype=F16), integers(rng, 2, n, k, dtype=F16), np.zeros((m, n), F16)
        run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=seed)
        np.testing.assert_array_equal(d, product(a, b).astype(F16))


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("apart", [1, 2, 3, 4, 8])
def test_any_pitch_and_address(target: str, apart: int) -> None:
    """Rows and operands that begin at any element: those at multiples of 4 bytes in pieces, others one by one."""
    kernel = matmul(target, tile=(64, 32), waves=(2, 1), out=tk.F32)
    rng = np.random.default_rng(apart)
    m, n, k = 70, 33, 130
    a, b = (beginning(integers(rng, 3, rows, k), first, apart) for rows, first in ((m, apart % 2), (n, apart)))
    d = np.zeros((m, n), np.float32)
    run(kernel, {"a": a, "b": b}, {"d": d}, on="emulator", seed=apart)
    np.testing.assert_array_equal(d, product(a, b))


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_bias_and_activation(target: str, activation: Any) -> None:
    """What an epilogue does on the way is what it does on other chips."""
    spec = tk.ElementwiseSpec(bias=tk.F32, activation=activation)
    kernel = matmul(target, tile=(64, 32), waves=(2, 1), out=tk.F32, functions=spec)
    rng = np.random.default_rng(3)
    a, b = integers(rng, 2, 70, 40), integers(rng, 2, 45, 40)
    bias = rng.integers(-4, 5, 45).astype(np.float32)
    d = np.zeros((70, 45), np.float32)
    run(kernel, {"a": padded(a), "b": padded(b), "bias": bias}, {"d": d}, on="emulator", seed=3)
    x = (product(a, b) + bias).astype(np.float64)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    exact = {"relu": np.maximum(x, 0), "gelu": x / 2 * (1 + np.tanh(inner)), "silu": x / (1 + np.exp(-x))}[activation]
    np.testing.assert_allclose(d, exact, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("target", CHIPS)
def test_batches(target: str) -> None:
    """Each matrix of a batch is its own."""
    kernel = matmul(target, tile=(32, 32), waves=(1, 1), batched=True, out=tk.F32)
    rng = np.random.default_rng(4)
    a, b = integers(rng, 3, 3, 40, 70), integers(rng, 3, 3, 50, 70)
    d = np.zeros((3, 40, 50), np.float32)
    run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=4)
    np.testing.assert_array_equal(d, a.astype(np.float32) @ b.astype(np.float32).transpose(0, 2, 1))


@pytest.mark.parametrize("target", CHIPS)
def test_an_empty_sum(target: str) -> None:
    """K of 0 gives zeros."""
    d = np.ones((40, 20), np.float32)
    a, b = np.zeros((40, 0), BF16), np.zeros((20, 0), BF16)
    run(matmul(target, tile=(32, 32), waves=(1, 1), out=tk.F32), {"a": a, "b": b}, {"d": d}, on="emulator")
    assert not d.any()


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config["tile"]))
@pytest.mark.parametrize("target", CHIPS)
def test_no_bank_conflicts(target: str, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every access of a launch is counted over the chip's banks, tiles that threads write and waves read among them."""
    launch = Kernel.launch
    monkeypatch.setattr(Kernel, "launch", lambda kernel, *args, **rest: launch(kernel, *args, statistics=True, **rest))
    rng = np.random.default_rng(5)
    plan = matmul(target, **config).bind(integers(rng, 3, 130, 200), integers(rng, 3, 70, 200), seed=5)
    plan()
    assert isinstance(plan, EmulatedPlan)
    sites = plan.report.statistics.bank_sites
    written = "lds" if "load" in config else "ds_write_b128"
    kinds = {kind: [site for site in sites if kind in site.text] for kind in ("ds_read_b128", written)}
    assert all(len(found) > 1 for found in kinds.values())
    assert not [site for site in sites if site.extra]


def test_strategies_differ_by_one_argument() -> None:
    """The matrix instructions and the loads are the same, and half the counters are gone."""
    two, one = (matmul("gfx950", sync=sync) for sync in SYNCS)
    for word in ("v_mfma_f32_16x16x32_bf16", "buffer_load_dwordx4", "ds_read_b128", "ds_write_b128"):
        assert two.assembly.count(word) == one.assembly.count(word) > 0
    sizes = [sum(array.size for array in kernel.traced.shared if array.kind != "tile") for kernel in (two, one)]
    assert sizes == [16, 8]


def test_rows_too_far_apart() -> None:
    """A tile's rows lie within a buffer: a pitch that does not fit is refused with the largest that does."""
    kernel = matmul("gfx950", tile=(128, 64))
    far = np.empty((2, 1 << 25), BF16)[:, :8]
    with pytest.raises(ArgumentError, match=r"a has rows 33554432 elements apart.*nearest: 16777215.*TK-LOAD-001"):
        kernel.bind(far, np.zeros((1, 8), BF16))


def product(a: Array, b: Array) -> Array:
    """A B^T in f32, exact for small integers."""
    exact: Array = a.astype(np.float32) @ b.astype(np.float32).T
    return exact


def beginning(values: Array, first: int, apart: int) -> Array:
    """The same values, the first row `first` elements behind the beginning of memory, a row so many behind the last."""
    rows, columns = values.shape
    memory = np.full(first + rows * (columns + apart), np.nan, values.dtype)
    size = values.itemsize
    part = np.lib.stride_tricks.as_strided(memory[first:], values.shape, ((columns + apart) * size, size))
    part[...] = values
    return part
