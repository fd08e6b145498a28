"""The static schedule is no chip's own: the same tiles in the same order on AMD's, and all of it in scalars."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.writer import Role, Writer
from tilekit.emulator import Device
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tiles.cluster import Cluster

MOST = 64
GRIDS = ((3, 5, 2, 4), (1, 7, 1, 3), (9, 2, 4, 5), (4, 4, 8, 1))
"""Tiles down and across, tiles of a group, CTAs."""


def kernel(target: str) -> Writer:
    """Each CTA writes the first row and column of each of its tiles."""
    w = Writer("tiles", target=target, threads=128)
    out, k_end = w.parameter("out", GMEM), w.parameter("k", U32)
    raster = RasterOrder(w, tile_m=128, tile_n=64, cluster=Cluster.read(w, 1, 1), k=k_end, k_block=64)
    scheduler = StaticScheduler(raster)
    role = Role("all", warps=range(128 // w.lanes), may=frozenset({"memory", "store"}))
    done = w.variable(U32, 0, "done")
    with w.role(role, w.warp()):
        for tile in scheduler.tiles(w, role):
            for value in (tile.row, tile.column):
                place = out + w.widen_multiply(w.cta() * MOST + done, 4)
                w.isa.memory.store_release_gpu(address=place.retyped(GMEM), value=value)
                done.assign(done + 1)
    return w


def launch(target: str) -> list[npt.NDArray[Any]]:
    """What is written, for each of `GRIDS`."""
    w = kernel(target)
    module = w.text()
    found = []
    for rows, columns, group, grid in GRIDS:
        device = Device(target)
        out = device.buffer(np.zeros(MOST * grid, np.uint32))
        numbers = [np.uint32(number) for number in (128, rows, columns, group, rows * columns)]
        device.load(module)["tiles"].launch(grid=grid, block=128, args=[out, *numbers])
        found.append(out.read())
    return found


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_tiles_are_those_of_a_hopper_chip(target: str) -> None:
    """Divisions by numbers that a launch brings included."""
    for found, wanted in zip(launch(target), launch("sm_90a"), strict=True):
        assert found.any()
        assert (found == wanted).all()


def test_which_tile_is_a_scalar_s_work() -> None:
    """All that is uniform stays out of the VGPRs, but for what a division by a variable takes for a moment."""
    text = kernel("gfx950").text()
    found = re.search(r"\.amdhsa_next_free_vgpr (\d+)", text)
    assert found is not None
    assert int(found[1]) <= 8
