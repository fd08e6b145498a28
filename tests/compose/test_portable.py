"""One composition of the warp-specialised matmul on five chips, with all loaders, strategies and instructions."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilekit.compose as tk
from tests.compose.composed import BF16, integers, padded, run
from tests.compose.portable_cases import BODIES, TARGETS, anywhere, composed, every_choice, exact, places, product
from tests.compose.portable_table import BEGIN, END, PAGE, shape_of, table
from tilekit.assembly.errors import TraceError
from tilekit.compose import portable, portable_choices
from tilekit.drivers import warp_specialized
from tilekit.emulator import EmulatorError
from tilekit.errors import ArgumentError, FindingWarning
from tilekit.kernels.plan import EmulatedPlan

CHOICES = [pytest.param(*found, id=f"{found[0]} {found[1]}".replace(" ", "-")) for found in every_choice()]
FASTEST = [pytest.param(target, tk.portable_choices(target)[0], id=target) for target in TARGETS]


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize(("target", "choice"), CHOICES)
def test_exact_integers(target: str, choice: tk.PortableChoice) -> None:
    """Small integers, bit for bit, in a shape that ends inside tiles and k-blocks; poisoned outputs; no finding."""
    exact(target, choice, 0)


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize(("target", "choice"), CHOICES)
def test_places(target: str, choice: tk.PortableChoice) -> None:
    """Every element of the output says which elements it was made of."""
    places(target, choice, 1)


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize(("target", "choice"), [c for c in CHOICES if c.values[1].load.__name__ in
                                                ("RegisterLoader", "CpAsyncLoader")])  # fmt: skip
def test_rows_that_begin_anywhere(target: str, choice: tk.PortableChoice) -> None:
    """Odd addresses, odd pitches, a K that ends inside a word."""
    anywhere(target, choice, 2)


@pytest.mark.breadth
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("target", "choice"), CHOICES)
def test_twenty_seeds(target: str, choice: tk.PortableChoice, seed: int) -> None:
    """All of it under twenty interleavings, in six shapes."""
    for body in BODIES:
        body(target, choice, seed)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("target", "choice"), FASTEST)
def test_batches_and_functions(target: str, choice: tk.PortableChoice) -> None:
    """A batch whose matrices are B's and a bias with an activation, in f32, several tiles to a CTA."""
    functions = tk.ElementwiseSpec(bias=tk.F32, activation="relu")
    kernel = composed(target, choice, functions=functions, batched=True, out=tk.F32)
    rng = np.random.default_rng(3)
    a, b, bias = integers(rng, 3, 3, 90, 72), integers(rng, 3, 3, 100, 72), rng.integers(-9, 10, 100).astype(np.float32)
    d = np.zeros((3, 90, 100), np.float32)
    plan = kernel.bind(a, b, bias, d=d, seed=3, emulator={"multiprocessors": 2})
    plan()
    assert isinstance(plan, EmulatedPlan)
    assert plan.report.clean, str(plan.report)
    np.testing.assert_array_equal(d, np.maximum(product(a, b) + bias, 0))


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("load", [None, tk.RegisterLoader], ids=["fastest", "registers"])
@pytest.mark.parametrize(
    ("target", "op", "dtype", "out"),
    [
        ("sm_80", None, tk.F16, tk.F16),
        ("sm_80", None, tk.S8, tk.S32),
        ("sm_89", None, tk.E4M3, tk.F32),
        ("sm_90a", None, tk.S8, tk.S32),
        ("sm_90a", tk.MmaSync, tk.S8, tk.F32),
        ("sm_90a", tk.MmaSync, tk.E5M2, tk.BF16),
        ("sm_100a", None, tk.E4M3, tk.F32),
        ("gfx942", None, tk.E4M3FNUZ, tk.F32),
        ("gfx950", None, tk.E5M2, tk.F16),
    ],
)
def test_other_types(target: str, op: type | None, dtype: tk.DType, out: tk.DType, load: type | None) -> None:
    """Types that the instruction has, through the same composition: halves, 8-bit floats, signed bytes."""
    kernel = tk.portable_matmul(target, op=op, dtype=dtype, out=out, load=load)
    rng = np.random.default_rng(9)
    a, b = (integers(rng, 3, rows, 208, dtype=dtype.numpy) for rows in (70, 90))
    d = np.zeros((70, 90), out.numpy)
    run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=9)
    np.testing.assert_array_equal(d, product(a, b).astype(out.numpy))


