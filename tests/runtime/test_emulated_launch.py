"""Launching on the emulator through the common interface."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.errors import EmulationTooLong
from tilekit.runtime.emulated import EmulatedKernel, Work
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


def test_long_launches_are_refused_before_they_start() -> None:
    """Beyond the limit nothing runs; the error says how long, and the way it names works."""
    handle = RecordingHandle()
    work = Work(flops=1e15, tiles=10**6)
    prepared = EmulatedKernel("matmul", handle).prepare(CONFIG, [], description="big", work=work)
    with pytest.raises(EmulationTooLong, match=r"matmul \[big\].*about .* (h|min) .*limit is 2\.0 min") as caught:
        prepared()
    assert not handle.launches
    assert caught.value.seconds == work.emulated_seconds > caught.value.limit == 120.0
    with settings.override(emulator_limit=math.inf):
        prepared()
    assert len(handle.launches) == 1


def test_short_launches_and_those_of_unknown_length_run() -> None:
    """An estimate below the limit, or none at all, refuses nothing."""
    handle = RecordingHandle()
    kernel = EmulatedKernel("matmul", handle)
    kernel.prepare(CONFIG, [], work=Work(flops=1e6, tiles=4))()
    kernel.prepare(CONFIG, [])()
    assert len(handle.launches) == 2
