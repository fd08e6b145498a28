"""Tiles on chips of several dies: each once, and neighbours on one die."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.writer import Role, Writer
from tilekit.emulator import Device
from tilekit.targets import GFX942, GFX950
from tilekit.tile_schedule.dies import DieOrder
from tilekit.tile_schedule.raster import Raster, RasterOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tiles.cluster import Cluster


@given(st.integers(1, 9), st.integers(1, 3000))
def test_each_tile_once(dies: int, total: int) -> None:
    """Every number stands for a tile of its own."""
    order = DieOrder(dies)
    assert sorted(order.tile(index, total) for index in range(total)) == list(range(total))


@given(st.integers(2, 9), st.integers(1, 3000), st.integers(1, 304))
def test_neighbours_share_a_die(dies: int, total: int, resident: int) -> None:
    """A die's tiles are one range, in order; so all neighbours but one a die are on the same one."""
    order = DieOrder(dies)
    clusters = order.clusters(Raster(total, 1, 1, 1).clusters(resident), total, resident)
    assert clusters <= max(resident, 1)
    die_of = np.zeros(total, int)
    for index in range(total):
        cta = index % clusters
        die_of[order.tile(index, total)] = cta % dies
    if clusters == total or clusters % dies == 0:
        assert (np.diff(die_of) != 0).sum() <= dies - 1
        assert (np.diff(die_of) >= 0).all()


@pytest.mark.parametrize("chip", [GFX942, GFX950], ids=lambda chip: chip.name)
def test_a_full_grid_goes_round_with_its_die(chip: Any) -> None:
    """As many CTAs as the chip holds are whole turns of its dies; fewer are rounded up to such."""
    order = DieOrder(chip.dies)
    assert chip.dies == 8
    assert chip.multiprocessors % chip.dies == 0
    assert order.clusters(chip.multiprocessors, 5000, chip.multiprocessors) == chip.multiprocessors
    assert order.clusters(129, 258, chip.multiprocessors) == 136
    assert order.clusters(3, 3, chip.multiprocessors) == 3
    assert order.clusters(5, 60, 7) == 5


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_the_device_counts_alike(chip: str) -> None:
    """What a kernel works out is what `tile` says, for any number of tiles."""
    w = Writer("dies", target=chip, threads=64)
    out, count = w.parameter("out", GMEM), w.parameter("count", U32)
    order = DieOrder(8)
    for index in w.range(count, start=0, step=1, name="tile"):
        address = (out + w.widen_multiply(index, 4)).retyped(GMEM)
        w.isa.memory.store_release_gpu(address=address, value=order.place(w, index, count))
    text = w.text()
    for total in (1, 7, 8, 9, 37, 64, 101):
        device = Device(chip)
        found = device.buffer(np.zeros(total, np.uint32))
        device.load(text)["dies"].launch(grid=1, block=64, args=[found, np.uint32(total)])
        assert found.read().tolist() == [order.tile(index, total) for index in range(total)]


def test_a_raster_goes_by_dies() -> None:
    """With dies a launch's grid is whole turns of them where CTAs go round, and the same tiles come, each once."""
    texts = [kernel(dies) for dies in (None, DieOrder(8))]
    for rows, columns, group, grid in ((5, 7, 2, 8), (3, 3, 3, 9), (9, 4, 4, 16)):
        found = []
        for text in texts:
            device = Device("gfx950")
            out = device.buffer(np.full((grid, 8, 2), 1 << 20, np.uint32))
            numbers = [np.uint32(number) for number in (128, rows, columns, group, rows * columns)]
            device.load(text)["tiles"].launch(grid=grid, block=64, args=[out, *numbers])
            found.append(out.read().reshape(-1, 2))
        plain, by_dies = ({tuple(at) for at in one.tolist() if at[0] < 1 << 20} for one in found)
        assert plain == by_dies
        assert len(by_dies) == rows * columns


def kernel(dies: DieOrder | None) -> str:
    """Each CTA writes the first row and column of each of its tiles."""
    w = Writer("tiles", target="gfx950", threads=64)
    out, k_end = w.parameter("out", GMEM), w.parameter("k", U32)
    raster = RasterOrder(w, tile_m=128, tile_n=64, cluster=Cluster.read(w, 1, 1), k=k_end, k_block=64, dies=dies)
    role = Role("all", warps=range(1), may=frozenset({"memory", "store"}))
    done = w.variable(U32, 0, "done")
    with w.role(role, w.warp()):
        for tile in StaticScheduler(raster).tiles(w, role):
            for which, value in enumerate((tile.row, tile.column)):
                place = out + w.widen_multiply((w.cta() * 8 + done) * 2 + which, 4)
                w.isa.memory.store_release_gpu(address=place.retyped(GMEM), value=value)
            done.assign(done + 1)
    return w.text()
