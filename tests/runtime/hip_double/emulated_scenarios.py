"""Launches through hip-python that an emulated GPU executes: each function is a test, run by ``test_hip.py``."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.assembly.gcn.smoke import SMOKE as OF_FRAGMENTS
from tests.runtime.gcn_kernels import STORE, module
from tests.runtime.gcn_smoke import CHIPS, SMOKE, Inputs
from tests.runtime.hip_double.double import Double
from tests.runtime.hip_double.emulation import Emulation
from tilekit.errors import HipError, KernelFault
from tilekit.runtime import hip
from tilekit.runtime.hip_launch import HipModule
from tilekit.runtime.parameters import F32, S32, U32, BufferDescriptor, Parameter, ParameterBlock, Pointer, TensorMap
from tilekit.runtime.prepared import LaunchConfig

SCENARIOS: dict[str, Callable[[Double, Emulation], None]] = {}
TESTS = Path(__file__).parents[2]
FOREIGN = (
    "add", "softmax", "layer_norm", "transpose", "histogram", "cumulative_sum", "atomics_f32", "amd_matmul_bf16",
    "matmul_split_k_locks", "attention_full",
)  # fmt: skip


def scenario(function: Callable[[Double, Emulation], None]) -> Callable[[Double, Emulation], None]:
    """Make a function one of the scenarios."""
    SCENARIOS[function.__name__] = function
    return function


@contextmanager
def on_device(arguments: Sequence[Any]) -> Iterator[tuple[list[Parameter], list[tuple[Any, hip.HipBuffer]]]]:
    """Parameters for arrays, NumPy scalars and None, and the buffers that hold the arrays."""
    scalars: dict[str, Callable[[Any], Parameter]] = {
        "int32": lambda value: S32(int(value)),
        "uint32": lambda value: U32(int(value)),
        "float32": lambda value: F32(float(value)),
    }
    held: dict[int, tuple[Any, hip.HipBuffer]] = {}
    parameters: list[Parameter] = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            if id(value) not in held:
                held[id(value)] = value, hip.HipBuffer(value.nbytes)
                held[id(value)][1].write(np.ascontiguousarray(value).tobytes())
            parameters.append(Pointer(held[id(value)][1].address))
        elif value is None:
            parameters.append(Pointer(0))
        elif isinstance(value, BufferDescriptor):
            parameters.append(value)
        else:
            parameters.append(scalars[value.dtype.name](value))
    try:
        yield parameters, list(held.values())
    finally:
        for _, buffer in held.values():
            buffer.free()


def brought_back(held: list[tuple[Any, hip.HipBuffer]]) -> None:
    """Copy every buffer to its array."""
    for array, buffer in held:
        array[...] = np.frombuffer(buffer.read(), array.dtype).reshape(array.shape)


@scenario
def smoke_kernels_compute(double: Double, emulation: Emulation) -> None:
    """Each is loaded from its code object and launched into a stream, and the results are exact."""
    for ordinal, chip in enumerate(CHIPS):
        for number, smoke in enumerate(SMOKE):
            inputs: Inputs = smoke.draw(np.random.default_rng(100 * ordinal + number))
            with hip.activated(ordinal), on_device(inputs.arguments) as (parameters, held), hip.HipStream() as stream:
                found = HipModule.from_text(smoke.text(chip), chip, kernel_name=smoke.name)
                config = LaunchConfig(inputs.grid, (smoke.threads, 1, 1))
                found.kernel(smoke.name).prepare(config, parameters)(stream.handle)
                stream.synchronize()
                brought_back(held)
                found.unload()
            np.testing.assert_array_equal(inputs.out, inputs.expected)
    assert len(emulation.reports) == len(CHIPS) * len(SMOKE)


@scenario
def kernels_of_fragments_compute(double: Double, emulation: Emulation) -> None:
    """So are the smoke kernels that are traced and written with fragments: the text that LLVM assembles is traced."""
    for ordinal, chip in enumerate(CHIPS):
        for name, make in OF_FRAGMENTS.items():
            smoke = make(chip, seed=100 * ordinal + 7)
            with hip.activated(ordinal), on_device(smoke.arguments) as (parameters, held), hip.HipStream() as stream:
                found = HipModule.from_text(smoke.text, chip, kernel_name=smoke.entry)
                config = LaunchConfig((smoke.grid, 1, 1), (smoke.block, 1, 1))
                found.kernel(smoke.entry).prepare(config, parameters)(stream.handle)
                stream.synchronize()
                brought_back(held)
                found.unload()
            np.testing.assert_array_equal(smoke.arguments[smoke.output], smoke.expected, err_msg=f"{name} on {chip}")
    assert len(emulation.reports) == len(CHIPS) * len(OF_FRAGMENTS)


@scenario
def arguments_by_pointers_and_by_buffer(double: Double, emulation: Emulation) -> None:
    """``kernelParams`` and ``extra`` bring the same bytes, hidden ones included, and the same results."""
    sys.path.insert(0, str(TESTS / "emulator" / "gcn"))
    from llvm import compiled

    source = (TESTS / "emulator" / "gcn" / "shapes.c").read_text()
    with tempfile.TemporaryDirectory() as folder:
        image = compiled(source, "gfx942", Path(folder), "-O2", "-DVERSION=5")
    kernel = HipModule(image).kernel("shapes")
    config = LaunchConfig((2, 3, 1), (64, 2, 1), shared_bytes=64)
    outs = [np.zeros((6, 32), np.uint32) for _ in range(2)]
    wide = Pointer(0x0123_4567_89AB_CDEF)
    for out, way in zip(outs, ("extra", "params"), strict=True):
        with on_device([out, np.uint32(77), np.array([5, 6], np.uint32)]) as (parameters, held):
            parameters.append(wide)
            if way == "extra":
                kernel.prepare(config, parameters)()
            else:
                block = ParameterBlock(parameters, TensorMap.encode)
                hip.call("hipModuleLaunchKernel", kernel._handle, *config.grid, *config.block, 64, None,
                         block.pointers, None)  # fmt: skip
            hip.synchronize()
            brought_back(held)
    assert (outs[0] == outs[1]).all()
    shape, none = [2, 3, 1, 64, 2, 1], [0] * 6
    given = [77, 6, 0x89ABCDEF, 0x1234567]
    assert outs[0][5].tolist() == [*shape, *none, 128, 6, 1, 3, 64, *given, 0, 5, *[0] * 9]
    first, second = double.launches
    assert first.kernarg[24:] == second.kernarg[24:]
    with pytest.raises(HipError, match="hipErrorInvalidValue"):
        hip.call("hipModuleLaunchKernel", kernel._handle, 1, 1, 1, 64, 1, 1, 0, None, None, None)
    with pytest.raises(HipError, match="hipErrorInvalidValue"):
        hip.call("hipModuleLaunchKernel", kernel._handle, 1, 1, 1, 1024, 2, 1, 0, None, block.pointers, None)


def foreign(emulation: Emulation, chip: str) -> None:
    """Assemble Triton's texts to code objects, launch them with the corpus' inputs, and compare with its references."""
    for folder in (TESTS / "emulator" / "gcn" / "corpus", TESTS / "emulator" / "ptx" / "corpus"):
        sys.path.insert(0, str(folder))
    from corpus_case import compare
    from hip_corpus import DRAWS, HipCase, fields

    for name in FOREIGN:
        text = re.sub(r'\.amdgcn_target ".*"', f'.amdgcn_target "amdgcn-amd-amdhsa--{chip}"', HipCase(name, chip).text)
        compiled = fields(text)
        launch = DRAWS[name](np.random.default_rng(len(name)))
        scratch = [size * int(np.prod(launch.grid)) for size in compiled.get("scratch", ())]
        args = [*launch.args, *(np.zeros(count, np.uint8) if count else None for count in scratch)]
        grid = (*(int(extent) for extent in launch.grid), 1, 1)[:3]
        with on_device(args) as (parameters, held):
            config = LaunchConfig(grid, (compiled["threads"], 1, 1), shared_bytes=compiled["shared_bytes"])
            loaded = HipModule.from_text(text, chip, kernel_name=compiled["entry"])
            loaded.kernel(compiled["entry"]).prepare(config, parameters)()
            hip.synchronize()
            brought_back(held)
        compare(launch, "")
    assert len(emulation.reports) == len(FOREIGN)


@scenario
def foreign_kernels_for_gfx942(double: Double, emulation: Emulation) -> None:
    """Kernels that Triton compiled compute what NumPy computes, from code object to copied results."""
    foreign(emulation, "gfx942")


@scenario
def foreign_kernels_for_gfx950(double: Double, emulation: Emulation) -> None:
    """The same for the other chip."""
    with hip.activated(1):
        foreign(emulation, "gfx950")


ARGUMENTS = """\
    .args:
      - {.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.offset: 8, .size: 4, .value_kind: by_value}
