"""Loading and launching through a recorded driver: what a launch passes, how often, and how it fails."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.errors import ArgumentError, AssemblerNotFound, ConfigError, DriverError, KernelFault
from tilekit.runtime import device_faults, driver, launch
from tilekit.runtime.launch import CudaKernel, CudaModule, DriverJitWarning
from tilekit.runtime.parameters import U32, Pointer
from tilekit.runtime.prepared import LaunchConfig

MAP = TensorMap.tiled(0x1000, "bf16", (256, 1024), (512,), (64, 128))
CONFIG = LaunchConfig((132, 1, 1), (384, 1, 1), cluster=(2, 1, 1), shared_bytes=200_000, pdl=True)


@pytest.fixture
def kernel(cuda: Any) -> CudaKernel:
    cuda.answers["cuTensorMapEncodeTiled"] = cuda.map_of(bytes(range(128)))
    return CudaModule.load(b"\x7fELF").kernel("matmul")


def test_launch_passes_shape_attributes_and_one_pointer_a_parameter(cuda: Any, kernel: CudaKernel) -> None:
    """The driver gets the config, cluster and PDL attributes, and kernelParams that lead to the values."""
    prepared = kernel.prepare(CONFIG, [MAP, U32(7), Pointer(0xABC)])
    prepared(0x55)
    ((shape, function, pointers, extra),) = cuda.named("cuLaunchKernelEx")
    assert (shape.gridDimX, shape.gridDimY, shape.blockDimX, shape.sharedMemBytes) == (132, 1, 384, 200_000)
    assert int(shape.hStream) == 0x55
    assert int(function) == 0x3
    assert extra == 0
    cluster, dependent = shape.attrs
    assert shape.numAttrs == 2
    dimension = cluster.value.clusterDim
    assert (dimension.x, dimension.y, dimension.z) == (2, 1, 1)
    assert dependent.id == cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert dependent.value.programmaticStreamSerializationAllowed == 1
    addresses = (ctypes.c_void_p * 3).from_address(pointers)
    assert ctypes.string_at(addresses[0] or 0, 128) == bytes(range(128))
    assert (addresses[0] or 0) % 64 == 0
    assert ctypes.c_uint32.from_address(addresses[1] or 0).value == 7
    assert ctypes.c_uint64.from_address(addresses[2] or 0).value == 0xABC


def test_repeated_launches_make_one_driver_call_each(cuda: Any, kernel: CudaKernel) -> None:
    """Nothing but cuLaunchKernelEx happens in a launch; the stream is set only when it changes."""
    prepared = kernel.prepare(CONFIG, [U32(1)])
    before = len(cuda.calls)
    streams = []
    for stream in (9, 9, 0, 9):
        prepared(stream)
        streams.append(int(cuda.named("cuLaunchKernelEx")[-1][0].hStream))
    assert [name for name, _ in cuda.calls[before:]] == ["cuLaunchKernelEx"] * 4
    assert streams == [9, 9, 0, 9]


def test_patched_parameters_reach_the_next_launch(cuda: Any, kernel: CudaKernel) -> None:
    """A patch is seen through the very pointers that were passed before."""
    prepared = kernel.prepare(CONFIG, [MAP, Pointer(1), U32(2)])
    pointers = (ctypes.c_void_p * 3).from_address(prepared._block.pointers)
    prepared.set_pointer(1, 0x10)
    prepared.set_u32(2, 20)
    prepared.set_tensor_map(0, bytes(128))
    assert ctypes.c_uint64.from_address(pointers[1] or 0).value == 0x10
    assert ctypes.c_uint32.from_address(pointers[2] or 0).value == 20
    assert ctypes.string_at(pointers[0] or 0, 128) == bytes(128)
    prepared.set_tensor_map(0, MAP)
    assert ctypes.string_at(pointers[0] or 0, 128) == bytes(range(128))


def test_plain_launch_has_no_attributes(cuda: Any, kernel: CudaKernel) -> None:
    """Without cluster and PDL no attribute is passed, nor is any limit raised."""
    kernel.prepare(LaunchConfig((1, 1, 1), (32, 1, 1)), [])()
    ((shape, *_),) = cuda.named("cuLaunchKernelEx")
    assert shape.numAttrs == 0
    assert not cuda.named("cuFuncSetAttribute")


def test_limits_are_raised_once_and_never_lowered(cuda: Any, kernel: CudaKernel) -> None:
    """Dynamic shared memory keeps a high-water mark, and large clusters are permitted once, per context."""
    shapes = [
        LaunchConfig((16, 1, 1), (128, 1, 1), cluster=(16, 1, 1), shared_bytes=bytes_) for bytes_ in (1000, 500, 2000)
    ]
    for shape in shapes:
        kernel.prepare(shape, [])
    kinds = cuda.CUfunction_attribute
    assert [(kind, value) for _, kind, value in cuda.named("cuFuncSetAttribute")] == [
        (kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000),
        (kinds.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
        (kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 2000),
    ]
    assert len(cuda.named("cuKernelGetFunction")) == 1
    kernel.prepare(shapes[0], [], ordinal=1)
    assert len(cuda.named("cuKernelGetFunction")) == 2


def test_too_much_shared_memory_names_the_most_there_is(cuda: Any, kernel: CudaKernel) -> None:
    """More dynamic shared memory than the device has beside the static part is refused before the driver is asked."""
    with pytest.raises(ArgumentError, match="nearest legal: 231424"):
        kernel.prepare(LaunchConfig((1, 1, 1), (32, 1, 1), shared_bytes=232_448), [])


def test_failed_launch_names_kernel_and_config(cuda: Any, kernel: CudaKernel) -> None:
    """A refusal by the driver says which kernel, which configuration, which shape."""
    prepared = kernel.prepare(CONFIG, [], description="128x256x64, 4 stages")
    cuda.results["cuLaunchKernelEx"] = ["CUDA_ERROR_INVALID_VALUE"]
    with pytest.raises(DriverError) as caught:
        prepared()
    text = str(caught.value)
    assert "launching matmul [128x256x64, 4 stages], grid 132x1x1, block 384x1x1, cluster 2x1x1, 200000 B" in text
    assert "cuLaunchKernelEx returned CUDA_ERROR_INVALID_VALUE" in text
    assert device_faults.recent() == ()


def test_launch_from_a_thread_without_the_context_is_made_in_it(cuda: Any, kernel: CudaKernel) -> None:
    """Where the driver misses the context, the launch is repeated once with the kernel's own context current."""
    prepared = kernel.prepare(CONFIG, [])
    before = len(cuda.calls)
    cuda.results["cuLaunchKernelEx"] = ["CUDA_ERROR_INVALID_CONTEXT"]
    prepared()
    assert [name for name, _ in cuda.calls[before:]] == [
        "cuLaunchKernelEx", "cuCtxPushCurrent", "cuLaunchKernelEx", "cuCtxPopCurrent",
    ]  # fmt: skip
    cuda.results["cuLaunchKernelEx"] = ["CUDA_ERROR_INVALID_HANDLE"] * 2
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_HANDLE"):
        prepared()


