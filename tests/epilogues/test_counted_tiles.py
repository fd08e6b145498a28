"""When a warp counts the tile whose totals it has left behind: before its next one, and every step is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit import BlackwellConfig, Cdna4Config, MatmulConfig
from tilekit.arrays.staging import EmulatedStaging
from tilekit.dtypes import BF16
from tilekit.emulator import EmulatorError
from tilekit.epilogue import column_sum, gelu, row_max, row_sum, silu
from tilekit.errors import ConfigError, FindingWarning
from tilekit.kernels.family_kernel import FamilyKernel
from tilekit.kernels.matmul.own import OwnComponents


@tilekit.epilogue
def totals(x, gate):  # type: ignore[no-untyped-def]
    """Totals of both kinds."""
    y = x * gate
    return y, row_sum(y), column_sum(y)


@tilekit.epilogue
def sums(x, gate):  # type: ignore[no-untyped-def]
    """Those of rows alone."""
    return x * gate, row_sum(x), row_max(x)


class Few(tk.StaticScheduler):
    """Two clusters compute everything: each has many tiles, and shares rows and columns with the other."""

    def schedule(self, call: tk.Call) -> tk.Schedule:
        """As few as share anything."""
        return tk.Schedule(clusters=2, tiles=super().schedule(call).tiles)


FEW = OwnComponents(scheduler=lambda w, raster: Few(raster))
SMALL = MatmulConfig((64, 32), (1, 1), consumers=1)
CONFIGS = {
    "one warpgroup": ("sm_90a", SMALL),
    "two blocks a warpgroup, by turns": ("sm_90a", MatmulConfig((128, 64), (1, 1), schedule="pingpong")),
    "tensor memory": ("sm_100a", BlackwellConfig((128, 64), (1, 1), cta_group=1, clc_stages=0)),
    "waves with several fragments": ("gfx950", Cdna4Config((128, 64), mma_waves=2)),
}
M, N, K = 200, 96, 32


@cache
def operands() -> tuple[Any, Any, Any]:
    """Whole numbers, whose sums are exact, and a gate of them."""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, shape).astype(BF16.numpy) for shape in ((M, K), (K, N)))
    return a, b, rng.integers(-2, 3, (M, N)).astype("f4")


@cache
def kernel_of(name: str, epilogue: Any = totals) -> Any:
    """A kernel of few CTAs."""
    a, b, gate = operands()
    target, config = CONFIGS[name]
    return tilekit.kernel_for(a, b, epilogue=epilogue(gate), components=FEW, config=config, target=target)


def run(kernel: Any, seed: int, epilogue: Any = totals) -> bool:
    """Launch; say whether all is right, nothing was found and the counters are as they were."""
    a, b, gate = operands()
    expected = epilogue(gate).reference(a.astype("f8") @ b.astype("f8"))
    found = tuple(np.full(y.shape, np.nan, "f4" if y.ndim == 1 else BF16.numpy) for y in expected)
    plan, counters, scratch = kernel.bind(a, b, found, epilogue=epilogue(gate), seed=seed), [], EmulatedStaging.scratch

    def noted(staging: EmulatedStaging, name: str, size: int) -> int:
        counters.extend([(staging, name)] * name.endswith("_counters"))
        return scratch(staging, name, size)

    with mock.patch.object(EmulatedStaging, "scratch", noted):
        plan()
    equal = all((x == y.astype(x.dtype)).all() for x, y in zip(found, expected, strict=True))
    assert counters
    return equal and plan.report.clean and not any(any(staging.read_scratch(name)) for staging, name in counters)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_count_comes_before_the_elements_of_the_next_tile(name: str) -> None:
    """One count a tile of all totals, and one behind the last, before any of the stores that it would wait for."""
    kernel = kernel_of(name, sums)
    text = re.sub(r"(//|;).*", "", kernel.assembly) if kernel.target.isa == "gcn" else kernel.ptx
    count = r"atom\.release\.gpu\.global\.add" if kernel.target.isa == "ptx" else r"global_atomic_add v"
    store = r"st\.global\.f32" if kernel.target.isa == "ptx" else r"(global|buffer)_store_"
    counts = [found.start() for found in re.finditer(count, text)]
    stores = [found.start() for found in re.finditer(store, text)]
    assert len(counts) == 2
    assert counts[0] < stores[0] < stores[-1]
    assert counts[1] > stores[1]


@pytest.mark.parametrize("seed", range(20))
def test_every_order_gives_the_same_sums(seed: int) -> None:
    """Two CTAs that share rows and columns, each with several tiles: exact whichever counts last, and again at once."""
    assert run(kernel_of("one warpgroup"), seed)


@pytest.mark.breadth
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", list(CONFIGS)[1:])
def test_every_order_of_every_chip(name: str, seed: int) -> None:
    """The same of warps with several fragments, by turns, from tensor memory, and on an AMD chip."""
    assert run(kernel_of(name), seed)


COUNT = re.compile(r"atom\.release\.gpu\.global\.add\.u32 (\w+), (\[\w+\]), 1;")


def changed(text: str, which: int, new: str) -> str:
    """One of the counts replaced, by `new` with the places of its operands."""
    count = list(COUNT.finditer(text))[which]
    return text[: count.start()] + count.expand(new) + text[count.end() :]


BROKEN: dict[str, Callable[[str], str]] = {
    "counts publish nothing": lambda text: text.replace("atom.release.gpu", "atom.relaxed.gpu"),
    "the last does not look": lambda text: text.replace("fence.acq_rel.gpu;", ""),
    "a count of two": lambda text: changed(text, 0, r"atom.release.gpu.global.add.u32 \1, \2, 2;"),
    "a count too few": lambda text: changed(text, 0, r"ld.relaxed.gpu.global.u32 \1, \2;"),
    "the last tile is not counted": lambda text: changed(text, -1, r"ld.relaxed.gpu.global.u32 \1, \2;"),
    "the first tile is taken for none": lambda text: text.replace(", 4294967295;", ", 0;"),
    "counters stay": lambda text: text.replace("st.release.gpu.global.u32", "// "),
}
"""What is planted."""


def broken(kernel: Any, what: str) -> Any:
    """The kernel with a defect."""
    text = BROKEN[what](kernel.assembly)
    assert text != kernel.assembly
    made = object.__new__(type(kernel))
    FamilyKernel.__init__(made, kernel.spec, kernel.config, kernel.target, replace(kernel.text, assembly=text))
    return made


@pytest.mark.parametrize("what", BROKEN)
def test_every_step_is_needed(what: str) -> None:
    """Without one of them a race is found, or a total is wrong."""
    kernel = broken(kernel_of("one warpgroup", sums), what)
    try:
        right = run(kernel, 1, sums)
    except (EmulatorError, FindingWarning):
        return
    assert not right


@tilekit.epilogue
def three(x, gate):  # type: ignore[no-untyped-def]
    """Several totals of a long function."""
    y = silu(x) * gate
    return y, row_sum(y), column_sum(y), row_max(y)


@tilekit.epilogue
def one(x, gate):  # type: ignore[no-untyped-def]
    """A total of a long function."""
    y = gelu(x) + gate
    return y, row_sum(y)


WIDEST = {
    "several": (three, MatmulConfig((128, 192), (1, 1)), MatmulConfig((128, 208), (1, 1))),
    "several, by turns": (
        three,
        MatmulConfig((128, 88), (1, 1), schedule="pingpong"),
        MatmulConfig((128, 112), (1, 1), schedule="pingpong"),
    ),
    "several of shares": (
        three,
        MatmulConfig((64, 128), (1, 1), consumers=1, split_k=2),
        MatmulConfig((64, 160), (1, 1), consumers=1, split_k=2),
    ),
    "one of shares": (
        one,
        MatmulConfig((64, 208), (1, 1), consumers=1, split_k=2),
        MatmulConfig((64, 224), (1, 1), consumers=1, split_k=2),
    ),
}


@pytest.mark.parametrize(
    "name", ["one of shares", *(pytest.param(x, marks=pytest.mark.breadth) for x in list(WIDEST)[:3])]
)
def test_totals_that_would_spill_are_refused(name: str) -> None:
    """A tile that ptxas takes without a spill is legal, and one that it does not take is refused before."""
    epilogue, fits, spills = WIDEST[name]
    a, gate = np.ones((256, 256), BF16.numpy), np.ones((256, 256), BF16.numpy)
    kernel = tilekit.kernel_for(a, a.T, epilogue=epilogue(gate), config=fits, target="sm_90a")
    assert kernel.resources.spill_store_bytes == 0
    with pytest.raises(ConfigError, match=r"accumulators a thread are \d+ more than fit"):
        tilekit.kernel_for(a, a.T, epilogue=epilogue(gate), config=spills, target="sm_90a")
