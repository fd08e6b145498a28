"""Products with scales of blocks against float64, to the bit where sums are exact: on the emulator, and on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.blockwise.scaled_products import CONFIGS, ScaledProduct, drawn
from tilekit.dtypes import E4M3
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.runtime import driver

CHIPS = tuple(CONFIGS)
EMULATED = [drawn(seed, chip) for seed in range(20) for chip in CHIPS]
ON_GPU = 200
"""Seeds of the cases that run on a GPU, every fourth of them large."""


def _shares(case: ScaledProduct) -> bool:
    """Whether CTAs share its sums, as none of groups does."""
    return case.config is not None and case.config.cluster_k > 1


def _by_hand(chip: str) -> list[ScaledProduct]:
    """Every config, with scales that say where they lie, at extents that no tile and no block divides."""
    lies: Any = ("rows", "columns")
    place = ScaledProduct(seed=3, chip=chip, m=137, n=328, k=656, data="places")
    swapped = [replace(place, m=37, config=c) for c in CONFIGS[chip] if c.swap_ab]
    return [
        *(replace(place, config=c, lie=lies[i % 2]) for i, c in enumerate(CONFIGS[chip]) if not c.swap_ab),
        *swapped,
        *(replace(place, groups=(64, 0, 9, 1, 60), lie=lie) for lie in lies),
        *(replace(place, m=70, groups=(70, 0, 9, 1), counted=True, lie=lie) for lie in lies),
        *(replace(c, groups=(17, 0, 10, 9), lie="columns") for c in swapped if not _shares(c)),
        *(replace(c, groups=(37, 0, 9), counted=True, lie="columns") for c in swapped if not _shares(c)),
        replace(place, data="normal", n=256, out="bf16", bias="f32", activation="silu"),
        replace(place, data="integers", m=1, n=8, k=128),
        replace(place, data="integers", m=40, n=64, k=0),
        replace(place, data="integers", m=0),
    ]


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("case", [case for chip in CHIPS for case in _by_hand(chip)], ids=str)
def test_each_config(case: ScaledProduct) -> None:
    """Each scale reaches its rows, columns and k-blocks, exactly and clean under an adversarial schedule."""
    case.run(seed=case.n)


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("case", EMULATED, ids=str)
def test_generated(case: ScaledProduct) -> None:
    """Types, shapes, groups, layouts of scales, configs and epilogues, all drawn."""
    case.run(seed=case.seed)


def _filled_blocks() -> list[ScaledProduct]:
    """Groups whose last rows are in each block of 64 of a tile of 256, at either end of it, and empty ones."""
    sizes = (0, 1, 64, 65, 128, 129, 192, 193, 255, 256)
    case = ScaledProduct(seed=7, chip="sm_90a", m=256, n=136, k=272, data="places", groups=sizes, counted=True)
    tall = MatmulConfig(tile=(256, 96), cluster=(1, 1), in_flight=0)
    lone = MatmulConfig(tile=(128, 96), cluster=(1, 1), consumers=1, in_flight=0)
    behind = replace(case, m=sum(sizes), counted=False)
    return [
        *(replace(case, config=tall.changed(cluster=cluster)) for cluster in ((1, 1), (1, 2), (2, 1))),
        replace(case, config=lone),
        replace(behind, config=tall, lie="columns"),
        replace(behind, config=lone),
    ]


@pytest.mark.parametrize("case", _filled_blocks(), ids=str)
def test_blocks_below_a_groups_last_row(case: ScaledProduct) -> None:
    """They are not multiplied, and no row above them is lost; each warpgroup gives every stage back."""
    case.run(seed=case.n)


@pytest.mark.gpu
@pytest.mark.parametrize("case", _filled_blocks(), ids=str)
def test_blocks_below_a_groups_last_row_on_the_gpu(case: ScaledProduct) -> None:
    """The same bodies."""
    _skip_without_gpu()
    case.call("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("case", _by_hand("sm_90a"), ids=str)
def test_each_config_on_the_gpu(case: ScaledProduct) -> None:
    """The same bodies."""
    _skip_without_gpu()
    case.call("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(ON_GPU))
def test_generated_on_the_gpu(seed: int) -> None:
    """The same, and larger ones."""
    _skip_without_gpu()
    drawn(seed, "sm_90a", large=seed % 4 == 3).call("cuda")


def _skip_without_gpu() -> None:
    if driver.why_unavailable() is not None:
        pytest.skip("no GPU")


@pytest.mark.parametrize("chip", CHIPS)
def test_the_calls(chip: str) -> None:
    """`scaled_matmul` and `grouped_matmul` take the same cases, also into outputs that they make."""
    for case in (
        ScaledProduct(seed=1, chip=chip, m=65, n=72, k=272, bias="f32"),
        ScaledProduct(seed=2, chip=chip, m=65, n=72, k=272, groups=(5, 60)),
    ):
        case.call(chip)
        arrays = case.arrays()
        call: Any = tilekit.grouped_matmul if case.groups else tilekit.scaled_matmul
        given = {name: value for name, value in case._given(arrays, None, chip).items() if name != "out_dtype"}
        found = call(arrays["a"], arrays["b"], **given)
        assert found.dtype.name == "bfloat16"
        assert (found == case.expected(arrays).astype(np.float32).astype(found.dtype)).all()


def test_sums_are_added_in_f32() -> None:
    """What a tensor core that keeps 13 bits of a sum would lose over 32 blocks of K is there."""
    blocks = 32
    a, b = (np.ones((8, 128 * blocks)).astype(E4M3.numpy) for _ in "ab")
    scales = np.ones((8, blocks), np.float32)
    scales[:, 0] = 2.0**14  # then 31 times 128, below the last of 13 bits of 2^21
    found = tilekit.scaled_matmul(a, b.T, scales, np.ones((1, blocks), np.float32), out_dtype="f32", target="sm_90a")
    assert (found == 2.0**21 + 31 * 128).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_groups_without_a_row_in_all_are_empty(chip: str) -> None:
    """Nothing to compute, and no warning of NumPy's out of the picker's model, behind each other or apart."""
    b, scale_b = np.ones((3, 64, 256), E4M3.numpy).transpose(0, 2, 1), np.ones((3, 1, 2), np.float32)
    for shape, bounds in (((0,), "ends"), ((3, 0), "counts")):
        a, scale_a = np.ones((*shape, 256), E4M3.numpy), np.ones((*shape, 2), np.float32)
        given: dict[str, Any] = {bounds: np.zeros(3, np.int32), "scale_a": scale_a, "scale_b": scale_b}
        found = tilekit.grouped_matmul(a, b, **given, target=chip)
        assert found.shape == (*shape, 64)