def test_fault_of_an_earlier_kernel_names_the_launches_before(cuda: Any, kernel: CudaKernel) -> None:
    """A launch that fails with a sticky error blames what was launched before it."""
    kernel.prepare(CONFIG, [], description="culprit")()
    later = kernel.prepare(CONFIG, [], description="bystander")
    cuda.results["cuLaunchKernelEx"] = ["CUDA_ERROR_ILLEGAL_ADDRESS"]
    with pytest.raises(KernelFault) as caught:
        later()
    assert len(caught.value.launches) == 1
    assert "culprit" in caught.value.launches[0]


def test_refused_image_names_assembler_and_driver(cuda: Any) -> None:
    """An image the driver does not take is reported with who made it, the driver's version and what to do."""
    cuda.results["cuLibraryLoadData"] = ["CUDA_ERROR_INVALID_IMAGE"]
    with pytest.raises(DriverError, match=r"made by ptxas 14\.1.*supports CUDA 13\.0.*TILEKIT_PTXAS"):
        CudaModule.load(b"image", assembler_id="ptxas 14.1.0 (x)")


def test_ptx_is_assembled_by_ptxas(cuda: Any, small_kernel: str) -> None:
    """With a ptxas the driver gets an image, and the resources are known."""
    module = CudaModule.from_ptx(small_kernel, "sm_90a", kernel_name="small")
    ((image, *_),) = cuda.named("cuLibraryLoadData")
    assert image.startswith(b"\x7fELF")
    assert module.resources is not None
    assert module.resources.registers == 168


