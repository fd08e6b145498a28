"""Launching on the emulator through the common interface."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.errors import EmulationTooLong
from tilekit.runtime.emulated import EmulatedKernel, Work, launch_label
from tilekit.runtime.parameters import U32, Pointer
from tilekit.runtime.prepared import LaunchConfig
from tilekit.settings import settings

CONFIG = LaunchConfig((2, 1, 1), (384, 1, 1), cluster=(2, 1, 1), shared_bytes=1024)
MAP = TensorMap.tiled(0x1000, "bf16", (256, 1024), (512,), (64, 128))


class RecordingHandle:
    """Takes the place of a loaded entry, and records its launches."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []

    def launch(self, **arguments: Any) -> str:
        self.launches.append(arguments)
        return f"report {len(self.launches)}"


def test_launch_passes_shape_and_packed_parameters() -> None:
    """The emulator gets the same shape and a parameter block with its own encoding of the map in place."""
    handle = RecordingHandle()
    prepared = EmulatedKernel("matmul", handle).prepare(CONFIG, [U32(7), MAP, Pointer(0xABC)])
    prepared()
    (arguments,) = handle.launches
    block = arguments.pop("params")
    assert not arguments.pop("prerequisite")
    assert arguments == {"grid": (2, 1, 1), "block": (384, 1, 1), "cluster": (2, 1, 1), "shared_bytes": 1024}
    assert TensorMap.decode(block[64:192]) == MAP
    assert (block[:4], block[192:]) == (b"\7\0\0\0", b"\xbc\x0a" + bytes(6))
    assert prepared.report == "report 1"


@pytest.mark.parametrize("reads_early", [False, True])
def test_overlapping_launches_must_wait(reads_early: bool) -> None:
    """What may start while the kernel ahead runs is launched behind one, unless it says that it reads earlier."""
    handle = RecordingHandle()
    config = replace(CONFIG, pdl=True)
    EmulatedKernel("matmul", handle).prepare(config, [U32(7)], reads_early=reads_early)()
    assert handle.launches[0]["prerequisite"] is not reads_early


def test_patches_reach_the_next_launch() -> None:
    """Parameters are replaced as on CUDA, a tensor map by its description."""
    handle = RecordingHandle()
    prepared = EmulatedKernel("matmul", handle).prepare(CONFIG, [MAP, Pointer(1)])
    other = TensorMap.tiled(0x2000, "bf16", (256, 1024), (512,), (64, 128))
    prepared.set_tensor_map(0, other)
    prepared.set_pointer(1, 2)
    prepared(stream=5)
    block = handle.launches[0]["params"]
    assert TensorMap.decode(block[:128]) == other
    assert block[128:] == b"\2" + bytes(7)


@pytest.mark.parametrize("work", [Work(1e15, 0), Work(0, 10**6), Work(0, 0, ctas=10**6)], ids=str)
def test_what_would_take_long_is_refused(work: Work) -> None:
    """The error says what, and how long it would take, and the way it names works: FLOPs, tiles and CTAs all count."""
    label = launch_label("matmul", "big", CONFIG)
    with pytest.raises(EmulationTooLong, match=r"matmul \[big\].*about .* (h|min) .*limit is 2\.0 min") as caught:
        work.refuse_if_too_long(label)
    assert caught.value.seconds == work.emulated_seconds > caught.value.limit == 120.0
    with settings.override(emulator_limit=2 * caught.value.seconds):
        work.refuse_if_too_long(label)


def test_works_are_added() -> None:
    """What is below the limit is not refused, and the sum of two may be above it."""
    half = Work(flops=6e10, tiles=13333, ctas=20000)
    half.refuse_if_too_long("half")
    with pytest.raises(EmulationTooLong, match=r"1\.2e\+11 FLOP in 26666 tiles of 40000 CTAs"):
        (half + half).refuse_if_too_long("both")
