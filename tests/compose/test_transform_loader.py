"""A loader that passes what it copies through a function: types, majors, either operand, and what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from composed import BF16, Array, coded, integers, padded, run

import tilekit.compose as tk
from tilekit.assembly.errors import TraceError
from tilekit.errors import ArgumentError

PLAN = tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=1, accumulators=64, copies=True)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def unchanged(w: tk.Writer, words: Sequence[tk.Value]) -> Sequence[tk.Value]:
    """Elements of 16 bits as they are."""
    return words


def widened(w: tk.Writer, words: Sequence[tk.Value]) -> list[tk.Value]:
    """Eight int8 as bf16."""
    numbers = [number for word in words for number in w.isa.convert.widen_s8x4(packed=word)]
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [w.isa.convert.pack_bf16(low=low, high=high) for low, high in pairs]


def doubled(w: tk.Writer, words: Sequence[tk.Value]) -> list[tk.Value]:
    """Eight bf16, each twice as large."""
    halves = [half for word in words for half in w.isa.convert.unpack(packed=word)]
    wide = [w.isa.convert.widen_bf16(narrow=half) for half in halves]
    return [
        w.isa.convert.pack_bf16(low=low + low, high=high + high)
        for low, high in zip(wide[::2], wide[1::2], strict=True)
    ]


def narrowed(w: tk.Writer, words: Sequence[tk.Value]) -> list[tk.Value]:
    """Sixteen int8 as e4m3."""
    numbers = [number for word in words for number in w.isa.convert.widen_s8x4(packed=word)]
    packed = []
    for first in range(0, len(numbers), 4):
        halves = [w.isa.convert.pack_e4m3(low=numbers[first + half], high=numbers[first + half + 1]) for half in (0, 2)]
        word = w.new(tk.registers.B32, "word", uniform=False)
        w.emit(f"mov.b32 {word.text}, {{{halves[0].text}, {halves[1].text}}};")
        packed.append(word)
    return packed


def kernel(
    transforms: dict[str, Any],
    sources: dict[str, Any],
    *,
    image: Any = tk.BF16,
    majors: tuple[str, str] = ("k", "k"),
    slices: int = 1,
    plan: Any = PLAN,
    cluster: int = 1,
    columns: int = 64,
) -> tk.ComposedKernel:
    """A product whose operands are loaded through `transforms`, others by TMA; the images' type is `image`."""
    shapes = {
        name: {"k": f"{rows}k", "mn": f"k{rows}"}[major] for name, rows, major in zip("ab", "mn", majors, strict=True)
    }
    inputs = [tk.Input(name, sources.get(name, image), shapes[name]) for name in "ab"]

    @tk.kernel(*inputs, tk.Output("d", tk.BF16, "mn"), target="sm_90a", threads=plan.threads, cluster=cluster)
    def transformed(w: tk.Writer) -> Any:
        position = tk.Cluster.read(w, cluster, 1)
        a = tk.OperandTile("a", image, 64, majors[0], slices)
        b = tk.OperandTile("b", image, columns, majors[1], slices)
        stage, op = tk.StandardPayload(a, b), tk.Wgmma(a, b, warpgroups=1)
        tiles = stage.allocate(w.shared, "inputs", 3)
        loaders = [
            tk.TransformLoader(
                w, tile, source=sources[tile.name], transform=transforms[tile.name], stages=3, role=plan["load"]
            )
            if tile.name in transforms
            else tk.TmaLoader(w, tile, participants=position.m if tile is b else 1)
            for tile in (a, b)
        ]
        by_engine = sum(tile.bytes for tile in (a, b) if tile.name not in transforms)
        sides = {"producers": (plan["load"],), "consumers": (plan["mma"],), "cluster": position}
        sync = tk.MbarrierSync(w, "inputs", stages=3, stage_bytes=by_engine, filled_by="threads", **sides)
        k = w.parameter("k", tk.registers.U32, lambda call: call.k)
        scheduler = tk.StaticScheduler(
            tk.RasterOrder(w, tile_m=64, tile_n=columns, cluster=position, k=k, k_block=stage.k)
        )
        fused = tk.Fused(lambda w, x: x)
        tk.WarpSpecialized(
            warps=plan,
            cluster=position,
            inputs=tk.TilePipeline(stage, tiles, stages=3, sync=sync),
            loader=tk.StandardLoader(w, *loaders, tiles, position),
            op=op,
            accumulators=tk.RegisterAccumulators(op),
            scheduler=scheduler,
            epilogue=tk.StagedEpilogue(w, op.layout, fused, out=tk.BF16, role=plan["mma"], buffers=2, first_barrier=1),
            k=k,
            in_flight=1,
        ).trace(w)
        return scheduler

    return transformed


def check(made: tk.ComposedKernel, inputs: dict[str, Array], exact: Array, seed: int) -> None:
    """The product to the bit, with nothing found."""
    d = np.zeros(exact.shape, BF16)
    run(made, {name: padded(array) for name, array in inputs.items()}, {"d": d}, on="emulator", seed=seed)
    np.testing.assert_array_equal(d, exact.astype(BF16))


