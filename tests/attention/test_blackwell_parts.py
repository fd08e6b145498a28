"""What attention on sm_100a is made of and chosen by: exponentials without MUFU, configs, the model, ptxas."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.attention.cases import Case
from tilekit.assembly.types import F32, GMEM
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, F16
from tilekit.emulator import Device
from tilekit.emulator.core.errors import EmulatorError
from tilekit.errors import FindingWarning
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import AttentionKernel, build
from tilekit.kernels.attention.sm_100a.config import BlackwellAttentionConfig, default_config
from tilekit.kernels.attention.sm_100a.model import block_cycles, predicted_tflops
from tilekit.kernels.attention.spec import HEAD_DIMS, AttentionSpec
from tilekit.targets import target
from tilekit.tile_op.attention_tensors import TensorCorrector, TensorMultiplier, TensorWeigher
from tilekit.tile_op.row_exchange import RowTaker

B200 = target("sm_100a")


def powers(exponents: np.ndarray) -> np.ndarray:
    """2^x of 32 numbers, by the fragment alone."""
    w = Writer("powers", target="sm_100a", threads=32)
    source, out = w.parameter("source", GMEM), w.parameter("out", GMEM)
    place = w.widen_multiply(w.thread(), 4)
    value = w.isa.memory.load_global_scalar(address=(source + place).retyped(GMEM))
    result = w.ptx.softmax.exp2_polynomial(x=value)
    w.isa.memory.store_global_f32(address=(out + place).retyped(GMEM), value=result, valid=w.constant(F32, 0.0) == 0.0)
    found = np.full(32, np.nan, np.float32)
    Device("sm_100a", seed=0).load(w.text())["powers"].launch(grid=1, block=32, args=[exponents, found])
    return found


def test_the_polynomial_is_exact_to_thirteen_bits() -> None:
    """Over all exponents that weights have; what is masked, minus infinity, gives 0 and nothing else."""
    random = np.random.default_rng(3)
    for low, high in ((-125.0, 8.0), (-1.0, 1.0), (-8.0, 0.0)):
        given = random.uniform(low, high, 32).astype(np.float32)
        exact = np.exp2(given.astype(np.float64))
        assert (np.abs(powers(given) - exact) / exact).max() < 2.0**-13
    assert (powers(np.full(32, -np.inf, np.float32)) == 0).all()
    assert (powers(np.float32([-127.0, -200.0, -1e30, -3e38] * 8)) == 0).all()
    assert (powers(np.arange(-16, 16, dtype=np.float32)) == np.exp2(np.arange(-16, 16))).all()


@pytest.mark.parametrize(
    "dims",
    [
        (64, 64),
        (192, 192),
        (256, 64),
        *(pytest.param(d, marks=pytest.mark.breadth) for d in product(HEAD_DIMS, HEAD_DIMS)),
    ],
)
def test_what_is_chosen_fits_and_assembles(dims: tuple[int, int]) -> None:
    """Every config that is chosen keeps the rules, and ptxas neither spills nor warns."""
    pytest.importorskip("nvidia.cu13", reason="ptxas comes with the package")
    kinds = ((BF16, 4096, 0, False), (F16, 4096, 0, True), (BF16, 100, 0, True), (F16, 4, 4, False))
    for dtype, queries, group, masks in kinds:
        spec = AttentionSpec(dtype, *dims, right=masks, left=masks, softcap=masks, lse=True, group=group)
        config = default_config(spec, B200, queries)
        config.check(spec, B200)
        used = build(spec, config, B200).resources
        assert (used.spill_store_bytes, used.spill_load_bytes, used.stack_bytes) == (0, 0, 0)


def test_wide_heads_have_one_tile_and_no_polynomial() -> None:
    """Two tiles of 256 columns of sums leave no column for scores, and their products take longer than MUFU."""
    config = default_config(AttentionSpec(BF16, 256, 256), B200, 4096)
    assert (config.tiles, config.polynomial) == (1, 0)
    assert default_config(AttentionSpec(BF16, 192, 128), B200, 4096).tiles == 2
    assert default_config(AttentionSpec(BF16, 128, 128), B200, 4096) == BlackwellAttentionConfig()


def test_the_model_knows_what_limits_a_block() -> None:
    """With heads of 128 the products of two tiles are 2048 cycles, as many as all exponentials by MUFU."""
    spec = AttentionSpec(BF16, 128, 128)
    assert block_cycles(spec, BlackwellAttentionConfig(polynomial=0)).powers == 2048
    cycles = block_cycles(spec, BlackwellAttentionConfig())
    assert (cycles.mma, cycles.powers, cycles.bound) == (2048, 1792, 2048)
    narrow = block_cycles(AttentionSpec(BF16, 64, 64), BlackwellAttentionConfig())
    assert narrow.bound == narrow.powers > narrow.mma
    peak = 8192 * B200.multiprocessors * B200.boost_mhz * 1e6 / 1e12
    long = predicted_tflops(spec, BlackwellAttentionConfig(), B200, queries=1 << 15, keys=1 << 15, heads=148)
    short = predicted_tflops(spec, BlackwellAttentionConfig(), B200, queries=512, keys=512, heads=148)
    assert 0.97 * peak < long < peak
    assert short < 0.8 * peak


def test_the_page_has_the_models_figures() -> None:
    """The table of docs/attention.md is what the model says."""
    page = (Path(__file__).parents[2] / "docs" / "attention.md").read_text()
    for head, value in ((64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)):
        spec = AttentionSpec(BF16, head, value)
        config = default_config(spec, B200, 16384)
        cycles = block_cycles(spec, config)
        speed = predicted_tflops(spec, config, B200, queries=16384, keys=16384, heads=16)
        name = str(head) if head == value else f"{head} and {value}"
        row = (name, f"{config.tiles} x {config.keys}", cycles.mma, cycles.powers, cycles.issue, cycles.tensor_bytes)
        assert f"| {' | '.join(map(str, row))} | {speed:.0f} |" in page


MEETINGS: dict[str, tuple[type, str]] = {
    "products wait for weights": (TensorMultiplier, "await_weights"),
    "weights wait for scores": (TensorWeigher, "read"),
    "outputs wait for sums": (TensorCorrector, "await_sums"),
    "weights are told of": (TensorWeigher, "written"),
    "corrections are told of": (TensorCorrector, "fits"),
    "rows' numbers are waited for": (RowTaker, "take"),
}


@pytest.mark.parametrize(
    "meeting", [m if n % 3 == 0 else pytest.param(m, marks=pytest.mark.breadth) for n, m in enumerate(MEETINGS)]
)
def test_roles_that_do_not_meet_are_found(meeting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait and each arrival between the roles is needed: without it the emulator stops the kernel and says why."""
    owner, name = MEETINGS[meeting]
    case = Case(1, 100, 200, 1, 1, 64, 64)
    arguments = AttentionArguments.parse(*case.arrays(), target="sm_100a")
    config = BlackwellAttentionConfig(tiles=1, keys=64)
    AttentionKernel(arguments.spec, config, B200).plan(arguments)()
    original = getattr(owner, name)

    def without_barrier(self: object, *given: object) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(Writer, "ptx", _Without(self._w))  # type: ignore[attr-defined]
            return original(self, *given)

    monkeypatch.setattr(owner, name, without_barrier)
    mutant = AttentionKernel(arguments.spec, config, B200)
    with pytest.raises((EmulatorError, FindingWarning)):
        mutant.plan(arguments)()


class _Without:
    """A writer's PTX fragments, of which those of mbarriers emit nothing."""

    def __init__(self, w: Writer) -> None:
        self._ptx = w.ptx

    def __getattr__(self, name: str) -> object:
        return _Nothing() if name == "mbarrier" else getattr(self._ptx, name)


class _Nothing:
    """Fragments that emit nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda **operands: None
