"""The same kernels through the same interface on the emulator and, with `pytest -m gpu`, on a device."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest

import tilekit
from tilekit import emulator
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.errors import AssemblerNotFound
from tilekit.runtime import driver, launch
from tilekit.runtime.emulated import EmulatedModule
from tilekit.runtime.launch import CudaModule, DriverJitWarning
from tilekit.runtime.parameters import U32, Parameter, Pointer
from tilekit.runtime.prepared import LaunchConfig, PreparedLaunch

SMALL = LaunchConfig((2, 1, 1), (384, 1, 1), cluster=(2, 1, 1))

# Copies the 8x8 box at (x, y) of a u32 tensor to `out` through shared memory, row by row. The map comes second, so that
# it needs padding; it is followed by scalars, so that a wrong offset would show.
COPY_BOX = """\
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry copy_box(.param .u64 out, .param .align 64 .b8 map[128], .param .u32 x, .param .u32 y)
.maxntid 64
{
  .reg .u64 %out, %map, %offset;
  .reg .u32 %x, %y, %thread, %tile, %bar, %address, %value;
  .reg .pred %first, %done;
  ld.param.u64 %out, [out];
  ld.param.u32 %x, [x];
  ld.param.u32 %y, [y];
  mov.b64 %map, map;
  cvta.param.u64 %map, %map;
  mov.u32 %thread, %tid.x;
  mov.u32 %tile, dynamic;
  add.u32 %bar, %tile, 1024;
  setp.eq.u32 %first, %thread, 0;
  @%first mbarrier.init.shared::cta.b64 [%bar], 1;
  @%first fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
  @%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%map, {%x, %y}], [%bar];
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0;
  @!%done bra wait;
  shl.b32 %address, %thread, 2;
  cvt.u64.u32 %offset, %address;
  add.u32 %address, %address, %tile;
  ld.shared.u32 %value, [%address];
  add.u64 %out, %out, %offset;
  st.global.u32 [%out], %value;
  ret;
}
"""

FAULTING = """
import pytest
from tilekit.errors import KernelFault
from tilekit.runtime import driver
from tilekit.runtime.launch import CudaModule
from tilekit.runtime.parameters import U32, Pointer
from tilekit.runtime.prepared import LaunchConfig

ptx = open("small.ptx").read()
kernel = CudaModule.from_ptx(ptx, "sm_90a", kernel_name="small").kernel("small")
kernel.prepare(LaunchConfig((1, 1, 1), (384, 1, 1)), [Pointer(8), U32(1)], description="null pointer")()
with pytest.raises(KernelFault, match="null pointer"):
    driver.synchronize()
"""


class Machine(Protocol):
    """Where a test runs: memory, and kernels from PTX."""

    def upload(self, array: npt.NDArray[Any]) -> int: ...
    def download(self, address: int, shape: tuple[int, ...]) -> npt.NDArray[np.uint32]: ...
    def prepare(self, ptx: str, name: str, config: LaunchConfig, parameters: list[Parameter]) -> PreparedLaunch: ...


class EmulatedMachine:
    def __init__(self) -> None:
        self.device = emulator.Device("sm_90a")
        self.buffers: dict[int, Any] = {}

    def upload(self, array: npt.NDArray[Any]) -> int:
        buffer = self.device.buffer(array)
        self.buffers[buffer.address] = buffer
        return int(buffer.address)

    def download(self, address: int, shape: tuple[int, ...]) -> npt.NDArray[np.uint32]:
        result: npt.NDArray[np.uint32] = self.buffers[address].read()
        return result.reshape(shape)

    def prepare(self, ptx: str, name: str, config: LaunchConfig, parameters: list[Parameter]) -> PreparedLaunch:
        return EmulatedModule(self.device, ptx).kernel(name).prepare(config, parameters)


class CudaMachine:
    def __init__(self) -> None:
        driver.context_for()
        self.addresses: list[int] = []

    def upload(self, array: npt.NDArray[Any]) -> int:
        data = np.ascontiguousarray(array)
        address = int(driver.call("cuMemAlloc", data.nbytes))
        driver.call("cuMemcpyHtoD", address, data.ctypes.data, data.nbytes)
        self.addresses.append(address)
        return address

    def download(self, address: int, shape: tuple[int, ...]) -> npt.NDArray[np.uint32]:
        result = np.empty(shape, np.uint32)
        driver.synchronize()
        driver.call("cuMemcpyDtoH", result.ctypes.data, address, result.nbytes)
        return result

    def prepare(self, ptx: str, name: str, config: LaunchConfig, parameters: list[Parameter]) -> PreparedLaunch:
        return CudaModule.from_ptx(ptx, "sm_90a", kernel_name=name).kernel(name).prepare(config, parameters)

    def free(self) -> None:
        for address in self.addresses:
            driver.call("cuMemFree", address)


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    if request.param == "emulator":
        yield EmulatedMachine()
    else:
        device = CudaMachine()
        yield device
        device.free()


@pytest.fixture
def gpu() -> Iterator[CudaMachine]:
    device = CudaMachine()
    yield device
    device.free()


def written(machine: Machine, address: int) -> int:
    return int(machine.download(address, (1,))[0])


def test_kernel_writes_its_parameter_and_patches_take_effect(machine: Machine, small_kernel: str) -> None:
    """Value and address reach the kernel, and a patched launch uses the new ones."""
    first, second = machine.upload(np.zeros(1, np.uint32)), machine.upload(np.zeros(1, np.uint32))
    prepared = machine.prepare(small_kernel, "small", SMALL, [Pointer(first), U32(41)])
    prepared()
    assert written(machine, first) == 41
    prepared.set_pointer(0, second)
    prepared.set_u32(1, 42)
    prepared()
    assert (written(machine, first), written(machine, second)) == (41, 42)


def test_tensor_map_parameter_moves_the_right_box(machine: Machine) -> None:
    """A map between scalars arrives whole: the box is the one at (x, y), with zeros beyond the edge; also patched."""
    tensor = np.arange(20 * 32, dtype=np.uint32).reshape(20, 32)
    source, out = machine.upload(tensor), machine.upload(np.zeros((8, 8), np.uint32))
    described = TensorMap.tiled(source, "u32", (32, 20), (128,), (8, 8))
    prepared = machine.prepare(
        COPY_BOX,
        "copy_box",
        LaunchConfig((1, 1, 1), (64, 1, 1), shared_bytes=2048),
        [Pointer(out), described, U32(12), U32(16)],
    )
    prepared()
    expected = np.zeros((8, 8), np.uint32)
    expected[:4] = tensor[16:20, 12:20]
    np.testing.assert_array_equal(machine.download(out, (8, 8)), expected)
    prepared.set_tensor_map(1, TensorMap.tiled(source + 128, "u32", (32, 19), (128,), (8, 8)))
    prepared.set_u32(3, 0)
    prepared()
    np.testing.assert_array_equal(machine.download(out, (8, 8)), tensor[1:9, 12:20])


@pytest.mark.gpu
def test_device_is_described(gpu: CudaMachine) -> None:
    """The device has a name, Hopper's capability, SMs and memory."""
    info = driver.devices()[0]
    assert info.compute_capability == (9, 0)
    assert info.sms >= 114
    assert info.memory > 60 << 30
    assert driver.why_unavailable() is None
    assert driver.device_of(gpu.upload(np.zeros(1, np.uint32))) == 0


