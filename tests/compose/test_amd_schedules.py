"""Schedules of AMD chips whose waves all load and multiply: two groups a barrier apart, and one interleaved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit.compose as tk
from tests.compose.amd_matmul import Load
from tests.compose.amd_matmul import matmul as specialized
from tests.compose.amd_schedules import matmul
from tests.compose.composed import Array, coded, integers, padded, picking, run
from tilekit.assembly.errors import TraceError
from tilekit.cycles import replay_loop
from tilekit.cycles.order import best_order
from tilekit.emulator.gcn.kernel import Kernel
from tilekit.kernels.plan import EmulatedPlan
from tilekit.runtime.assembler import assemble
from tilekit.runtime.resources import GcnResources

BF16 = np.dtype(ml_dtypes.bfloat16)
LDS, REGISTERS = tk.BufferToLdsLoader, tk.BufferLoader


@dataclass(frozen=True)
class Config:
    """A driver for a chip, with what it is made of, and the registers that it may need."""

    driver: str
    target: str
    load: Load
    tile: tuple[int, int]
    vgprs: int
    agprs: int = 0
    waves: tuple[int, int] | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [self.driver, self.target, "lds" if self.load is LDS else "registers", "x".join(map(str, self.tile))]
        dtype = self.more.get("dtype")
        return "-".join([*words, *([dtype.name] if dtype else []), *("x".join(map(str, w)) for w in [self.waves] if w)])

    def kernel(self, **more: Any) -> tk.ComposedKernel:
        """The kernel."""
        options = {**self.more, **more}
        return matmul(self.target, self.driver, load=self.load, tile=self.tile, waves=self.waves, **options)


FIRST = (
    Config("ping_pong", "gfx950", LDS, (256, 256), 224),
    Config("ping_pong", "gfx942", LDS, (128, 128), 104),
    Config("ping_pong", "gfx942", REGISTERS, (256, 256), 256),
    Config("interleaved", "gfx950", LDS, (256, 256), 168, 260),
    Config("interleaved", "gfx950", LDS, (128, 128), 112, 68, more={"dtype": tk.E4M3}),
    Config("ping_pong", "gfx942", LDS, (128, 128), 104, more={"dtype": tk.E4M3FNUZ}),
)
"""One of each driver and loader on each chip."""

FURTHER = (
    Config("ping_pong", "gfx950", LDS, (128, 256), 160),
    Config("ping_pong", "gfx950", LDS, (256, 128), 160),
    Config("ping_pong", "gfx950", LDS, (256, 128), 160, waves=(4, 2), more={"slices": 1}),
    Config("ping_pong", "gfx950", LDS, (128, 128), 136, more={"slices": 2}),
    Config("ping_pong", "gfx950", LDS, (128, 128), 104, more={"favoured": None, "dtype": tk.F16, "out": tk.F16}),
    Config("ping_pong", "gfx950", LDS, (128, 128), 104, more={"favoured": "memory", "dtype": tk.E5M2}),
    Config("ping_pong", "gfx950", LDS, (256, 256), 224, more={"dtype": tk.E4M3}),
    Config("ping_pong", "gfx950", LDS, (64, 64), 64, 36, waves=(1, 2)),
    Config("ping_pong", "gfx950", REGISTERS, (256, 256), 256),
    Config("ping_pong", "gfx950", REGISTERS, (128, 128), 152, more={"dtype": tk.E4M3}),
    Config("ping_pong", "gfx942", LDS, (128, 128), 128, 68, waves=(1, 4), more={"dtype": tk.F16}),
    Config("ping_pong", "gfx942", REGISTERS, (128, 256), 208),
    Config("ping_pong", "gfx942", REGISTERS, (256, 256), 256, more={"dtype": tk.E5M2FNUZ}),
    Config("interleaved", "gfx950", LDS, (256, 128), 168, 132),
    Config("interleaved", "gfx950", LDS, (128, 256), 168, 132, waves=(1, 4)),
    Config("interleaved", "gfx950", LDS, (256, 256), 168, 260, more={"dtype": tk.E5M2}),
    Config("interleaved", "gfx950", LDS, (128, 128), 136, 132, waves=(2, 1), more={"dtype": tk.F16}),
    Config("interleaved", "gfx942", LDS, (128, 128), 128, 68),
    Config("interleaved", "gfx942", LDS, (128, 128), 128, 68, more={"dtype": tk.E4M3FNUZ}),
)
"""Other tiles, grids of waves, types and priorities."""

EVERY = [*FIRST, *(pytest.param(config, marks=pytest.mark.breadth) for config in FURTHER)]
"""All of them, those that are not the first of their kind in the long run alone."""

SHAPES = ((64, 64, 64), (1, 1, 8), (270, 140, 200), (129, 257, 520))


def product(a: Array, b: Array) -> Array:
    """A B^T in f32, exact for small integers."""
    exact: Array = a.astype(np.float32) @ b.astype(np.float32).swapaxes(-1, -2)
    return exact


def check(config: Config, shape: tuple[int, int, int], seed: int) -> None:
    """Small integers, bit for bit."""
    kernel, dtype = config.kernel(), config.more.get("dtype", tk.BF16).numpy
    out = config.more.get("out", tk.BF16).numpy
    (m, n, k), rng = shape, np.random.default_rng(seed)
    k = -(-k // 16) * 16
    a, b, d = integers(rng, 2, m, k, dtype=dtype), integers(rng, 2, n, k, dtype=dtype), np.zeros((m, n), out)
    run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=seed)
    np.testing.assert_array_equal(d, product(a, b).astype(out))


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("config", FIRST, ids=str)
def test_exact_integers(config: Config) -> None:
    """Small integers, bit for bit, in a shape that ends inside tiles and k-blocks."""
    check(config, (270, 140, 200), 1)


@pytest.mark.breadth
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("config", [*FIRST, *FURTHER], ids=str)
def test_exact_integers_of_every_config(config: Config, shape: tuple[int, int, int], seed: int) -> None:
    """The same for other tiles, waves, types and shapes, under other seeds."""
    check(config, shape, seed)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("config", EVERY, ids=str)
def test_registers_and_lds(config: Config) -> None:
    """LLVM assembles each without scratch memory, in the registers that are given here, and LDS holds tiles alone."""
    kernel = config.kernel()
    resources = kernel.resources
    assert isinstance(resources, GcnResources)
    assert resources.stack_bytes == 0
    assert resources.vgprs <= config.vgprs
    assert resources.agprs <= config.agprs + 4 * (config.agprs == 0)
    stages = 1 if config.load is REGISTERS else 2
    bits = config.more.get("dtype", tk.BF16).bits
    depth = 128 * 8 // bits * config.more.get("slices", 1)
    assert resources.static_shared_bytes == stages * sum(config.tile) * depth * bits // 8
    assert {array.kind for array in kernel.traced.shared} == {"tile"}


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("config", FIRST[:4], ids=str)
def test_places(config: Config) -> None:
    """Each row picks one column of the other operand: every element of the output says where it comes from."""
    kernel = config.kernel(out=tk.F32)
    values = np.arange(1, 252, dtype=np.float32).astype(BF16)
    rng = np.random.default_rng(5)
    m, n, k = 150, 280, 136
    for a, b in (
        (picking(rng, m, k), coded(rng, n, k, values=values)),
        (coded(rng, m, k, values=values), picking(rng, n, k)),
    ):
        d = np.zeros((m, n), np.float32)
        run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=5)
        np.testing.assert_array_equal(d, product(a, b))


@pytest.mark.parametrize("driver", ["ping_pong", "interleaved"])
def test_batches_and_functions(driver: str) -> None:
    """Each matrix of a batch is its own, and an epilogue's functions are those of other drivers."""
    spec = tk.ElementwiseSpec(bias=tk.F32, activation="relu")
    kernel = matmul("gfx950", driver, tile=(128, 128), batched=True, out=tk.F32, functions=spec)
    rng = np.random.default_rng(4)
    a, b = integers(rng, 3, 3, 40, 72), integers(rng, 3, 3, 150, 72)
    bias = rng.integers(-9, 10, 150).astype(np.float32)
    d = np.zeros((3, 40, 150), np.float32)
    run(kernel, {"a": padded(a), "b": padded(b), "bias": bias}, {"d": d}, on="emulator", seed=4)
    np.testing.assert_array_equal(d, np.maximum(product(a, b) + bias, 0))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("config", FIRST[:4], ids=str)
