"""What a process with the double in ROCm's place does: each function is a test, run by ``test_hip.py`` in a child.

hip-python looks for the library once in a process, so no two tests could share one.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.gcn_kernels import STORE, module
from tests.runtime.hip_double.double import Double
from tilekit.arrays.hip import hip_view
from tilekit.emulator.gcn.binary.code_object import CodeObject
from tilekit.errors import ArgumentError, AssemblerError, ConfigError, HipError, KernelFault
from tilekit.runtime import hip
from tilekit.runtime.hip_launch import HipModule
from tilekit.runtime.parameters import F32, S32, U32, Pointer, TensorMap
from tilekit.runtime.prepared import LaunchConfig

SCENARIOS: dict[str, Callable[[Double], None]] = {}

ARGUMENTS = """\
    .args:
      - {.name: out, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: value, .offset: 16, .size: 4, .value_kind: by_value}
      - {.name: scale, .offset: 20, .size: 4, .value_kind: by_value}
      - {.offset: 24, .size: 4, .value_kind: hidden_block_count_x}
"""


def scenario(function: Callable[[Double], None]) -> Callable[[Double], None]:
    """Make a function one of the scenarios."""
    SCENARIOS[function.__name__] = function
    return function


def loaded(**changes: object) -> HipModule:
    """Build and load the kernel that stores one value."""
    text = module(STORE, **{"chip": "gfx942", "kernarg": 32, "arguments": ARGUMENTS, **changes})  # type: ignore[arg-type]
    return HipModule.from_text(text, str(changes.get("chip", "gfx942")), kernel_name="small")


@scenario
def devices_are_described(double: Double) -> None:
    """Name, chip, features and sizes are those that the runtime tells."""
    first, second = hip.devices()
    assert (first.ordinal, first.name, first.chip, first.features) == (0, "AMD double 0", "gfx942", "sramecc+:xnack-")
    assert (second.chip, second.compute_units, second.memory, second.lds) == ("gfx950", 304, 192 << 30, 65536)
    assert hip.why_unavailable() is None
    with hip.activated(1) as ordinal:
        assert (ordinal, double.current) == (1, 1)
    assert double.current == 0
    with pytest.raises(ArgumentError, match="nearest legal: 1"), hip.activated(2):
        pass


@scenario
def a_launch_arrives_whole(double: Double) -> None:
    """Code object, kernel, grid in workgroups, dynamic LDS, stream, and arguments where the metadata wants them."""
    found = loaded(threads=256)
    config = LaunchConfig((3, 2, 1), (64, 2, 1), shared_bytes=1024)
    launch = found.kernel("small").prepare(config, [Pointer(0x1122334455667788), U32(7), F32(0.5)])
    with hip.HipStream() as stream:
        launch(stream.handle)
        launch.set_u32(1, 9)
        launch.set_pointer(0, 0x99)
        launch()
        stream.synchronize()
    first, second = double.launches
    assert first.image == found._image
    assert CodeObject.read(first.image).kernels.keys() == {"small"}
    assert (first.kernel, first.grid, first.block, first.shared_bytes) == ("small", (3, 2, 1), (64, 2, 1), 1024)
    assert first.kernarg == struct.pack("<QQIfQ", 0x1122334455667788, 0, 7, 0.5, 3)
    assert second.kernarg == struct.pack("<QQIfQ", 0x99, 0, 9, 0.5, 3)
    assert (first.stream, second.stream) == (stream.handle, 0)
    hip.synchronize()
    found.unload()


@scenario
def memory_is_copied_and_bounded(double: Double) -> None:
    """What is written is read; a size that is not the buffer's is refused, and by the runtime one past its end."""
    with hip.HipBuffer(512) as buffer:
        data = bytes(range(256)) * 2
        buffer.write(data)
        assert buffer.read() == data
        with pytest.raises(ArgumentError, match="512 bytes"):
            buffer.write(b"short")
        buffer.size = 513
        with pytest.raises(HipError, match="hipMemcpy returned hipErrorInvalidValue"):
            buffer.read()


@scenario
def an_array_known_by_its_interface_alone(double: Double) -> None:
    """Whose memory it is the runtime says; an address outside of all memory is refused."""

    class Words:
        def __init__(self, address: int) -> None:
            self.__cuda_array_interface__ = {"data": (address, False), "shape": (4, 8), "typestr": "<f4", "version": 3}

    with hip.activated(1), hip.HipBuffer(128) as buffer:
        view = hip_view(Words(buffer.address))
        assert (view.address, view.shape, view.strides) == (buffer.address, (4, 8), (8, 1))
        assert view.device == ("hip", 1)
    with pytest.raises(ArgumentError, match="an address of an AMD GPU's memory"):
        hip_view(Words(64))


@scenario
def arguments_without_a_list_follow_each_other(double: Double) -> None:
    """A hand-written kernel's metadata may list no arguments: each lies at the next multiple of its size."""
    kernel = loaded(arguments="").kernel("small")
    kernel.prepare(LaunchConfig((1, 1, 1), (64, 1, 1)), [U32(1), Pointer(2), S32(-3)])()
    assert double.launches[0].kernarg == struct.pack("<IxxxxQixxxxQ", 1, 2, -3, 0)
    with pytest.raises(ArgumentError, match=r"'40 bytes'; legal: 32 bytes, the kernarg segment.*TK-PAR-004"):
        kernel.prepare(LaunchConfig((1, 1, 1), (64, 1, 1)), [Pointer(0)] * 5)