SHAPES = [(64, 64, 64), (70, 200, 203), (130, 8, 1)]


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("majors", [("k", "k"), ("mn", "mn"), ("k", "mn")], ids="-".join)
@pytest.mark.parametrize(("slices", "columns"), [(1, 128), (2, 64), (2, 128)])
def test_int8_of_either_major(majors: tuple[str, str], slices: int, columns: int) -> None:
    """B of int8, contiguous along K or N, in stages of one slice or two and of one chunk or two, meets A by TMA."""
    made = kernel({"b": widened}, {"b": tk.S8}, majors=majors, slices=slices, columns=columns)
    for seed, (m, n, k) in enumerate(SHAPES):
        rng = np.random.default_rng(seed)
        a, b = integers(rng, 3, m, k), coded(rng, n, k, values=np.arange(-128, 123, dtype=np.int8))
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        stored = {
            name: array.T.copy() if major == "mn" else array
            for name, array, major in zip("ab", (a, b), majors, strict=True)
        }
        check(made, stored, exact, seed)


def test_both_operands() -> None:
    """A and B each through a function of its own: their copies are in one group, and the copy engine brings nothing."""
    made = kernel({"a": doubled, "b": widened}, {"a": tk.BF16, "b": tk.S8})
    rng = np.random.default_rng(3)
    a, b = integers(rng, 3, 70, 136), integers(rng, 3, 72, 136, dtype=np.int8)
    check(made, {"a": a, "b": b}, 2 * a.astype(np.float64) @ b.astype(np.float64).T, 3)


def test_narrower_than_it_was() -> None:
    """Int8 to e4m3: sixteen elements a piece."""
    made = kernel({"a": narrowed, "b": narrowed}, {"a": tk.S8, "b": tk.S8}, image=tk.E4M3)
    rng = np.random.default_rng(4)
    a, b = (integers(rng, 8, rows, 208, dtype=np.int8) for rows in (70, 72))
    check(made, {"a": a, "b": b}, a.astype(np.float64) @ b.astype(np.float64).T, 4)


# -- what does not fit ------------------------------------------------------------------------------------------------


def refused(**options: Any) -> TraceError:
    """The error of a kernel that cannot be traced."""
    with pytest.raises(TraceError) as caught:
        _ = kernel(**{"transforms": {"b": widened}, "sources": {"b": tk.S8}} | options).ptx
    return caught.value


def test_a_type_that_no_copy_moves() -> None:
    """Eight f32 are 32 bytes, and a copy moves up to 16."""
    error = refused(sources={"b": tk.F32})
    assert error.code == "TK-LOAD-002"
    assert "8 elements of f32 are 32 bytes, which no copy moves; it moves 4, 8, 16" in str(error)


@pytest.mark.parametrize("copies", [True, False], ids=["three warps", "one thread"])
def test_a_role_that_cannot_share_a_tile_out(copies: bool) -> None:
    """Three warps, or one thread, do not divide the tile into equal parts; the error says which role does."""
    plan = tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=1, accumulators=32, copies=copies)
    load, mma = plan.roles
    error = refused(plan=tk.WarpPlan(plan.target, (replace(load, warps=range(3)), mma)) if copies else plan)
    assert error.code == "TK-LOAD-002"
    assert "nearest: a role of four warps, one_thread=False" in str(error)


def test_threads_do_not_multicast() -> None:
    """A cluster whose CTAs share the tile is refused with the dimension to make one."""
    error = refused(cluster=2)
    assert error.code == "TK-LOAD-002"
    assert "2 CTAs of the cluster share the tile" in str(error)


@pytest.mark.parametrize("result", [[], None, [1, 2, 3, 4]])
def test_a_function_must_return_words(result: Any) -> None:
    """What is not four words of the image is shown with the function's name."""

    def careless(w: tk.Writer, words: Any) -> Any:
        return result

    error = refused(transforms={"b": careless})
    assert error.code == "TK-LOAD-003"
    assert "careless made" in str(error)


def test_too_few_words() -> None:
    """A function that forgets to widen returns half of what the image needs."""
    error = refused(transforms={"b": unchanged})
    assert error.code == "TK-LOAD-003"
    assert "8 elements of s8; it must return the 4 words (b32) of as many elements of bf16" in str(error)


def test_rows_that_threads_cannot_copy() -> None:
    """Rows of int8 that begin at no multiple of 8 bytes are named before anything runs, with the nearest."""
    made = kernel({"b": widened}, {"b": tk.S8})
    a, b = np.ones((8, 16), BF16), np.ones((8, 20), np.int8)[:, :16]
    with pytest.raises(ArgumentError, match=r"b at address .*, with rows 20 bytes apart.*24 bytes \[TK-LOAD-001\]"):
        made(a, b)
