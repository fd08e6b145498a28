"""Convolutions whose operands threads load, beside a role that asks for tiles: what sm_100a's picker takes of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.kernels.conv2d.threads import ThreadSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.targets import SM_100A


def test_every_config_that_is_tried_is_traced() -> None:
    """Those that claim their tiles, too, of which each of the first, the others and the last is one."""
    spec = ThreadSpec(a_load=2, b_load=2)
    configs = candidates(spec, SM_100A)
    assert {config.claims_tiles for config in configs} == {False, True}
    for config in configs:
        assert trace(spec, config, SM_100A).assembly


@pytest.mark.parametrize("scheduler", [False, True])
def test_threads_that_copy_are_a_warpgroup(scheduler: bool) -> None:
    """So they begin where one does; the others take what is behind, and no warp is left over."""
    plan = WarpPlan.tensor_memory(SM_100A, scheduler=scheduler, copies=True)
    for role in plan.roles:
        assert len(role.warps) == 1 or role.warps.start % SM_100A.matrix_waves == 0
    assert sorted(warp for role in plan.roles for warp in role.warps) == list(range(plan.threads // SM_100A.lanes))


@pytest.mark.parametrize("channels", [6, 3])
def test_a_claiming_config_is_exact(channels: int) -> None:
    """Whole numbers, several tiles a CTA, a ragged last one; a line of the filter at a time, or gathered."""
    rng = np.random.default_rng(channels)
    x, w = (
        rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16)
        for shape in ((2, 15, 11, channels), (136, 3, 3, channels))
    )
    config = BlackwellConfig((128, 64), (1, 1), cta_group=1, clc_stages=2)
    found = tilekit.conv2d(x, w, padding=1, config=config, target="sm_100a", out_dtype="f32")
    padded = np.pad(x.astype("f8"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    assert (found == np.einsum("nhwcyx,kyxc->nhwk", windows, w.astype("f8"))).all()
