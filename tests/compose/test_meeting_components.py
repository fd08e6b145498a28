"""Components that each are legal and do not fit each other: refused where they meet, not seen far away at a launch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import upright

import tilekit.compose as tk
from tilekit.assembly.errors import TraceError

COPIES = tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=1, accumulators=32, copies=True)


def matmul(
    plan: tk.WarpPlan = upright.PLAIN,
    *,
    tile: tuple[int, int] = (64, 64),
    warpgroups: int = 1,
    stores: tk.Role | None = None,
    layout: Any = None,
    accumulators: Any = tk.RegisterAccumulators,
    direct: bool = False,
    multiplies: Any = lambda a, b, warpgroups: tk.Wgmma(a, b, warpgroups=warpgroups),
    raster: Any = None,
    wrapped: Any = lambda epilogue: epilogue,
) -> tk.ComposedKernel:
    """A matmul for sm_90a of these parts."""

    @tk.kernel(*upright.AB, upright.D, target="sm_90a", threads=plan.threads)
    def met(w: tk.Writer) -> Any:
        position = tk.Cluster.read(w, 1, 1)
        a, b = (tk.OperandTile(name, tk.BF16, rows, "k") for name, rows in zip("ab", tile, strict=True))
        stage, op = tk.StandardPayload(a, b), multiplies(a, b, warpgroups)
        tiles = stage.allocate(w.shared, "inputs", 2)
        sides = {"producers": (plan["load"],), "consumers": (plan["mma"],), "cluster": position}
        sync = tk.MbarrierSync(w, "inputs", stages=2, stage_bytes=stage.stage_bytes, **sides)
        m, n, k = (w.parameter(name, tk.registers.U32, lambda call, name=name: getattr(call, name)) for name in "mnk")
        walked = raster or tile
        scheduler = tk.StaticScheduler(
            tk.RasterOrder(w, tile_m=walked[0], tile_n=walked[1], cluster=position, k=k, k_block=stage.k)
        )
        fusion = tk.Elementwise(w, tk.ElementwiseSpec(), columns=n, precise=False)
        held = layout or op.layout
        if direct:
            epilogue: Any = tk.DirectEpilogue(w, held, fusion, out=tk.BF16, rows=m, columns=n)
        else:
            role = stores or plan["mma"]
            epilogue = tk.StagedEpilogue(w, held, fusion, out=tk.BF16, role=role, buffers=2, first_barrier=1)
        tk.WarpSpecialized(
            warps=plan,
            cluster=position,
            inputs=tk.TilePipeline(stage, tiles, stages=2, sync=sync),
            loader=tk.StandardLoader(w, tk.TmaLoader(w, a), tk.TmaLoader(w, b), tiles, position),
            op=op,
            accumulators=accumulators(op),
            scheduler=scheduler,
            epilogue=wrapped(epilogue),
            k=k,
            in_flight=1,
        ).trace(w)
        return scheduler

    return met


def refusal(*args: Any, **keywords: Any) -> str:
    """What the kernel says when it is traced."""
    with pytest.raises(TraceError) as caught:
        matmul(*args, **keywords).traced  # noqa: B018  # tracing raises
    assert caught.value.code == "TK-PART-001"
    return str(caught.value)


def plan_of(consumers: int, accumulators: int = 64) -> tk.WarpPlan:
    """A plan for sm_90a."""
    return tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=consumers, accumulators=accumulators)


def test_an_op_of_fewer_warpgroups_than_the_role() -> None:
    """One warpgroup's instruction in a role of two, and two in a role of one."""
    said = refusal(plan_of(2), tile=(128, 64), warpgroups=1)
    assert "Wgmma(warpgroups=1); legal: 2: those of role 'mma' that share a tile, 8 warps in all; nearest: 2" in said
    assert "nearest: 1" in refusal(plan_of(1), tile=(128, 64), warpgroups=2)