@pytest.mark.gpu
def test_launches_can_be_captured_into_a_graph(gpu: CudaMachine, small_kernel: str) -> None:
    """A first launch during a capture is legal, and the graph replays it with the parameters of that moment."""
    out = gpu.upload(np.zeros(1, np.uint32))
    prepared = gpu.prepare(
        small_kernel, "small", LaunchConfig((1, 1, 1), (384, 1, 1), pdl=True), [Pointer(out), U32(5)]
    )
    cuda = driver.bindings()
    stream = int(driver.call("cuStreamCreate", cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
    driver.call("cuStreamBeginCapture", stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    prepared(stream)
    prepared.set_u32(1, 6)
    graph = driver.call("cuStreamEndCapture", stream)
    assert written(gpu, out) == 0
    executable = driver.call("cuGraphInstantiate", graph, 0)
    driver.call("cuGraphLaunch", executable, stream)
    driver.synchronize(stream)
    assert written(gpu, out) == 5


@pytest.mark.gpu
def test_another_thread_can_launch_into_the_default_stream(gpu: CudaMachine, small_kernel: str) -> None:
    """A thread that has no context of its own launches all the same."""
    out = gpu.upload(np.zeros(1, np.uint32))
    prepared = gpu.prepare(small_kernel, "small", SMALL, [Pointer(out), U32(8)])
    thread = threading.Thread(target=prepared)
    thread.start()
    thread.join()
    assert written(gpu, out) == 8


@pytest.mark.gpu
def test_driver_assembles_where_there_is_no_ptxas(
    gpu: CudaMachine, small_kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fallback warns and works."""

    def missing(*_: object, **__: object) -> None:
        raise AssemblerNotFound("no ptxas")

    monkeypatch.setattr(launch, "assemble", missing)
    out = gpu.upload(np.zeros(1, np.uint32))
    with pytest.warns(DriverJitWarning):
        prepared = gpu.prepare(small_kernel, "small", SMALL, [Pointer(out), U32(9)])
    prepared()
    assert written(gpu, out) == 9


@pytest.mark.gpu
def test_occupancy_counts_clusters(gpu: CudaMachine, small_kernel: str) -> None:
    """Half as many clusters of two as CTAs fit, and none fit twice where shared memory is full."""
    kernel = CudaModule.from_ptx(small_kernel, "sm_90a", kernel_name="small").kernel("small")
    full = {"block": (384, 1, 1), "shared_bytes": 200_000}
    single = kernel.max_active_clusters(LaunchConfig((1, 1, 1), **full))  # type: ignore[arg-type]
    pairs = kernel.max_active_clusters(LaunchConfig((2, 1, 1), cluster=(2, 1, 1), **full))  # type: ignore[arg-type]
    assert single == driver.devices()[0].sms
    assert 0 < 2 * pairs <= single


@pytest.mark.gpu
def test_fault_is_blamed_on_the_kernel(small_kernel: str, tmp_path: Any) -> None:
    """A kernel that writes to address 8 is named when the stream is waited for, in a process of its own."""
    (tmp_path / "small.ptx").write_text(small_kernel)
    checkout = str(Path(tilekit.__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH")]))}
    answer = subprocess.run(
        [sys.executable, "-c", FAULTING], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.gpu
def test_launch_costs_a_few_microseconds(gpu: CudaMachine, small_kernel: str) -> None:
    """The host spends less than ten microseconds on a launch (about three are usual)."""
    out = gpu.upload(np.zeros(1, np.uint32))
    prepared = gpu.prepare(small_kernel, "small", SMALL, [Pointer(out), U32(1)])
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            prepared()
        times.append((time.perf_counter() - start) / 100)
        driver.synchronize()
    print(f"launch: {min(times) * 1e6:.2f} us of host time")
    assert min(times) < 10e-6
