"""A warp-specialised GEMM (TMA, mbarriers, wgmma) from text to result, and what is said when it is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from gemm_text import gemm_text, shared_bytes

from tilekit.emulator import BarrierFault, Deadlock, Device, LaunchReport, ProtocolError, RaceError

Array = np.ndarray[Any, Any]


def run(
    text: str,
    m: int,
    n: int,
    k: int,
    *,
    tile: int = 64,
    stages: int = 2,
    cluster: int = 1,
    seed: int = 0,
    schedule: Literal["adversarial", "random", "fair"] = "adversarial",
    check: Literal["full", "protocol", "off"] = "full",
) -> tuple[Array, Array, LaunchReport]:
    """The product as the emulator computes it, the exact one, and the report."""
    device = Device("sm_90a", seed=seed, schedule=schedule, check=check)
    random = np.random.default_rng(7)
    a = random.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
    b = random.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
    buffers = [device.buffer(x, name) for x, name in ((a, "A"), (b, "B"))]
    c = device.buffer(np.full((m, n), np.nan, np.float32), "C")
    maps = [
        device.tensor_map_tiled(buffer, box=(64, rows), swizzle="128B")
        for buffer, rows in zip(buffers, (64, tile // cluster), strict=True)
    ]
    report = device.load(text)["gemm"].launch(
        grid=(m // 64, n // tile),
        block=160,
        cluster=(cluster, 1, 1),
        shared_bytes=shared_bytes(tile, stages),
        args=[*maps, c, np.uint32(k // 64), np.uint32(n)],
    )
    return c.read(), a.astype(np.float32) @ b.astype(np.float32).T, report


@pytest.mark.parametrize(("tile", "stages", "cluster"), [(64, 2, 1), (128, 4, 1), (64, 2, 2), (128, 3, 2)])
def test_text_assembles(assemble: Callable[[str], None], tile: int, stages: int, cluster: int) -> None:
    """The real assembler takes the very text that the tests below run."""
    assemble(gemm_text(tile, stages, cluster))


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exact_under_every_schedule(schedule: Literal["adversarial", "random", "fair"], seed: int) -> None:
    """Two stages, K of four blocks: the exact result whatever the interleaving, and no finding."""
    got, expected, report = run(gemm_text(), 128, 128, 256, seed=seed, schedule=schedule)
    np.testing.assert_array_equal(got, expected)
    assert report.clean
    assert report.flops == 2 * 128 * 128 * 256
    assert report.bytes_loaded == 4 * 4 * 2 * 64 * 128
    assert set(report.instructions) == {"mma", "load"}


@pytest.mark.parametrize("seed", [0, 1])
def test_cluster_multicast(seed: int) -> None:
    """Two CTAs share B by multicast: each sends half a tile to both, and waits for the consumers of both."""
    got, expected, report = run(gemm_text(64, 2, 2), 128, 128, 256, cluster=2, seed=seed)
    np.testing.assert_array_equal(got, expected)
    assert report.clean


@pytest.mark.parametrize("check", ["protocol", "off"])
def test_other_levels_of_checking(check: Literal["protocol", "off"]) -> None:
    """Less checking gives the same result."""
    got, expected, _ = run(gemm_text(128, 4), 64, 128, 320, tile=128, stages=4, check=check)
    np.testing.assert_array_equal(got, expected)


def test_512_cubed_in_seconds() -> None:
    """512^3 with every check takes seconds, not minutes."""
    got, expected, report = run(gemm_text(128, 4), 512, 512, 512, tile=128, stages=4)
    np.testing.assert_array_equal(got, expected)
    assert report.seconds < 3


def broken(old: str, new: str, *, cluster: int = 1) -> str:
    """The text with one thing changed."""
    text = gemm_text(64, 2, cluster)
    assert old in text
    return text.replace(old, new)


def test_missing_release_is_a_deadlock() -> None:
    """Consumers that never free a stage: the report names roles, barrier and cycle."""
    with pytest.raises(Deadlock) as caught:
        run(broken("@%leader mbarrier.arrive.shared::cta.b64 _, [%empty];", ""), 64, 64, 320)
    message = str(caught.value)
    assert "role load (warp 4) waits for ring.empty[0]" in message
    assert "role mma (warps 0-3) waits for ring.full[0]" in message
    assert "Ring.acquire ring.py:20" in message


def test_short_expect_tx_is_named() -> None:
    """A byte count that is too small is found on the barrier it was given to."""
    with pytest.raises(BarrierFault, match=r"ring\.full"):
        run(broken(", 16384;", ", 16368;"), 64, 64, 128)


def test_large_expect_tx_is_a_deadlock() -> None:
    """A byte count that is too large: the deadlock's hint compares promise and delivery."""
    with pytest.raises(Deadlock, match="expect_tx promised 16400 bytes but 16384 arrived"):
        run(broken(", 16384;", ", 16400;"), 64, 64, 128)


def test_missing_wgmma_wait_is_found() -> None:
    """Reading accumulators of a wgmma in flight faults at the instruction that reads them."""
    with pytest.raises(ProtocolError, match="wgmma in flight") as caught:
        run(broken("wgmma.wait_group.sync.aligned 0;", ""), 64, 64, 64)
    assert "st.global" in caught.value.text


def test_missing_wgmma_fence_is_found() -> None:
    """A first wgmma without a fence faults."""
    with pytest.raises(ProtocolError, match=r"wgmma\.fence"):
        run(broken("wgmma.fence.sync.aligned;", ""), 64, 64, 64)


def test_release_before_wait_is_a_race() -> None:
    """Freeing a stage before its wgmma is known complete races with the next load into it."""
    text = gemm_text()
    release = "@%leader mbarrier.arrive.shared::cta.b64 _, [%empty];"
    text = text.replace(release, "").replace(
        "wgmma.wait_group.sync.aligned 0;", release + "\n  wgmma.wait_group.sync.aligned 0;"
    )
    with pytest.raises(RaceError) as caught:
        run(text, 64, 64, 320)
    assert "ring.tiles" in str(caught.value)


def test_missing_full_wait_is_found() -> None:
    """Consumers that do not wait for the tile: a race, whatever the numbers are."""
    text = broken("  @!%p bra WAIT_FULL;", "")

    def attempts() -> None:
        for seed in range(3):
            run(text, 64, 64, 320, seed=seed)

    with pytest.raises((RaceError, BarrierFault)):
        attempts()


def test_missing_final_cluster_barrier_is_found() -> None:
    """A CTA that leaves while its peer still sends to it faults for some schedule."""
    text = gemm_text(64, 2, 2)
    head, _, tail = text.rpartition("DONE:")
    text = head + "DONE:\n  ret;\n}\n"
    assert "barrier.cluster" in tail
    faults = 0
    for seed in range(6):
        try:
            run(text, 128, 64, 256, cluster=2, seed=seed)
        except (ProtocolError, BarrierFault, Deadlock):
            faults += 1
        except Exception as error:
            if "exited" not in str(error):
                raise
            faults += 1
    assert faults > 0
