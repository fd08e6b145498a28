"""Counts of a launch: instructions, lines that never ran, copies, bank conflicts, waits."""

from __future__ import annotations

import numpy as np
import pytest
from product_kernels import CHUNKS, DOUBLE, STRIDED, doubling, line_of

from tilekit.emulator import Device
from tilekit.emulator.ptx.observation.counting import wavefronts

LANES = np.arange(32)


@pytest.mark.parametrize(
    ("addresses", "size", "expected"),
    [
        (LANES * 4, 4, (1, 1)),
        (LANES * 0, 4, (1, 1)),
        (LANES * 8, 4, (2, 1)),
        (LANES * 128, 4, (32, 1)),
        (LANES * 132, 4, (1, 1)),
        (LANES * 4 + 60, 4, (1, 1)),
        (LANES % 2 * 128, 4, (2, 1)),
        (LANES * 1, 1, (1, 1)),
        (LANES * 2, 2, (1, 1)),
        (LANES * 8, 8, (2, 2)),
        (LANES * 16, 8, (4, 2)),
        (LANES * 16, 16, (4, 4)),
        (LANES * 128, 16, (32, 4)),
        (LANES * 144, 16, (4, 4)),
        (LANES * 128 + (LANES % 8 * 16), 16, (4, 4)),
        (np.where(LANES < 8, LANES * 128, -1), 16, (8, 1)),
        (np.where(LANES == 3, 12, -1), 4, (1, 1)),
    ],
)
def test_wavefronts(addresses: np.ndarray, size: int, expected: tuple[int, int]):
    """Passes through 32 banks of 4 bytes, for the patterns that every guide to shared memory shows."""
    assert wavefronts(addresses, size) == expected


@pytest.mark.parametrize(("stride", "extra"), [(4, 0), (8, 1), (64, 15), (128, 31), (132, 0)])
def test_conflicts_of_a_kernel(stride: int, extra: int):
    """The store and the load of a strided access each have the conflicts of their stride, at their lines."""
    device = Device("sm_90a")
    out = np.zeros(32, np.float32)
    report = device.load(STRIDED)["strided"].launch(
        1, 32, [out, np.uint32(stride)], shared_bytes=32 * stride + 4, statistics=True
    )
    assert out.tolist() == LANES.tolist()
    assert report.statistics is not None
    sites = {site.line: site for site in report.statistics.bank_sites}
    for words in ("st.shared.f32", "ld.shared.f32"):
        site = sites[line_of(STRIDED, words)]
        assert (site.accesses, site.wavefronts, site.extra) == (1, 1 + extra, extra)
    assert report.statistics.extra_wavefronts == 2 * extra
    assert report.statistics.never_run == ((line_of(STRIDED, "0f00000000"), "st.global.f32 [out], 0f00000000"),)


def test_counts_agree_with_the_report():
    """Counts by opcode add up to the instructions of each role, with and without counting; copies to the bytes."""
    plain, counted = doubling(), doubling()
    bare = plain.kernel.launch(**plain.options)
    report = counted.kernel.launch(**counted.options, statistics=True)
    statistics = report.statistics
    assert bare.statistics is None
    assert statistics is not None
    assert counted.right
    assert report.instructions == bare.instructions
    assert {role: sum(counts.values()) for role, counts in statistics.opcodes.items()} == report.instructions
    assert statistics.opcodes["double"]["ld.shared.f32"] == CHUNKS
    assert statistics.opcodes["copy"]["mbarrier.init.shared::cta.b64"] == 4
    (traffic,) = statistics.copies.values()
    assert (traffic.copies, traffic.bytes) == (CHUNKS, report.bytes_loaded)
    assert statistics.never_run == ()
    assert statistics.lines == sum(
        line.strip().endswith(";") and line.startswith("    ") and ".reg" not in line for line in DOUBLE.splitlines()
    )


def test_stalls_are_counted_by_barrier():
    """A ring of two stages with late copies stalls its reader on both of its full barriers."""
    launch = doubling()
    statistics = launch.kernel.launch(**launch.options, statistics=True).statistics
    assert statistics is not None
    assert {"full[0]", "full[1]", "empty[0]"} <= statistics.stalls.keys()
    assert all(stall.waits > 0 for stall in statistics.stalls.values())
    assert "waits for full[0]" in str(statistics)


def test_a_waiting_warp_is_counted_once():
    """A wait that is entered again several times before it ends is one wait, however long."""
    launch = doubling(schedule="fair")
    statistics = launch.kernel.launch(**launch.options, statistics=True).statistics
    assert statistics is not None
    assert statistics.stalls["bar 0"].waits == 1
    assert statistics.stalls["bar 0"].steps > 0