"""


def storing(body: str = STORE, chip: str = "gfx942", **changes: Any) -> HipModule:
    """A loaded kernel that takes a pointer and a number."""
    text = module(body, **{"chip": chip, "arguments": ARGUMENTS, **changes})
    return HipModule.from_text(text, chip, kernel_name="small")


@scenario
def streams_and_events(double: Double, emulation: Emulation) -> None:
    """A launch runs when something waits for it: its stream, an event behind it, a copy, the device."""
    kernel, config = storing().kernel("small"), LaunchConfig((1, 1, 1), (64, 1, 1))
    with hip.HipBuffer(256) as one, hip.HipBuffer(256) as two, hip.HipStream() as first, hip.HipStream() as second:
        one.write(bytes(256))
        kernel.prepare(config, [Pointer(one.address), U32(1)])(first.handle)
        kernel.prepare(config, [Pointer(two.address), U32(2)])(second.handle)
        assert not emulation.reports
        second.synchronize()
        assert [launch.stream for launch in double.waiting[first.handle]] == [first.handle]
        event = hip.HipEvent()
        event.record(first.handle)
        event.synchronize()
        assert len(emulation.reports) == 2
        launch = kernel.prepare(config, [Pointer(one.address), U32(3)])
        launch(first.handle)
        launch.set_u32(1, 4)
        launch()  # behind all other streams
        assert len(emulation.reports) == 3
        assert np.frombuffer(one.read(), np.uint32).tolist() == [4] * 64
        assert np.frombuffer(two.read(), np.uint32).tolist() == [2] * 64


RACE = """\
  v_lshlrev_b32_e32 v1, 2, v0
  ds_write_b32 v1, v0
  v_xor_b32_e32 v2, 0x100, v1
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v3, v2
  s_waitcnt lgkmcnt(0)