@pytest.mark.parametrize("target", TARGETS)
def test_the_default_is_the_first_choice(target: str) -> None:
    """What is not asked for is the fastest that the chip has, and one argument swaps one component."""
    first = tk.portable_choices(target)[0]
    assert tk.portable_matmul(target).assembly == composed(target, first).assembly
    swapped = tk.portable_matmul(target, load=tk.RegisterLoader)
    assert swapped.assembly != composed(target, first).assembly


@pytest.mark.parametrize("order", ["fence.proxy.async", "red.release.cta", "ld.acquire.cta"])
def test_each_order_is_needed(order: str) -> None:
    """Writes of threads that wgmma reads want a fence of the proxies, and a counter its release and its acquire."""
    kernel = tk.portable_matmul("sm_90a", load=tk.RegisterLoader, sync=tk.SplitCounterSync)
    weak = {"red.release.cta": "red.relaxed.cta", "ld.acquire.cta": "ld.relaxed.cta"}
    lines = kernel.assembly.splitlines()
    assert any(order in line for line in lines)
    if order in weak:
        lines = [line.replace(order, weak[order]) for line in lines]
    text = "\n".join(line for line in lines if order not in line)
    kernel.__dict__["traced"] = replace(kernel.traced, text=text)
    rng = np.random.default_rng(0)
    a, b, d = integers(rng, 3, 70, 328), integers(rng, 3, 60, 328), np.zeros((70, 60), BF16)

    def clean(seed: int) -> bool:
        try:
            run(kernel, {"a": padded(a), "b": padded(b)}, {"d": d}, on="emulator", seed=seed)
        except (EmulatorError, FindingWarning, AssertionError):
            return False
        return True

    assert not all(clean(seed) for seed in range(5))


