"""The second call with the same arrays: what it costs, and what it must not mistake for the same call."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.arrays import fingerprint
from tilekit.calls import matmul as calls
from tilekit.errors import ArgumentError
from tilekit.kernels import launch_cache
from tilekit.kernels.matmul import arguments, family
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.runtime import driver as runtime_driver
from tilekit.runtime.parameters import TensorMap
from tilekit.targets import SM_90A

BLOCK = 0x10000


class Driver:
    """Prepares and launches nothing, and notes it: outputs' addresses when prepared, streams when launched."""

    def __init__(self) -> None:
        self.prepared: list[int] = []
        self.launched: list[tuple[int, int]] = []

    def prepare(self, _config: Any, parameters: Any, **_options: Any) -> Any:
        address = [parameter.address for parameter in parameters if isinstance(parameter, TensorMap)][-1]
        self.prepared.append(address)
        return lambda stream: self.launched.append((address, stream))


@pytest.fixture
def driver(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """tilekit.matmul on fake CUDA tensors, as far as the driver."""
    stand_in = Driver()
    monkeypatch.setattr(MatmulKernel, "cuda", property(lambda _: stand_in))
    monkeypatch.setattr(MatmulKernel, "resident_clusters", lambda _self, _ordinal: 66)
    monkeypatch.setattr(arguments, "resolve_target", lambda _a, _target, memory: (SM_90A, None))
    monkeypatch.setattr(calls, "tuned_config", lambda *_problem, **_sizes: None)
    monkeypatch.setattr(runtime_driver, "devices", lambda: (SimpleNamespace(name="NVIDIA H200"),) * 2)
    monkeypatch.setattr(calls, "_launches", launch_cache.LaunchCache())
    return stand_in


@pytest.fixture
def blocks(torch: Any) -> list[int]:
    """The addresses that torch's allocator will hand out, last one first; the lowest again and again."""
    free = [9 * BLOCK]

    def empty_strided(shape: Any, strides: Any, *, dtype: Any, device: str) -> Any:
        address = free[-1] if len(free) == 1 else free.pop()
        return torch.Tensor(address, shape, strides, dtype, int(device.removeprefix("cuda:")))

    torch.empty_strided = empty_strided
    return free


@pytest.fixture
def operands(torch: Any, driver: Driver, blocks: list[int]) -> tuple[Any, Any]:
    """A (64, 32) and B (32, 48) of bf16 on cuda:0."""
    a = torch.Tensor(BLOCK, (64, 32), (32, 1), torch.bfloat16)
    return a, torch.Tensor(2 * BLOCK, (32, 48), (1, 32), torch.bfloat16)


def test_a_result_in_known_memory_is_one_launch(driver: Driver, operands: Any, torch: Any) -> None:
    """The second call without out= finds layout and address, and launches on the stream that is current then."""
    results = [tilekit.matmul(*operands) for _ in range(3)]
    torch._C._cuda_getCurrentRawStream = None  # asked for once, when the launch was bound
    assert [(r.data_ptr(), r.shape, r.stride(), r.dtype) for r in results] == [
        (9 * BLOCK, (64, 48), (48, 1), torch.bfloat16)
    ] * 3
    assert driver.prepared == [9 * BLOCK]
    assert driver.launched == [(9 * BLOCK, 0x100)] * 3


def test_a_result_in_new_memory_is_bound_once(driver: Driver, operands: Any, blocks: list[int]) -> None:
    """Each block that the allocator hands out gets a launch of its own, and keeps it; the config is chosen once."""
    family.picked.cache_clear()
    blocks += [5 * BLOCK, 9 * BLOCK, 5 * BLOCK, 7 * BLOCK]
    addresses = [tilekit.matmul(*operands).data_ptr() // BLOCK for _ in range(6)]
    assert addresses == [7, 5, 9, 5, 9, 9]
    assert [address // BLOCK for address in driver.prepared] == [7, 5, 9]
    assert [address // BLOCK for address, _ in driver.launched] == addresses
    assert family.picked.cache_info().misses == 1


def test_what_tells_calls_apart(driver: Driver, operands: Any, torch: Any) -> None:
    """Any argument that changes the kernel or its parameters has a launch of its own; zeros differ by sign."""
    a, b = operands
    bias = torch.Tensor(3 * BLOCK, (48,), (1,), torch.float32)
    variants: list[dict[str, Any]] = [
        {},
        {"out_dtype": "f32"},
        {"activation": "relu"},
        {"bias": bias},
        {"scale": 0.0},
        {"scale": -0.0},
        {"scale": 2.0},
        {"config": tilekit.MatmulConfig()},
        {"out": torch.Tensor(9 * BLOCK, (64, 48), (48, 1), torch.bfloat16)},
        {"out": torch.Tensor(9 * BLOCK, (64, 48), (64, 1), torch.bfloat16)},
    ]
    for _ in range(2):
        for variant in variants:
            tilekit.matmul(a, b, **variant)
    assert len(driver.prepared) == len(variants)
    assert len(driver.launched) == 2 * len(variants)


def test_a_scale_in_host_memory_counts_by_its_value(driver: Driver, operands: Any) -> None:
    """The kernel gets the number that the array holds now, not the one it held at the first call."""
    scale = np.full((1,), 2.0, np.float32)
    tilekit.matmul(*operands, scale=scale)
    tilekit.matmul(*operands, scale=2.0)
    assert len(driver.prepared) == 1
    scale[0] = 3.0
    tilekit.matmul(*operands, scale=scale)
    assert len(driver.prepared) == 2


def test_an_explicit_stream_gets_memory_and_launch(driver: Driver, operands: Any, torch: Any) -> None:
    """With stream= output and launch are in that stream's order, at the first call and after."""
    for _ in range(2):
        tilekit.matmul(*operands, stream=7)
    assert torch.entered == [(7, 0)] * 2
    assert driver.launched == [(9 * BLOCK, 7)] * 2
    assert len(driver.prepared) == 1
    with pytest.raises(ArgumentError, match="is no stream"):
        tilekit.matmul(*operands, stream="main")


def test_a_known_launch_does_not_excuse_a_bad_argument(driver: Driver, operands: Any, torch: Any) -> None:
    """The same memory, now requiring a gradient, and arguments that cannot be looked up are refused as at first."""
    a, b = operands
    tilekit.matmul(a, b)
    a.requires_grad = True
    with pytest.raises(ArgumentError, match=r"a requires a gradient"):
        tilekit.matmul(a, b)
    a.requires_grad = False
    with pytest.raises(ArgumentError, match=r"activation: given \['relu'\]; legal: 'relu'"):
        tilekit.matmul(a, b, activation=["relu"])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"b is a builtins\.str"):
        tilekit.matmul(a, "b")
    out = tilekit.matmul(a, b, out_dtype="f32")
    for _ in range(2):
        with pytest.raises(ArgumentError, match="they must agree"):
            tilekit.matmul(a, b, out=out, out_dtype="bf16")
    assert len(driver.launched) == 2


def test_launches_are_bounded(
    driver: Driver, operands: Any, blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest launch goes when there are too many, and is bound again when it is needed again."""
    monkeypatch.setattr(launch_cache, "_KEPT", 3)
    order = [4, 5, 6, 7, 4]
    blocks += [block * BLOCK for block in reversed(order)]
    for _ in order:
        tilekit.matmul(*operands)
    assert [address // BLOCK for address in driver.prepared] == order
    assert len(calls._launches.launches) == 3
    for columns in range(8, 48, 8):
        tilekit.matmul(operands[0], sys.modules["torch"].Tensor(BLOCK, (32, columns), (1, 32), operands[0].dtype))
    assert len(calls._launches.outputs) == 3


def test_no_array_is_kept_alive(driver: Driver, torch: Any, blocks: list[int]) -> None:
    """Neither the operands nor the results of a call live on in what is remembered of it."""
    a = torch.Tensor(BLOCK, (64, 64), (64, 1), torch.float16)
    result = tilekit.matmul(a, a)
    references = [weakref.ref(a), weakref.ref(result)]
    del a, result
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_each_thread_has_its_own(driver: Driver, operands: Any) -> None:
    """A prepared launch belongs to one thread, so another thread prepares its own."""
    for _ in range(2):
        thread = threading.Thread(target=tilekit.matmul, args=operands)
        thread.start()
        thread.join()
    tilekit.matmul(*operands)
    tilekit.matmul(*operands)
    assert len(driver.prepared) == 3


@pytest.mark.parametrize("with_out", [False, True])
def test_a_repeated_call_costs_little(driver: Driver, operands: Any, with_out: bool) -> None:
    """A repeated call reads the arrays' attributes and looks them up: no view, no check, no binding."""
    out = {"out": tilekit.matmul(*operands)} if with_out else {}
    tilekit.matmul(*operands, **out)
    calls: list[str] = []

    def note(frame: Any, event: str, _argument: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("tilekit."):
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        tilekit.matmul(*operands, **out)
    finally:
        sys.setprofile(None)
    assert calls == ["matmul", "again", *["<lambda>"] * (3 if with_out else 2)]


def test_results_are_made_the_quick_way_on_the_current_device(driver: Driver, operands: Any, torch: Any) -> None:
    """The allocation of torch's compiled kernels knows the current device alone; elsewhere it is the public one."""
    device, made = [0], []

    def quick(shape: Any, strides: Any, dtype: Any) -> Any:
        assert type(shape) is type(strides) is tuple
        made.append(device[0])
        return torch.Tensor(7 * BLOCK, shape, strides, dtype)

    torch._C._dynamo = SimpleNamespace(guards=SimpleNamespace(_empty_strided_cuda=quick))
    torch._C._cuda_getDevice = lambda: device[0]
    results = [tilekit.matmul(*operands) for device[0] in (0, 1, 0)]
    assert [result.data_ptr() // BLOCK for result in results] == [7, 9, 7]
    assert made == [0, 0]
    assert {(r.shape, r.stride(), r.dtype) for r in results} == {((64, 48), (48, 1), torch.bfloat16)}


def test_odd_arguments_behind_a_kept_launch(driver: Driver, operands: Any) -> None:
    """What is compared with a default to find a launch may be anything, and is refused as at a first call."""
    out = tilekit.matmul(*operands)
    odd: Any = np.ones(2)
    for name in ("accumulation", "activation", "out_dtype", "precision", "config", "target", "epilogue"):
        for given in ({}, {"out": out}):
            with pytest.raises(tilekit.TilekitError):
                tilekit.matmul(*operands, **given, **{name: odd})
    with pytest.raises(ArgumentError):
        tilekit.matmul(*operands, out=(out, out))  # type: ignore[arg-type]
    assert len(driver.launched) == 1


def test_cupy_results_are_found_too(cupy: Any, driver: Driver) -> None:
    """CuPy's outputs are made on its device, and their launches found by their address."""
    a = cupy.ndarray(BLOCK, np.zeros((64, 64), np.float16))
    results = [tilekit.matmul(a, a) for _ in range(2)]
    assert driver.prepared == [results[0].data.ptr]
    assert driver.launched == [(results[0].data.ptr, 0x200)] * 2
    assert cupy.entered == [("device", 0)] * 2


def test_other_libraries_are_bound_each_time(cupy: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array known through an interface may name another stream at each call, so its launch is not kept."""
    monkeypatch.setattr("tilekit.runtime.driver.device_of", lambda _address: 1)
    interface = {"version": 3, "shape": (64, 64), "typestr": "<f2", "data": (BLOCK, False), "stream": 5}
    array = SimpleNamespace(__cuda_array_interface__=interface)
    for stream in (5, 6):
        interface["stream"] = stream
        tilekit.matmul(
            array, array, out=SimpleNamespace(__cuda_array_interface__={**interface, "data": (9 * BLOCK, False)})
        )
    assert [stream for _, stream in driver.launched] == [5, 6]
    assert not calls._launches.launches


def test_a_result_for_a_library_that_is_known_by_interface(
    cupy: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the library cannot be asked for memory the result is CuPy's, and all happens in the arrays' own stream."""
    monkeypatch.setattr("tilekit.runtime.driver.device_of", lambda _address: 1)
    interface = {"version": 3, "shape": (64, 64), "typestr": "<f2", "data": (BLOCK, False), "stream": 5}
    array = SimpleNamespace(__cuda_array_interface__=interface)
    result = tilekit.matmul(array, array)
    assert isinstance(result, cupy.ndarray)
    assert driver.launched == [(result.data.ptr, 5)]
    assert cupy.entered.count(("stream", 5)) == 2  # for the memory, and for the exchange after the launch


def test_a_subclass_of_a_tensor_is_found_again(driver: Driver, operands: Any, torch: Any) -> None:
    """Parameters and the like are tensors: their second call is a look-up, and apart from plain tensors' own."""

    class Parameter(torch.Tensor):  # type: ignore[misc, name-defined]
        __module__ = "somewhere.else"

    a, b = operands
    weight = Parameter(2 * BLOCK, (32, 48), (1, 32), torch.bfloat16)
    for _ in range(2):
        tilekit.matmul(a, weight)
        tilekit.matmul(a, b)
    assert (len(driver.prepared), len(driver.launched)) == (2, 4)


def test_arrays_whose_launches_are_not_kept_have_no_key() -> None:
    """NumPy's arrays are viewed when they are parsed, and not before for a key that nothing is kept by."""
    for value in (np.zeros(3), [1, 2], "relu", np.float32(1)):
        with pytest.raises(TypeError, match="has no fingerprint"):
            fingerprint(value)