def test_an_empty_sum(config: Config) -> None:
    """K of 0 gives zeros."""
    d = np.ones((40, 20), np.float32)
    a, b = np.zeros((40, 0), BF16), np.zeros((20, 0), BF16)
    run(config.kernel(out=tk.F32), {"a": a, "b": b}, {"d": d}, on="emulator")
    assert not d.any()


@pytest.mark.parametrize("config", [FIRST[0], FIRST[2], FIRST[3]], ids=str)
def test_several_tiles_of_a_workgroup(config: Config) -> None:
    """With fewer workgroups than tiles, the next tile finds stages and registers as the last one left them."""
    kernel = config.kernel(out=tk.F32)
    rng = np.random.default_rng(6)
    a, b, d = integers(rng, 3, 520, 136), integers(rng, 3, 270, 136), np.zeros((520, 270), np.float32)
    plan = kernel.bind(a, b, d=d, seed=6, emulator={"multiprocessors": 2})
    plan()
    assert isinstance(plan, EmulatedPlan)
    assert plan.report.clean, str(plan.report)
    np.testing.assert_array_equal(d, product(a, b))


@pytest.mark.parametrize("config", FIRST[:3], ids=str)
def test_no_bank_conflicts(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every access of a launch is counted over the chip's banks: reads, writes, and loads that write LDS."""
    launch = Kernel.launch
    monkeypatch.setattr(Kernel, "launch", lambda kernel, *args, **rest: launch(kernel, *args, statistics=True, **rest))
    dtype = config.more.get("dtype", tk.BF16).numpy
    rng = np.random.default_rng(5)
    plan = config.kernel().bind(integers(rng, 2, 130, 272, dtype=dtype), integers(rng, 2, 70, 272, dtype=dtype), seed=5)
    plan()
    assert isinstance(plan, EmulatedPlan)
    sites = plan.report.statistics.bank_sites
    for kind in ("ds_read_b128", "lds" if config.load is LDS else "ds_write_b128"):
        assert len([site for site in sites if kind in site.text]) > 1
    assert not [site for site in sites if site.extra]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "stages", [3, pytest.param(2, marks=pytest.mark.breadth), pytest.param(4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("load", [REGISTERS, LDS], ids=lambda load: load.__name__)
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_barriers_in_the_warp_specialised_driver(target: str, load: Load, stages: int) -> None:
    """A ring whose sides meet at the CTA's barrier is one argument away from one with counters."""
    kernel = specialized(
        target, sync=tk.BarrierSync, load=load, tile=(64, 64), waves=(4, 2), stages=stages, in_flight=stages % 2
    )
    assert not [array for array in kernel.traced.shared if array.kind != "tile"]
    rng = np.random.default_rng(stages)
    for seed, (m, n, k) in enumerate(((64, 64, 64), (77, 200, 136))):
        a, b, d = integers(rng, 3, m, k), integers(rng, 3, n, k), np.zeros((m, n), BF16)
        run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=seed)
        np.testing.assert_array_equal(d, product(a, b).astype(BF16))


def test_barriers_that_cannot_be() -> None:
    """A ring of one stage, and a wave that does not come to the barrier, are refused."""
    with pytest.raises(TraceError, match=r"stages=1 with a BarrierSync.*nearest: 2.*TK-TRACE-019"):
        assert specialized("gfx950", sync=tk.BarrierSync, tile=(64, 64), waves=(4, 2), stages=1).assembly
    chip = tk.chip("gfx950")
    plan = tk.WarpPlan.waves(chip, load=1, mma=1)
    w = tk.Writer("k", target=chip, threads=256)
    with pytest.raises(TraceError, match=r"2 of its 4 waves do.*SplitCounterSync.*TK-TRACE-013"):
        tk.BarrierSync(w, "r", stages=2, producers=(plan["load"],), consumers=(plan["mma"],))


def test_what_the_schedules_refuse() -> None:
    """Another number of stages, an op without halves, types of another chip, loads through registers."""
    with pytest.raises(TraceError, match=r"past registers has 2 stages, given 1.*TK-TRACE-017"):
        assert matmul("gfx950", tile=(128, 128), stages=1).assembly
    with pytest.raises(TraceError, match=r"mfma of gfx942 multiplies no e4m3.*nearest: e4m3fnuz.*TK-TRACE-017"):
        assert matmul("gfx942", tile=(128, 128), dtype=tk.E4M3).assembly
    with pytest.raises(TraceError, match=r"mfma of gfx950 multiplies no e5m2fnuz.*nearest: e5m2.*TK-TRACE-017"):
        assert matmul("gfx950", tile=(128, 128), dtype=tk.E5M2FNUZ).assembly
    with pytest.raises(TraceError, match=r"loads pass no registers.*BufferToLdsLoader.*TK-TRACE-017"):
        assert matmul("gfx950", "interleaved", load=REGISTERS, tile=(128, 128)).assembly
    a, b = (tk.OperandTile(name, tk.BF16, 128, "k") for name in "ab")
    with pytest.raises(TraceError, match=r"make no grid of columns=3; nearest: columns=2.*TK-TRACE-017"):
        tk.Mfma(a, b, waves=8, columns=3)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(
    ("driver", "dtype", "share"),
    [("ping_pong", tk.BF16, 0.97), ("ping_pong", tk.E4M3, 0.98), ("interleaved", tk.BF16, 0.98),
     ("interleaved", tk.E4M3, 0.99)],
)  # fmt: skip
def test_the_loop_by_the_model(driver: str, dtype: tk.DType, share: float) -> None:
    """The matrix cores work so much of the loop's clocks, by the cycle model."""
    assert replay_loop(matmul("gfx950", driver, dtype=dtype).assembly).utilisation > share


def test_groups_take_turns() -> None:
    """While one group multiplies, the other reads and loads: by the model no MFMA waits for a wave on its SIMD."""
    report = replay_loop(matmul("gfx950").assembly)
    assert report.idle_by_cause().get("matrix core", 0) == 0
    apart = matmul("gfx950").assembly.splitlines()
    late = next(i for i, line in enumerate(apart) if "_a_phase_late" in line and "s_barrier" in line)
    together = replay_loop("\n".join(apart[:late] + apart[late + 1 :]))
    assert together.utilisation < 0.7


def test_an_order_that_is_found() -> None:
    """The solver's order of the interleaved loop is no slower by the model, assembles alike, and computes the same."""
    pytest.importorskip("ortools")
    kernel = matmul("gfx950", "interleaved", tile=(128, 128), out=tk.F32)
    found = best_order(kernel.assembly, loop=".Lpair_loop", seconds=8)
    assert found.bound <= found.found
    assert found.after <= found.before
    given, made = (assemble(text, "gfx950", kernel_name=kernel.name) for text in (kernel.assembly, found.text))
    assert made.resources == given.resources
    ordered = matmul("gfx950", "interleaved", tile=(128, 128), out=tk.F32)
    ordered.__dict__["traced"] = replace(ordered.traced, text=found.text)
    rng = np.random.default_rng(8)
    a, b, d = integers(rng, 3, 140, 328), integers(rng, 3, 130, 328), np.zeros((140, 130), np.float32)
    run(ordered, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=8)
    np.testing.assert_array_equal(d, product(a, b))