def test_without_ptxas_the_driver_assembles_and_says_so(
    cuda: Any, small_kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fallback passes NUL-terminated text and a buffer for the log, and warns about setmaxnreg."""

    def missing(*_: object, **__: object) -> None:
        raise AssemblerNotFound("no ptxas")

    monkeypatch.setattr(launch, "assemble", missing)
    with pytest.warns(DriverJitWarning, match="setmaxnreg"):
        CudaModule.from_ptx(small_kernel, "sm_90a", kernel_name="small")
    ((image, options, values, count, *_),) = cuda.named("cuLibraryLoadData")
    assert image == small_kernel.encode() + b"\0"
    assert (len(options), len(values[0]), count) == (2, values[1], 2)
    cuda.results["cuLibraryLoadData"] = ["CUDA_ERROR_INVALID_PTX"]
    with pytest.raises(DriverError, match=r"assembling small in the driver.*CUDA_ERROR_INVALID_PTX"):
        CudaModule.from_ptx(small_kernel, "sm_90a", kernel_name="small")


def test_log_of_the_drivers_assembler_is_in_the_error(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver wrote into the log buffer is shown."""

    def refuse(name: str, image: bytes, options: Any, values: Any, *_: object, during: str) -> None:
        values[0][:9] = b"bad line\0"
        raise DriverError("refused", result="CUDA_ERROR_INVALID_PTX")

    cuda.answers["cuDriverGetVersion"] = 13000
    assert driver.driver_version() == 13000
    monkeypatch.setattr(driver, "context_for", lambda: None)
    monkeypatch.setattr(driver, "call", refuse)
    with pytest.raises(DriverError, match=r"refused.*\nbad line"):
        launch._load_ptx("text", "k")


def test_most_clusters_are_asked_with_the_cluster_shape(cuda: Any, kernel: CudaKernel) -> None:
    """The occupancy query passes the cluster dimension even for clusters of one CTA, as the driver wants."""
    assert kernel.max_active_clusters(LaunchConfig((1, 1, 1), (128, 1, 1))) == 66
    ((_, shape),) = cuda.named("cuOccupancyMaxActiveClusters")
    assert shape.numAttrs == 1


def test_unload_is_explicit(cuda: Any) -> None:
    """Only `unload` unloads: a captured graph may outlive the Python object."""
    module = CudaModule.load(b"image")
    module.kernel("k")
    assert not cuda.named("cuLibraryUnload")
    module.unload()
    assert [int(arguments[0]) for arguments in cuda.named("cuLibraryUnload")] == [1]


def test_thread_without_context_gets_one_before_loading(cuda: Any) -> None:
    """Loading makes the primary context current where there is none."""
    cuda.answers["cuCtxGetCurrent"] = cuda.CUcontext(0)
    CudaModule.load(b"image")
    names = [name for name, _ in cuda.calls]
    assert names.index("cuCtxSetCurrent") < names.index("cuLibraryLoadData")


@pytest.mark.parametrize(
    ("shape", "facts"),
    [
        ({"grid": (0, 1, 1)}, ["grid.x = 0", "nearest legal 1"]),
        ({"grid": (1, 70000, 1)}, ["grid.y = 70000", "65535"]),
        ({"block": (1024, 2, 1)}, ["2048 threads"]),
        ({"grid": (5, 1, 1), "cluster": (2, 1, 1)}, ["grid.x = 5", "nearest 6"]),
        ({"grid": (32, 1, 1), "cluster": (32, 1, 1)}, ["cluster.x = 32", "16"]),
        ({"grid": (8, 8, 1), "cluster": (8, 4, 1)}, ["32 CTAs, at most 16"]),
        ({"shared_bytes": -1, "block": (2000, 1, 1)}, ["shared_bytes = -1", "block.x = 2000", "2 problems"]),
    ],
)
def test_impossible_shapes_are_refused_with_every_problem(shape: dict[str, Any], facts: list[str]) -> None:
    """A shape no device can launch is a configuration error with all its problems and the nearest legal values."""
    with pytest.raises(ConfigError) as caught:
        LaunchConfig(**{"grid": (1, 1, 1), "block": (32, 1, 1), **shape})
    for fact in facts:
        assert fact in str(caught.value)


def test_context_is_pushed_around_preparation_only(cuda: Any, kernel: CudaKernel) -> None:
    """Preparing leaves the thread's context stack as it was."""
    kernel.prepare(CONFIG, [], ordinal=1)
    assert len(cuda.named("cuCtxPushCurrent")) == len(cuda.named("cuCtxPopCurrent"))
    assert driver.context_for().ordinal == 0
