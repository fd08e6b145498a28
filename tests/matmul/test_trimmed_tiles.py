"""MN-major tiles whose columns fill no whole chunks, and chunks that lie beyond the operand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.matmul.matmul_machine import Layout, Machine
from tilekit.dtypes import BF16
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A


def turned(tile: tuple[int, int], cluster: tuple[int, int] = (1, 1), **fields: int | str) -> MatmulConfig:
    """A config whose instruction's B is the caller's A."""
    return MatmulConfig(tile=tile, cluster=cluster, consumers=max(1, tile[0] // 64), swap_ab=True, **fields)  # type: ignore[arg-type]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("config", "m", "n"),
    [
        (turned((128, 136), (2, 1)), 264, 264),  # the second tile's last 8 columns lie outside, alone in their chunk
        (turned((128, 136), (1, 2)), 136, 136),  # so does all that the second CTA has
        (turned((64, 88), (4, 1)), 96, 520),  # in two chunks
        (turned((64, 88), k_group=2), 168, 136),  # the last chunk ends outside
        (turned((64, 72), (2, 2), split_k=2), 208, 136),
        (turned((192, 120), (1, 2), output_buffers=1), 200, 200),
        (turned((64, 40), cluster_k=4, k_group=2), 72, 72),
        (turned((128, 104), stream_k=2), 296, 264),
        (MatmulConfig(tile=(128, 168), cluster=(2, 1)), 192, 344),  # rows: the second chunk of the second tile
        (MatmulConfig(tile=(64, 208), consumers=1, cluster=(1, 4)), 72, 424),
        (MatmulConfig(tile=(128, 72), schedule="pingpong", cluster=(2, 4)), 136, 80),
        (MatmulConfig(tile=(256, 136), in_flight=0, output_buffers=1), 320, 264),
    ],
    ids=str,
)
def test_nothing_outside_counts(machine: Machine, config: MatmulConfig, m: int, n: int) -> None:
    """What is loaded in the place of elements outside never comes into the result: it holds infinities.

    They lie in the first row of A and the first column of B, where such boxes begin.
    """
    k = 328
    random = np.random.default_rng(m + n)
    a, b = (random.integers(-3, 4, each).astype(ml_dtypes.bfloat16) for each in ((m, k), (k, n)))
    expected = a[1:].astype(np.float32) @ b[:, 1:].astype(np.float32)
    a[0], b[:, 0] = np.inf, -np.inf
    first, second = machine.place(a, Layout(a.shape, (1, m + 8))), machine.place(b, Layout(b.shape, (n, 1)))
    out = machine.place_output(BF16, Layout((m, n), (n + 8, 1)))
    tilekit.matmul(first.array, second.array, out=out.array, config=config)
    assert np.array_equal(out.read()[1:, 1:], expected.astype(ml_dtypes.bfloat16))
    out.check_surroundings()
    first.check_unchanged()
    second.check_unchanged()


@pytest.mark.parametrize(
    ("spec", "trimmed"),
    [
        (MatmulSpec(a_major="mn"), True),
        (MatmulSpec(a_major="mn", a_load=8), False),  # threads copy whole chunks
        (MatmulSpec(), False),  # no chunks
    ],
)
def test_a_stage_counts_what_comes(spec: MatmulSpec, trimmed: bool) -> None:
    """128x136 turned round: 64 + 64 + 8 columns instead of three chunks, where the copy engine loads them."""
    config = turned((128, 136), stages=3)
    _, b = config.operands(spec)
    whole = config.payload(spec).stage_bytes
    assert b.rest == (8 if trimmed else 0)
    if trimmed:
        assert config.engine_bytes(spec) == whole - 56 * 64 * 2
        assert f"{whole - 56 * 64 * 2};" in tilekit.compile(spec, config=config, target=SM_90A.name).ptx
    assert config.legal(SM_90A, spec)