def test_an_epilogue_of_a_role_that_does_not_store() -> None:
    """A staged epilogue that is made for the load role."""
    said = refusal(COPIES, stores=COPIES["load"])
    assert "StagedEpilogue(role='load'); legal: the role that stores, 'mma' of warps" in said


@pytest.mark.parametrize("direct", [False, True])
def test_an_epilogue_for_other_accumulators(direct: bool) -> None:
    """An epilogue made for half the columns that there are."""
    a, b = (tk.OperandTile(name, tk.BF16, 64, "k") for name in "ab")
    said = refusal(tile=(64, 128), layout=tk.Wgmma(a, b, warpgroups=1).layout, direct=direct)
    assert "(layout='1 x (64 x 64)'); legal: that of the accumulators, 1 x (64 x 128) a warpgroup" in said


def test_more_accumulators_than_registers() -> None:
    """A tile whose sums leave a thread no register, with the plan made for half of it."""
    said = refusal(plan_of(2, 128), tile=(256, 256), warpgroups=2)
    assert "'256 accumulators a thread'" in said
    assert "less than the 232 registers" in said


def exchanged(a: Any, b: Any, warpgroups: int) -> tk.Wgmma:
    """The op of operands that have changed places."""
    return tk.Wgmma(b, a, warpgroups=warpgroups)


def test_an_op_whose_operands_are_exchanged() -> None:
    """The op's A is the tile that the loader brings along columns."""
    said = refusal(multiplies=exchanged)
    assert "WarpSpecialized's Wgmma(a='b'); legal: the tile that is loaded along rows of the output; " in said
    assert "'b' is along columns; nearest: 'a'" in said


class Turning:
    """An epilogue of one's own, which may turn what it stores."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_an_epilogue_of_ones_own_may_turn_what_it_stores() -> None:
    """Which way the accumulators lie is not known then, and what is not known is not compared."""
    assert matmul(multiplies=exchanged, wrapped=Turning).ptx


@pytest.mark.parametrize(
    ("raster", "says"), [((64, 128), "(tile_n=128); legal: 64, the columns"), ((32, 64), "(tile_m=32); legal: 64, the")]
)
def test_a_raster_of_other_tiles(raster: tuple[int, int], says: str) -> None:
    """Tiles that lie further apart than they are wide, and closer."""
    said = refusal(raster=raster)
    assert f"WarpSpecialized's raster{says}" in said
    assert "of a tile that Wgmma makes; nearest: 64" in said


def test_operands_of_another_k_block() -> None:
    """An op that reads two slices of a stage of one."""
    long = [tk.OperandTile(name, tk.BF16, 64, "k", slices=2) for name in "ab"]
    said = refusal(multiplies=lambda a, b, warpgroups: tk.Wgmma(*long, warpgroups=warpgroups))
    assert "Wgmma(a='a'); legal: a tile with the k-block of a stage, 64 elements; 'a' has 128" in said


@dataclass
class Doubled(tk.RegisterAccumulators):
    """Accumulators whose finished tile has twice the sums."""

    def __init__(self, op: Any) -> None:
        super().__init__(op)

    def consumer(self, w: tk.Writer, group: tk.Warpgroup) -> Any:
        """What hands them on."""
        return Handing(w, self)


@dataclass
class Handing:
    """Doubles the sums on their way to the epilogue."""

    w: tk.Writer
    accumulators: Doubled

    @contextmanager
    def acquire(self, tile: tk.Tile) -> Iterator[Doubled]:
        """Enter with twice the sums."""
        for registers in self.accumulators:
            for register in registers:
                register.assign(register + register)
        yield self.accumulators


def test_the_epilogue_is_given_what_the_consumer_hands_on() -> None:
    """Accumulators in registers, too, go through their `consumer`."""
    random = np.random.default_rng(5)
    a, b = (random.integers(-2, 3, (rows, 64)).astype(tk.BF16.numpy) for rows in (64, 72))
    expected = 2 * (a.astype(np.float32) @ b.astype(np.float32).T)
    assert (matmul(accumulators=Doubled)(a, b) == expected.astype(tk.BF16.numpy)).all()
