"""Gemv kernels through the real assembler: no spill, and the loads that were meant, where they were meant."""

from __future__ import annotations

import itertools
import re
from functools import cache

import pytest

from tilekit.dtypes import F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.gemv.compiled import GemvKernel
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.rules import DEPTH, GROUPS, WARPS
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.targets import SM_90A

EVERYTHING = ElementwiseSpec(scale="pointer", bias=F32, activation="gelu", residual=F32)
"""The functions that take most registers, with an f32 output."""


def heaviest(a_dtype: str = "bf16", b_major: str = "k", access: int = 16) -> GemvSpec:
    """The spec of a type and major that needs most registers."""
    return GemvSpec(a_dtype, a_dtype, "f32", b_major, 8, EVERYTHING, a_access=access, b_access=access)  # type: ignore[arg-type]


SPECS = (
    heaviest(),
    heaviest("f16", "mn"),
    heaviest("e4m3"),
    heaviest("e5m2", access=1),
    *(heaviest(b_major=major, access=access) for major in ("k", "mn") for access in (2, 4, 8)),
)

KERNELS = [
    (spec, config)
    for spec in SPECS
    for groups, depth, warps in itertools.product(GROUPS.values, DEPTH.values, (4, 8))
    for config in [GemvConfig(groups=groups, depth=depth, warps=warps, cluster=2 if warps == 4 else 1)]
    if not config.problems(SM_90A, spec)
]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("spec", "config"), KERNELS, ids=[f"{spec.name}-{config}" for spec, config in KERNELS])
def test_every_legal_config_assembles_without_a_spill(spec: GemvSpec, config: GemvConfig) -> None:
    """Each legal size of a slot, with all fused functions, stays within the registers that its residency grants."""
    used = GemvKernel(spec, config, SM_90A).resources
    assert (used.stack_bytes, used.spill_store_bytes) == (0, 0)
    assert used.registers * config.threads * config.resident(spec, SM_90A) <= SM_90A.registers
    if spec.b_access == 16:
        assert used.registers <= 128


@cache
def machine_code(spec: GemvSpec, config: GemvConfig) -> list[str]:
    """The SASS, an instruction a line."""
    isa = GemvKernel(spec, config, SM_90A).isa
    return [line.strip() for line in isa.splitlines() if re.search(r"/\*[0-9a-f]{4,}\*/|^\s*\.L_", line)]


def places(code: list[str], pattern: str) -> list[int]:
    """Where instructions match."""
    return [at for at, line in enumerate(code) if re.search(pattern, line)]


WEIGHTS = r"LDG\.E\.NA\.LTC\d+B\.128\b"
TOKENS = r"LDG\.E\.EL\.128\b"
WAIT = r"\bACQBULK\b"

SHAPES = [
    (GemvSpec(), GemvConfig(groups=1, depth=4)),
    (GemvSpec(tokens=8), GemvConfig(groups=2, depth=2)),
    (GemvSpec(tokens=4), GemvConfig(groups=4, depth=1)),
    (GemvSpec(b_major="mn"), GemvConfig(groups=1, depth=2)),
    (GemvSpec("e4m3", "e4m3"), GemvConfig(groups=1, depth=4)),
]


@pytest.mark.parametrize(("spec", "config"), SHAPES, ids=lambda v: str(v) if isinstance(v, GemvConfig) else v.name)
def test_all_loads_are_on_their_way_before_the_first_product(spec: GemvSpec, config: GemvConfig) -> None:
    """Sixteen 16-byte loads past L1 a thread, 64 KB a CTA, precede the first HMMA."""
    code = machine_code(spec, config)
    products = places(code, r"\bHMMA\b")
    loads = places(code, WEIGHTS)
    assert config.loads(spec) == 16
    assert config.bytes_in_flight(spec) == 64 * 1024
    assert len([at for at in loads if at < products[0]]) == 16
    assert len(loads) == 32


@pytest.mark.parametrize(("spec", "config"), SHAPES, ids=lambda v: str(v) if isinstance(v, GemvConfig) else v.name)
def test_each_load_is_issued_again_in_the_loop(spec: GemvSpec, config: GemvConfig) -> None:
    """The loop over K has every load once more, no barrier, no shared memory and no local memory."""
    code = machine_code(spec, config)
    labels = {match[1]: at for at, line in enumerate(code) if (match := re.match(r"(\.L_x_\d+):", line))}
    product = places(code, r"\bHMMA\b")[0]
    backward = [
        (labels[match[1]], at)
        for at, line in enumerate(code)
        if (match := re.search(r"BRA[^`]*`\((\.L_x_\d+)\)", line)) and labels[match[1]] <= product < at
    ]
    first, last = min(backward, key=lambda loop: loop[1] - loop[0])
    loop = code[first:last]
    assert len(places(loop, WEIGHTS)) == 16
    assert len(places(loop, TOKENS)) == len(places(code, TOKENS)) // 2
    assert not places(loop, r"\b(BAR|LDS|STS|LDL|STL|MEMBAR)\b")


@pytest.mark.parametrize("b_major", ["k", "mn"])
def test_nothing_is_read_before_the_kernel_ahead_is_complete(b_major: str) -> None:
    """Every load of global memory follows griddepcontrol.wait; what precedes it is the prefetch into L2."""
    code = machine_code(GemvSpec(b_major=b_major), GemvConfig(depth=2))  # type: ignore[arg-type]
    (wait,) = places(code, WAIT)
    assert min(places(code, r"\bLDG\b")) > wait
    assert min(places(code, r"\bUBLKPF\b")) < wait


@pytest.mark.parametrize("b_major", ["k", "mn"])
def test_ready_weights_are_read_before_it(b_major: str) -> None:
    """Where the weights are ready, the first slots are loaded before griddepcontrol.wait, and the tokens are not."""
    code = machine_code(GemvSpec(b_major=b_major, weights_ready=True), GemvConfig(depth=2))  # type: ignore[arg-type]
    (wait,) = places(code, WAIT)
    early = [at for at in places(code, WEIGHTS) if at < wait]
    assert len(early) == GemvConfig(depth=2).loads(GemvSpec(b_major=b_major))  # type: ignore[arg-type]
    assert min(places(code, TOKENS)) > wait


def test_fp8_is_multiplied_in_f16() -> None:
    """On sm_90a an fp8 product is two of f16, exact, with f32 sums."""
    code = machine_code(GemvSpec("e4m3", "e4m3"), GemvConfig(groups=1, depth=4))
    assert places(code, r"F2FP\.F16\.E4M3")
    assert places(code, r"HMMA\.16816\.F32 ")


def test_every_config_shows_itself() -> None:
    """`explain` names the bytes on their way, and what happens before the kernel ahead is complete."""
    for ready, prefetch, says in (
        (True, 0, "the first slots are loaded"),
        (False, 2, "2 steps"),
        (False, 0, "nothing is read"),
    ):
        config = GemvConfig(warps=WARPS.values[1], prefetch=prefetch)
        text = GemvKernel(GemvSpec(weights_ready=ready), config, SM_90A).explain()
        assert says in text
        assert "16384 B a CTA, 32768 B an SM" in text