"""
"""Two waves exchange words through LDS without a barrier."""
ENDLESS = ".Lagain:\n  s_nop 0\n  s_branch .Lagain\n"
BROKEN = {
    "a store outside": (STORE.replace("v2, s[4:5]", "v2, s[4:5] offset:4"), "hipErrorIllegalAddress", "past its end"),
    "no wait": (STORE.replace("  s_waitcnt lgkmcnt(0)\n", ""), "hipErrorLaunchFailure", "missing wait"),
    "a race": (RACE, "hipErrorLaunchFailure", "race"),
    "no end": (ENDLESS, "hipErrorLaunchTimeOut", "a loop in which nothing changes"),
    "LDS outside": ("  v_mov_b32_e32 v1, 0x4000\n  ds_write_b32 v1, v0\n  s_waitcnt lgkmcnt(0)\n",
                    "hipErrorIllegalAddress", "LDS"),
    "a trap": ("  s_trap 2\n", "hipErrorLaunchFailure", "s_trap"),
}  # fmt: skip


def broken(name: str) -> Callable[[Double, Emulation], None]:
    """A scenario of a kernel that does not go well."""
    body, result, said = BROKEN[name]

    def run(double: Double, emulation: Emulation) -> None:
        buffer = hip.HipBuffer(512)
        launch = storing(body, threads=128, lds=512).kernel("small").prepare(
            LaunchConfig((1, 1, 1), (128, 1, 1)), [Pointer(buffer.address), U32(1)], description=name
        )  # fmt: skip
        launch()
        with pytest.raises(KernelFault, match=f"(?s)hipDeviceSynchronize returned {result}.*({said})") as caught:
            hip.synchronize()
        assert (caught.value.call, caught.value.result) == ("hipDeviceSynchronize", result)
        assert f"small [{name}], grid 1x1x1" in caught.value.launches[0]
        for call in (buffer.read, launch, hip.HipStream, buffer.free):
            with pytest.raises(KernelFault, match=result):
                call()

    run.__doc__ = "What the emulator says is in the error, which names the launch; the device is lost."
    return run


SCENARIOS |= {f"broken: {name}": broken(name) for name in BROKEN}


@scenario
def images_that_the_runtime_refuses(double: Double, emulation: Emulation) -> None:
    """A code object for another chip, and one with an instruction that nothing executes."""
    with pytest.raises(HipError, match=r"hipErrorNoBinaryForGpu.*module is for gfx950(?s:.*)another chip") as caught:
        storing(chip="gfx950")
    assert caught.value.call == "hipModuleLoadData"
    with pytest.raises(HipError, match=r"hipErrorInvalidImage.*s_rfe_b64"):
        storing("  s_rfe_b64 s[4:5]\n")
    loaded = storing()
    with pytest.raises(HipError, match="hipModuleGetFunction returned hipErrorNotFound"):
        hip.call("hipModuleGetFunction", loaded._module, b"large")


DESCRIBED = """\
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  buffer_load_dword v2, v1, s[4:7], 0 offen
  s_waitcnt vmcnt(0)
  global_store_dword v1, v2, s[8:9]
