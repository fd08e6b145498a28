"""The measurement itself: what is timed, how often, in which order, and what drift does to it."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tilekit.bench import contest
from tilekit.bench.clocks import ClockSampler
from tilekit.bench.contest import QUICK, THOROUGH, _in_turn, hold


def passes(machine: Any, **microseconds: float) -> dict[str, Callable[[], None]]:
    """One pass a contestant, of this many microseconds."""

    def work(us: float) -> Callable[[], None]:
        return lambda: machine.spend(us * 1e-6)

    return {name: work(us) for name, us in microseconds.items()}


def test_times_are_microseconds_a_launch(machine: Any) -> None:
    """A pass of 300 us with three launches is 100 us a launch, sustained and burst."""
    timing = hold(machine, passes(machine, ours=300), 3, 60, ClockSampler("GPU-0"))["ours"]
    assert timing.rounds == pytest.approx([100] * THOROUGH.most_rounds)
    assert timing.bursts == pytest.approx([100] * THOROUGH.bursts)


def test_drift_cancels_in_the_ratio(machine: Any) -> None:
    """A card that slows down by 2 % every slice changes the times by a lot and the median ratio by very little."""
    machine.drift_per_slice = 0.02
    timings = hold(machine, passes(machine, ours=100, peer=110), 1, 60, ClockSampler("GPU-0"))
    rounds = timings["ours"].rounds
    assert max(rounds) / min(rounds) > 1.3
    ratios = [theirs / mine for theirs, mine in zip(timings["peer"].rounds, rounds, strict=True)]
    assert statistics.median(ratios) == pytest.approx(1.10, rel=0.02)
    assert min(ratios) < 1.10 < max(ratios)


def test_the_first_changes_from_round_to_round(machine: Any) -> None:
    """The starting contestant rotates, in rounds and in bursts: no one inherits the same neighbour's heat each time."""
    order: list[int] = []
    replays: dict[Any, int] = {}
    time = machine.time

    def noting(replay: Callable[[], None], count: int) -> float:
        order.append(replays.setdefault(replay, len(replays)))
        return float(time(replay, count))

    machine.time = noting
    hold(machine, passes(machine, ours=100, peer=100), 1, 0, ClockSampler("GPU-0"))
    single, load, per_round, per_burst = 4, 2, 4, 4
    after_load = order[single + load :]
    starts = [after_load[per_round * index] for index in range(THOROUGH.fewest_rounds)]
    bursts = after_load[per_round * THOROUGH.fewest_rounds :]
    assert starts == [0, 1, 0]
    assert [bursts[per_burst * index] for index in range(THOROUGH.bursts)] == [0, 1, 0]


def test_no_one_is_always_behind_the_same() -> None:
    """Of three contestants and more, each comes behind each other one within a few rounds."""
    for count in (3, 4, 5):
        names = [str(index) for index in range(count)]
        orders = [_in_turn(names, index) for index in range(2 * count)]
        assert all(sorted(order) == names for order in orders)
        for name in names:
            behind = {order[order.index(name) - 1] for order in orders if order[0] != name}
            assert len(behind) > 1
            assert {order[0] for order in orders} == set(names)


def test_the_budget_sets_the_number_of_rounds(machine: Any) -> None:
    """With no time there are the fewest rounds; with plenty, the most."""
    few = hold(machine, passes(machine, ours=100), 1, 0, ClockSampler("GPU-0"))["ours"]
    many = hold(machine, passes(machine, ours=100), 1, 60, ClockSampler("GPU-0"))["ours"]
    assert (len(few.rounds), len(many.rounds)) == (THOROUGH.fewest_rounds, THOROUGH.most_rounds)
    assert len(few.bursts) == THOROUGH.bursts


def test_the_card_is_loaded_before_the_first_round(machine: Any) -> None:
    """Before anything counts, the contestants together run for the load time, and a measured slice is long enough."""
    hold(machine, passes(machine, ours=100, peer=400), 1, 0, ClockSampler("GPU-0"))
    counts = [count for _, count in machine.slices]
    assert counts[:4] == [1, 1, 1, 1]
    assert counts[4] * 100e-6 + counts[5] * 400e-6 >= THOROUGH.load_seconds
    lead_in, measured = counts[6], counts[7]
    assert lead_in * 100e-6 >= THOROUGH.lead_in_seconds
    assert measured * 100e-6 >= THOROUGH.slice_seconds


def test_the_quick_pace_is_over_soon(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick case of three contestants costs well under a second of device time, bursts or none; asked for none, there
    are none."""
    slept: list[float] = []
    monkeypatch.setattr(contest.time, "sleep", slept.append)
    timings = hold(machine, passes(machine, a=100, b=100, c=100), 1, 0, ClockSampler("GPU-0"), QUICK)
    busy = sum(count * 100e-6 for _, count in machine.slices)
    assert busy + sum(slept) < 1.0
    assert [len(timing.bursts) for timing in timings.values()] == [1, 1, 1]
    bare = hold(machine, passes(machine, a=100), 1, 0, ClockSampler("GPU-0"), QUICK, with_bursts=False)
    assert (bare["a"].bursts, len(bare["a"].rounds)) == ([], QUICK.fewest_rounds)


def test_without_nvml_and_nvidia_smi_there_are_no_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can read the card, means are None and nothing fails."""
    monkeypatch.setattr("tilekit.bench.clocks.shutil.which", lambda program: None)
    with ClockSampler("GPU-0") as sampler:
        assert sampler.mean([(0.0, 1e9)]) == (None, None)


def test_nvidia_smi_is_read_line_by_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The readings of one running nvidia-smi are averaged within the windows, and the program is ended."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nwhile :; do echo '1500, 650.5'; sleep 0.01; echo 'N/A, N/A'; done\n")
    program.chmod(0o755)
    monkeypatch.setattr("tilekit.bench.clocks.shutil.which", lambda name: str(program))
    with ClockSampler("GPU-0") as sampler:
        contest.time.sleep(0.3)
        assert sampler.mean([(0.0, 1e12)]) == (1500.0, 650.5)
        assert sampler.mean([(0.0, 1.0)]) == (None, None)


def fake_nvml(closed: list[bool], *, instant_works: bool) -> Any:
    """A pynvml of a GPU at 1755 MHz that draws 700 W now and 400 W on average."""

    def fields(handle: Any, wanted: list[int]) -> list[Any]:
        status = 0 if instant_works else 3
        return [SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=700_000)) for _ in wanted]

    return SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_FI_DEV_POWER_INSTANT=186,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: closed.append(True),
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetClockInfo=lambda handle, kind: 1755,
        nvmlDeviceGetFieldValues=fields,
        nvmlDeviceGetPowerUsage=lambda handle: 400_000,
    )


@pytest.mark.parametrize(("instant_works", "watts"), [(True, 700.0), (False, 400.0)])
def test_nvml_is_polled_and_shut_down(monkeypatch: pytest.MonkeyPatch, instant_works: bool, watts: float) -> None:
    """NVML's instantaneous power is preferred to its one-second average, and NVML is shut down once."""
    closed: list[bool] = []
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(closed, instant_works=instant_works))
    with ClockSampler("GPU-0") as sampler:
        contest.time.sleep(0.2)
    assert sampler.mean([(0.0, 1e12)]) == (1755.0, watts)
    assert closed == [True]