@pytest.mark.parametrize(
    ("target", "given", "parts"),
    [
        ("sm_80", {"load": tk.TmaLoader}, ("TmaLoader needs copy_engine", "sm_80 lacks", "nearest: CpAsyncLoader")),
        ("sm_90a", {"op": tk.Mfma}, ("op=Mfma needs instruction set gcn", "sm_90a lacks", "nearest: Wgmma")),
        ("gfx942", {"sync": tk.MbarrierSync}, ("needs mbarriers", "gfx942 lacks", "nearest: SplitCounterSync")),
        ("gfx950", {"sync": tk.NamedBarrierSync}, ("needs named_barriers", "gfx950 lacks")),
        ("sm_100a", {"op": tk.Tcgen05, "sync": tk.SplitCounterSync}, ("a commit", "Tcgen05", "MbarrierSync")),
        ("sm_90a", {"load": tk.TmaLoader, "sync": tk.BarrierSync}, ("bytes count on an mbarrier", "TmaLoader M")),
        ("sm_90a", {"load": tk.Wgmma}, ("load=Wgmma is no component", "nearest: TmaLoader")),
        ("sm_90a", {"op": "wgmma"}, ("op='wgmma' is no component", "nearest: Wgmma")),
    ],
)  # fmt: skip
def test_what_a_chip_cannot_do(target: str, given: dict[str, Any], parts: tuple[str, ...]) -> None:
    """A component that the chip lacks, or that fits none of the others: refused at the call, with the nearest."""
    with pytest.raises(ArgumentError, match="TK-COMP-008") as caught:
        tk.portable_matmul(target, **given)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_rows_that_begin_elsewhere_than_copies() -> None:
    """cp.async of 8 bytes refuses rows at odd elements, and says which width takes them."""
    kernel = tk.portable_matmul("sm_90a", load=tk.CpAsyncLoader)
    a, b = np.zeros((8, 9), BF16)[:, 1:], np.zeros((8, 8), BF16)
    with pytest.raises(ArgumentError, match=r"a at address .* pieces of 8 bytes.*width=2.*TK-LOAD-001"):
        kernel(a, b)
    wide = tk.portable_matmul("sm_90a", load=tk.CpAsyncLoader, width=16)
    with pytest.raises(ArgumentError, match=r"rows of 24 bytes, 32 apart.*pieces of 16 bytes.*width=8.*LOAD-001"):
        wide(np.zeros((8, 16), BF16)[:, :12], np.zeros((8, 16), BF16)[:, :12])
    with pytest.raises(TraceError, match=r"width=3.*one of 16, 8, 4, 2 bytes.*TK-PART-001"):
        tk.portable_matmul("sm_90a", load=tk.CpAsyncLoader, width=3)


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_no_bank_conflicts_of_the_register_loader(target: str, bits: int) -> None:
    """Each eight lanes of a warp, whose 16 bytes are written at once, fill all banks of a line."""
    tile = tk.OperandTile("a", {8: tk.E4M3, 16: tk.BF16, 32: tk.F32}[bits], 64, "k")
    for first in range(0, tk.chip(target).lanes, 8):
        lines = {lane // 8 for lane in range(first, first + 8)}
        banks = {tile.swizzled_byte(lane % 8 * 16, lane // 8) // 16 for lane in range(first, first + 8)}
        assert len(lines) == 1
        assert len(banks) == 8


def test_the_driver_asks_for_no_chip() -> None:
    """The driver and the composition name no chip, no vendor and no instruction set's fragments."""
    for module in (warp_specialized, portable, portable_choices):
        code = re.sub(r'""".*?"""', "", inspect.getsource(module), flags=re.DOTALL)
        assert not re.search(r"sm_\d|gfx\d|\.name ==|nvidia|amd\b|w\.ptx|w\.gcn", code, re.IGNORECASE), module.__name__


def test_the_table_of_the_page_is_current() -> None:
    """docs/portable.md lists what the chips have today; ``python -m tests.compose.portable_table`` writes it."""
    page = PAGE.read_text("utf-8")
    written = page[page.index(BEGIN) + len(BEGIN) : page.index(END)].strip()
    assert shape_of(written) == shape_of(table({})), "run python -m tests.compose.portable_table"


@pytest.mark.parametrize(
    ("target", "fastest"),
    [
        ("sm_86", "CpAsyncLoader MbarrierSync MmaSync"),
        ("sm_89", "CpAsyncLoader MbarrierSync MmaSync"),
        ("sm_120a", "TmaLoader MbarrierSync MmaSync"),
    ],
)
def test_chips_that_it_was_not_written_for(target: str, fastest: str) -> None:
    """Another chip is no line of the composition: its capabilities say what it is made of."""
    choice = tk.portable_choices(target)[0]
    assert str(choice) == fastest
    exact(target, choice, 0)
    places(target, choice, 1)


@pytest.mark.gpu
@pytest.mark.parametrize(("target", "choice"), [case for case in CHOICES if case.values[0] in ("sm_80", "sm_90a")])
def test_on_a_gpu(target: str, choice: tk.PortableChoice) -> None:
    """The same bodies on a Hopper GPU, which runs the text for sm_80 too."""
    for seed in range(10):
        for body in BODIES:
            body(target, choice, seed, "cuda")


@pytest.mark.parametrize(
    ("argument", "given", "says"),
    [
        ("tile", float("nan"), r"portable_matmul\(tile=nan\); legal: a tuple of int"),
        ("tile", (128, 2.5), r"tile\[1\]=2.5\); legal: an integer from 1 on; nearest: 3"),
        ("tile", (128,), "legal: a tuple of int"),
        ("dtype", "bf16", "legal: an element type; nearest: tilekit.compose.BF16"),
        ("out", "float16", "legal: an element type; nearest: tilekit.compose.F"),
        ("stages", 0, r"stages=0\); legal: an integer from 1 on; nearest: 1"),
        ("batched", "yes", "legal: True or False"),
    ],
)
def test_odd_arguments(argument: str, given: object, says: str) -> None:
    """Each is refused with what is legal, before anything is traced."""
    with pytest.raises(TraceError, match=says) as caught:
        tk.portable_matmul("sm_90a", **{argument: given})  # type: ignore[arg-type]
    assert caught.value.code == "TK-PART-001"
