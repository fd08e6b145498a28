"""What an epilogue of one's own reads of a tile: a block, and whole fragments of its columns; else it is told which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from good_parts import ONE, Bench, tile

import tilekit.compose as tk
from tilekit.errors import TilekitError
from tilekit.tile_op.scaled_accumulators import ScaledTensorAccumulators

STORE = tk.Role("store", range(8, 12), frozenset({"store", "tmem", "wait", "sync", "memory"}))
MULTIPLY = tk.Role("multiply", range(4), frozenset({"mma", "memory"}))
SUMS = ("RegisterAccumulators", "PromotedAccumulators")


@contextmanager
def in_registers(kind: str, target: str, op: Callable[[Bench], Any]) -> Iterator[tuple[Bench, Any]]:
    """Sums of two blocks of 64 columns or more, in the role that multiplied."""
    m = Bench(target)
    with m.w.role(MULTIPLY, m.w.warp()):
        yield m, getattr(tk, kind)(op(m)).producer(m.w, MULTIPLY)


@contextmanager
def in_tensor_memory(kind: Callable[..., Any]) -> Iterator[tuple[Bench, Any]]:
    """Sums of one block of 64 columns, in the role that stores."""
    m = Bench("sm_100a")
    memory = tk.TensorMemory(m.w, capacity=512, allocates=ONE, others=(STORE,), cluster=m.cluster, barrier=5)
    sums = kind(m.w, memory, tk.Tcgen05(m.a, m.b, group=1), stages=2, mma=ONE, epilogue=STORE)
    with m.w.role(STORE, m.w.warp()):
        yield m, sums.consumer(m.w, tk.Warpgroup.of(m.w, m.w.warp(), STORE))


def scaled(*given: Any, **named: Any) -> ScaledTensorAccumulators:
    """Sums of k-blocks, whose factors are nothing here."""
    factors: Any = SimpleNamespace(bind=lambda w, group: None)
    return ScaledTensorAccumulators(factors, *given, **named)


def wgmma(m: Bench) -> tk.Wgmma:
    return tk.Wgmma(m.a, m.b, warpgroups=1)


def mfma(m: Bench) -> tk.Mfma:
    return tk.Mfma(tile(), m.b, waves=4)


def interleaved(m: Bench) -> tk.MmaSync:
    return tk.MmaSync(m.a, m.b, warps=4, columns=1, interleaved=True)


SUMS_OF: dict[str, tuple[Callable[[], Any], int]] = {
    **{f"{kind} of Wgmma": (lambda kind=kind: in_registers(kind, "sm_90a", wgmma), 8) for kind in SUMS},
    **{f"{kind} of Mfma": (lambda kind=kind: in_registers(kind, "gfx942", mfma), 16) for kind in SUMS},
    "RegisterAccumulators of MmaSync": (lambda: in_registers("RegisterAccumulators", "sm_90a", interleaved), 32),
    "TensorConsumer": (lambda: in_tensor_memory(tk.TensorAccumulators), 8),
    "BlockConsumer": (lambda: in_tensor_memory(scaled), 8),
}
"""Each with the columns of its fragments."""


@pytest.mark.parametrize("name", SUMS_OF)
def test_what_is_no_block_or_no_whole_fragment_is_refused(name: str) -> None:
    """The argument, what was given, what is legal and the nearest: nothing is read in silence, or too little."""
    make, width = SUMS_OF[name]
    owner = name.partition(" ")[0]
    with make() as (m, sums):
        layout = sums.layout
        blocks, last = layout.blocks, layout.columns - width
        lefts = rf"left=.*; legal: an integer from 0 to {last} in steps of {width}, the columns of a fragment"
        wide = rf"columns=.*; legal: an integer from {width} to {layout.columns} in steps of {width}"
        for given, message in (
            ((blocks, 0, width), rf"block={blocks}\); legal: .*{blocks - 1}; nearest: {blocks - 1}"),
            ((-1, 0, width), r"block=-1\); legal: .*; nearest: 0"),
            (("x", 0, width), r"block='x'\); legal: "),
            ((0, width // 2, width), lefts),
            ((0, layout.columns, width), rf"{lefts}; nearest: {last}"),
            ((0, -width, width), rf"{lefts}; nearest: 0"),
            ((0, 0, width + 1), rf"{wide}, the columns of a fragment; nearest: {width}"),
            ((0, 0, 2 * layout.columns), rf"{wide}.*; nearest: {layout.columns}"),
            ((0, 0, 0), rf"{wide}.*; nearest: {width}"),
            ((0, 0, None), wide),
            ((0, last, 2 * width), rf"columns={2 * width}\); legal: {width}; nearest: {width}"),
        ):
            with pytest.raises(TilekitError, match=rf"^{owner}\.read\({message}") as caught:
                sums.read(m.w, *given)
            assert caught.value.code == "TK-PART-001"


@pytest.mark.parametrize("name", [name for name in SUMS_OF if name != "BlockConsumer"])
def test_whole_fragments_are_read(name: str) -> None:
    """The first, the last and all of them: of each of a warp's fragments the registers that a thread has."""
    make, width = SUMS_OF[name]
    with make() as (m, sums):
        layout = sums.layout
        for left, columns in ((0, width), (layout.columns - width, width), (0, layout.columns)):
            for block in range(layout.blocks):
                read = sums.read(m.w, block, left, columns)
                of_a_thread = columns * layout.fragment.rows // layout.lanes
                assert [len(registers) for registers in read] == [of_a_thread] * layout.fragments
