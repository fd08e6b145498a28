"""Many orders of one launch: what goes wrong in one of them is found and comes again from its seed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from product_kernels import DOUBLE, RACE, STARTED, TICKETS, doubling

from tilekit.emulator import Device, EmulatorError, LaunchError, LaunchReport, MemoryFault, RaceError


def test_clean_kernel_is_clean_in_every_order():
    """A correct kernel gives the same results in all orders, and the summary says how many there were."""
    launch = doubling()
    found = launch.kernel.explore(12, **launch.options)
    assert found.clean
    assert (found.tries, found.schedules, found.different) == (12, ("adversarial", "random", "fair"), ())
    assert str(found).startswith("double_it: 12 launches (adversarial, random, fair)")
    assert np.isnan(launch.result.read()).all()


def test_race_comes_again_from_its_seed():
    """Seed and schedule of a failure give the same fault, word for word, on another device."""
    launch = doubling(RACE)
    failure = launch.kernel.explore(20, **launch.options).failure
    assert failure is not None
    assert isinstance(failure.error, RaceError)
    again = doubling(RACE)
    with pytest.raises(RaceError) as caught:
        again.kernel.launch(**again.options, seed=failure.seed, schedule=failure.schedule)
    assert str(caught.value) == str(failure.error)


def test_results_that_depend_on_the_order():
    """Orders that give other results are noticed, refused by `accept`, and come again from their seed."""
    device = Device("sm_90a")
    kernel = device.load(TICKETS)["tickets"]
    counter, out = device.buffer(np.zeros(1, np.uint32), "counter"), device.buffer(np.zeros(4, np.uint32), "out")
    found = kernel.explore(30, 1, 128, [counter, out])
    assert found.clean
    assert found.different == ("out",)

    def in_order(report: LaunchReport) -> bool:
        return out.read().tolist() == [0, 1, 2, 3]

    failure = kernel.explore(30, 1, 128, [counter, out], accept=in_order).failure
    assert failure is not None
    assert failure.report is not None
    assert "not accepted" in str(failure)
    kernel.launch(1, 128, [counter, out], seed=failure.seed, schedule=failure.schedule)
    first = out.read().tolist()
    counter.write(np.zeros(1, np.uint32))
    kernel.launch(1, 128, [counter, out], seed=failure.seed, schedule=failure.schedule)
    assert out.read().tolist() == first != [0, 1, 2, 3]


def test_arrays_are_as_before():
    """NumPy arrays among the arguments start every launch with their contents, and have them afterwards."""
    device = Device("sm_90a")
    counter, out = np.zeros(1, np.uint32), np.full(4, 9, np.uint32)
    found = device.load(TICKETS)["tickets"].explore(6, 1, 128, [counter, out])
    assert found.clean
    assert found.different == ("array 1 of the arguments",)
    assert counter.tolist() == [0]
    assert out.tolist() == [9] * 4
    assert device.memory.allocations() == []


def test_read_only_arrays_stay_as_they_are():
    """An array that cannot be written is an argument like others, of which no contents are put back."""
    x, out = np.arange(192, dtype=np.float32), np.full(192, np.nan, np.float32)
    x.flags.writeable = False
    found = Device("sm_90a").load(DOUBLE)["double_it"].explore(3, 1, 64, [x, out, np.uint32(6)], shared_bytes=288)
    assert found.clean
    assert x.tolist() == list(range(192))
    out.flags.writeable = False
    with pytest.raises(MemoryFault, match=r"store to out_param, which is read-only"):
        Device("sm_90a").load(DOUBLE)["double_it"].launch(1, 64, [x, out, np.uint32(6)], shared_bytes=288)


def test_progress_counts_orders():
    """The hook hears of every try."""
    launch = doubling()
    heard: list[tuple[int, int]] = []
    launch.kernel.explore(3, **launch.options, progress=lambda done, total, seconds: heard.append((done, total)))
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_bad_requests_are_refused():
    """No tries, no such schedule, or arguments that do not fit: errors at once, not findings."""
    launch = doubling()
    with pytest.raises(LaunchError, match=re.escape("tries=0 is not allowed")):
        launch.kernel.explore(0, **launch.options)
    with pytest.raises(LaunchError, match=r"schedules=\('fare',\).*legal: some of adversarial, random, fair"):
        launch.kernel.explore(1, **launch.options, schedules=["fare"])  # type: ignore[list-item]
    with pytest.raises(EmulatorError, match="2 arguments for the 3 parameters"):
        launch.kernel.explore(1, 1, 64, launch.options["args"][:2])


@pytest.mark.parametrize(("starts", "numbers"), [("ascending", [0, 1, 2, 3]), ("descending", [3, 2, 1, 0])])
def test_clusters_start_in_the_order_asked_for(starts, numbers):
    """Clusters that have the device for themselves start by number, up or down."""
    assert started(starts) == numbers


def test_clusters_start_in_a_random_order():
    """The seed decides on the order, and all orders come."""
    orders = {tuple(started("random", seed)) for seed in range(40)}
    assert len(orders) > 12
    assert started("random", 3) == started("random", 3)


def test_an_order_that_there_is_not():
    """The argument is named, with what it may be."""
    with pytest.raises(LaunchError, match=r"starts='upwards'.*ascending, descending, random"):
        Device("sm_90a", starts="upwards")


def started(starts, seed=0):
    """The clusters of a grid of four, in the order in which they start on a device that holds one."""
    device = Device("sm_90a", seed=seed, multiprocessors=1, starts=starts)
    order = np.zeros(4, np.uint32)
    device.load(STARTED)["started"].launch(4, 32, [np.zeros(1, np.uint32), order], shared_bytes=200_000)
    return order.tolist()


def test_buffers_without_names_are_told_apart():
    """Two buffers of no name hold different things, in every order the same: nothing differs."""
    device = Device("sm_90a")
    kernel = device.load(TICKETS)["tickets"]
    counter, out = device.buffer(np.zeros(1, np.uint32)), device.buffer(np.zeros(4, np.uint32))
    found = kernel.explore(3, grid=1, block=32, args=[counter, out])
    assert found.different == ()