"""
TAKES_DESCRIPTOR = """\
    .args:
      - {.offset: 0, .size: 16, .value_kind: by_value}
      - {.offset: 16, .size: 8, .value_kind: global_buffer, .address_space: global}
"""


@scenario
def a_descriptor_bounds_its_buffer(double: Double, emulation: Emulation) -> None:
    """Within its records the buffer's words are loaded, behind them 0; one that reaches past its buffer is a fault."""
    kernel = storing(DESCRIBED, kernarg=24, arguments=TAKES_DESCRIPTOR).kernel("small")
    config = LaunchConfig((1, 1, 1), (64, 1, 1))
    with hip.HipBuffer(128) as given, hip.HipBuffer(256) as out:
        given.write(np.arange(32, dtype=np.uint32).tobytes())
        kernel.prepare(config, [BufferDescriptor(given.address, 100), Pointer(out.address)])()
        read = np.frombuffer(out.read(), np.uint32)
        assert read.tolist() == [*range(25), *[0] * 39]
        kernel.prepare(config, [BufferDescriptor(given.address, 2**32 - 1), Pointer(out.address)])()
        with pytest.raises(KernelFault, match=r"hipErrorIllegalAddress(?s:.*)out of bounds of hipMalloc 0"):
            hip.synchronize()
        double.lost = 0


@scenario
def every_call_that_fails_is_named(double: Double, emulation: Emulation) -> None:
    """Whatever the runtime returns becomes an error with call and result, and nothing waits."""
    buffer, stream, event = hip.HipBuffer(64), hip.HipStream(), hip.HipEvent()
    event.record()
    loaded = storing()
    kernel = loaded.kernel("small")
    launch = kernel.prepare(LaunchConfig((1, 1, 1), (64, 1, 1)), [Pointer(buffer.address), U32(0)])
    calls: dict[str, Callable[[], Any]] = {
        "hipGetDevice": lambda: hip.activated(1).__enter__(),
        "hipSetDevice": lambda: hip.activated(1).__enter__(),
        "hipDeviceSynchronize": hip.synchronize,
        "hipMalloc": lambda: hip.HipBuffer(1 << 40),
        "hipFree": buffer.free,
        "hipMemcpy": buffer.read,
        "hipPointerGetAttributes": lambda: hip.device_of(buffer.address),
        "hipStreamCreate": hip.HipStream,
        "hipStreamSynchronize": stream.synchronize,
        "hipStreamDestroy": stream.destroy,
        "hipEventCreate": hip.HipEvent,
        "hipEventRecord": event.record,
        "hipEventSynchronize": event.synchronize,
        "hipEventElapsedTime": lambda: event.milliseconds_since(event),
        "hipEventDestroy": event.destroy,
        "hipModuleLoadData": storing,
        "hipModuleGetFunction": lambda: loaded.kernel("small"),
        "hipModuleLaunchKernel": launch,
        "hipModuleUnload": loaded.unload,
    }
    for name, act in calls.items():
        for result, kind in ((2, HipError), (719, KernelFault)):
            double.results[name] = [result]
            with pytest.raises(kind, match=name) as caught:
                act()
            assert caught.value.call == name, name


if __name__ == "__main__":
    _double = Double(Path(os.environ["ROCM_PATH"]) / "lib" / "libamdhip64.so")
    SCENARIOS[sys.argv[1]](_double, Emulation(_double))