@scenario
def other_arguments_than_the_kernel_takes_are_refused(double: Double) -> None:
    """Their number, their sizes and their kinds are compared with the metadata before anything is launched."""
    kernel, config = loaded().kernel("small"), LaunchConfig((1, 1, 1), (64, 1, 1))
    with pytest.raises(ArgumentError, match=r"given 2; legal: 3, as small takes: out \(8 B\), value \(4 B\)") as caught:
        kernel.prepare(config, [Pointer(0), U32(1)])
    assert caught.value.code == "TK-PAR-004"
    with pytest.raises(
        ArgumentError, match=r"parameters\[1\]: given 'Pointer of 8 bytes'; legal: 4 bytes at offset 16"
    ):
        kernel.prepare(config, [Pointer(0), Pointer(1), F32(2)])
    with pytest.raises(ArgumentError, match="AMD GPUs have no tensor maps"):
        kernel.prepare(config, [TensorMap.tiled(0, "f32", [32], [], [32]), U32(1), F32(1)])
    assert not double.launches


@scenario
def shapes_that_the_kernel_or_the_chip_does_not_allow(double: Double) -> None:
    """Clusters, dependent launch, too many threads, too many work-items: all are listed at once."""
    kernel = loaded(threads=64).kernel("small")
    config = LaunchConfig((2**31 - 1, 1, 1), (128, 1, 1), cluster=(1, 1, 1), pdl=True)
    with pytest.raises(ConfigError) as caught:
        kernel.prepare(config, [])
    text = str(caught.value)
    assert caught.value.code == "TK-LAUNCH-003"
    assert "128 threads, and small was built for at most 64" in text
    assert "no programmatic dependent launch" in text
    assert "work-items, fewer than 2**32; nearest 33554431" in text
    with pytest.raises(ConfigError, match="has no clusters"):
        kernel.prepare(LaunchConfig((2, 1, 1), (64, 1, 1), cluster=(2, 1, 1)), [])
    assert not double.launches


@scenario
def dynamic_lds_is_allowed_once_and_no_more_than_the_chip_has(double: Double) -> None:
    """Beyond 64 KB a kernel is allowed it first; beyond the chip's it is refused, static LDS counted."""
    kernel = loaded(chip="gfx950", lds=1024).kernel("small")
    arguments = [Pointer(0), U32(0), F32(0)]
    for shared in (65536, 100_000, 100_000, 90_000):
        kernel.prepare(LaunchConfig((1, 1, 1), (64, 1, 1), shared_bytes=shared), arguments)
    assert double.calls.count("hipFuncSetAttribute") == 1
    assert [list(found.values()) for found in double.attributes.values()] == [[100_000]]
    with pytest.raises(ArgumentError, match="at most 162816 bytes on gfx950, beside 1024 static ones") as caught:
        kernel.prepare(LaunchConfig((1, 1, 1), (64, 1, 1), shared_bytes=162820), arguments)
    assert caught.value.code == "TK-LAUNCH-002"


@scenario
def errors_name_call_and_result(double: Double) -> None:
    """A refused image, a missing kernel and a refused launch say what was being done, and what to do."""
    double.results["hipModuleLoadData"] = [209]
    with pytest.raises(HipError, match=r"hipErrorNoBinaryForGpu.*for another chip than the device's") as caught:
        loaded()
    assert (caught.value.call, caught.value.result) == ("hipModuleLoadData", "hipErrorNoBinaryForGpu")
    assert caught.value.code == "TK-HIP-001"
    with pytest.raises(AssemblerError, match=r"cut or damaged.*\n.*TK-ASM-010|TK-ASM-010"):
        HipModule(loaded()._image[:-8])
    with pytest.raises(ArgumentError, match="legal: a kernel of the code object: small"):
        loaded().kernel("large")
    launch = loaded().kernel("small").prepare(LaunchConfig((1, 1, 1), (64, 1, 1)), [Pointer(0), U32(0), F32(0)])
    double.results["hipModuleLaunchKernel"] = [1]
    with pytest.raises(HipError, match=r"launching small, grid 1x1x1.*hipErrorInvalidValue \(described by"):
        launch()
    double.results["hipMalloc"] = [2]
    with pytest.raises(HipError, match=r"allocating 64 bytes.*hipErrorOutOfMemory"):
        hip.HipBuffer(64)


@scenario
def a_fault_names_the_launches(double: Double) -> None:
    """A kernel that dies is reported at some later call, with what was launched most recently."""
    launch = (
        loaded()
        .kernel("small")
        .prepare(LaunchConfig((1, 1, 1), (64, 1, 1)), [Pointer(0), U32(0), F32(0)], description="64 threads")
    )
    launch()
    double.results["hipDeviceSynchronize"] = [700]
    with pytest.raises(KernelFault, match=r"(?s)hipErrorIllegalAddress.*small \[64 threads\], grid 1x1x1") as caught:
        hip.synchronize()
    assert len(caught.value.launches) == 1


@scenario
def events_take_times(double: Double) -> None:
    """Between two events there is what was launched between them."""
    launch = loaded().kernel("small").prepare(LaunchConfig((1, 1, 1), (64, 1, 1)), [Pointer(0), U32(0), F32(0)])
    start, stop = hip.HipEvent(), hip.HipEvent()
    start.record()
    launch()
    launch()
    stop.record()
    stop.synchronize()
    assert stop.milliseconds_since(start) == 1.0
    start.destroy()
    stop.destroy()


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Double(Path(os.environ["ROCM_PATH"]) / "lib" / "libamdhip64.so"))
