"""Views: address, shape, strides, type and place of arrays from every library."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilekit.arrays import ArrayView, host_array, require_same_place, view_of
from tilekit.dtypes import BF16, DTYPES, F16, F32, DType
from tilekit.errors import ArgumentError


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_numpy_arrays_of_every_type(dtype: DType) -> None:
    """A NumPy array of each element type is described as NumPy itself describes it, strides in elements."""
    array = np.zeros((6, 10), dtype.numpy)[1:5, ::2].T
    view = view_of(array)
    assert view.address == array.__array_interface__["data"][0]
    assert (view.shape, view.strides) == ((5, 4), (2, 10))
    assert (view.dtype, view.device, view.library, view.writeable) == (dtype, "cpu", "numpy", True)
    assert view.owner is array


def test_a_read_only_numpy_array_says_so() -> None:
    """Outputs must be writeable, so a view carries the flag."""
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    assert not view_of(array).writeable


def test_negative_and_broadcast_strides_are_kept() -> None:
    """A reversed and a broadcast axis keep their strides; what cannot take them says so later."""
    assert view_of(np.zeros((3, 4), np.float32)[::-1]).strides == (-4, 1)
    assert view_of(np.broadcast_to(np.zeros(4, np.float32), (3, 4))).strides == (0, 1)


def test_a_field_of_a_structured_array_is_refused() -> None:
    """A stride that is no whole number of elements names its axis and the number of bytes."""
    table = np.zeros(8, np.dtype([("half", np.float16), ("byte", np.uint8)]))
    with pytest.raises(ArgumentError, match="stride of 3 bytes on axis 0") as caught:
        view_of(table["half"], "a")
    assert caught.value.code == "TK-ARRAY-004"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_an_array_that_begins_between_elements_is_refused(dtype: Any) -> None:
    """NumPy has such arrays, of a file's bytes behind a header; a GPU faults on them. An empty one has no elements."""
    size = np.dtype(dtype).itemsize
    raw = np.zeros(4 * size + 1, np.uint8)
    inside = raw[1:].view(dtype)
    with pytest.raises(ArgumentError, match=f"out begins at address 0x.*multiples of {size} bytes") as caught:
        view_of(inside, "out")
    assert caught.value.code == "TK-ARRAY-004"
    assert view_of(inside[:0]).shape == (0,)
    assert view_of(raw[1:].view(ml_dtypes.float8_e4m3fn)).shape == (4 * size,)
    assert view_of(raw[1:].view(ml_dtypes.float4_e2m1fn)).shape == (4 * size,)


@pytest.mark.parametrize("given", [[1.0, 2.0], 3.0, None, "abc", np.float32(1)])
def test_what_is_no_array_is_refused(given: Any) -> None:
    """Lists and scalars are refused with the argument's name and type."""
    with pytest.raises(ArgumentError, match=f"b is a .*{type(given).__name__}; pass an array") as caught:
        view_of(given, "b")
    assert caught.value.code == "TK-ARRAY-001"


def test_an_unknown_element_type_names_the_argument() -> None:
    """An int64 array is refused as argument a, with the legal types."""
    with pytest.raises(ArgumentError, match="a: given 'int64'; legal: bf16"):
        view_of(np.zeros(3, np.int64), "a")


def test_torch_tensors_are_read_through_their_own_methods(torch: Any) -> None:
    """A CUDA tensor gives its pointer, element strides and ordinal."""
    view = view_of(torch.Tensor(4096, (5, 7), (7, 1), torch.bfloat16, ordinal=3))
    assert (view.address, view.shape, view.strides) == (4096, (5, 7), (7, 1))
    assert (view.dtype, view.device, view.library) == (BF16, ("cuda", 3), "torch")
    assert view.place == "torch on cuda:3"


def test_subclasses_of_tensor_are_tensors(torch: Any) -> None:
    """A Parameter comes from another module of torch and is a tensor all the same."""
    parameter = type("Parameter", (torch.Tensor,), {"__module__": "torch.nn.parameter"})
    assert view_of(parameter(64, (2, 2), (2, 1), torch.float16)).dtype is F16


def test_a_tensor_that_needs_a_gradient_is_refused_unless_grad_is_off(torch: Any) -> None:
    """Dropping a gradient silently would be a wrong result; torch.no_grad() says that it is meant."""
    weight = torch.Tensor(64, (2, 2), (2, 1), torch.float16, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"b requires a gradient.*b\.detach\(\)"):
        view_of(weight, "b")
    torch.grad_enabled = False
    assert view_of(weight, "b").address == 64


def test_a_lazily_negated_tensor_is_refused(torch: Any) -> None:
    """Its memory holds the opposite sign of its values."""
    with pytest.raises(ArgumentError, match="resolve_neg"):
        view_of(torch.Tensor(64, (2,), (1,), torch.float32, negative=True))


@pytest.mark.parametrize(("device", "ordinal"), [("meta", -1), ("xpu", 0)])
def test_tensors_elsewhere_are_refused(torch: Any, device: str, ordinal: int) -> None:
    """Meta tensors have the ordinal of the CPU but no memory; other accelerators have ordinals like CUDA."""
    with pytest.raises(ArgumentError, match=f"a lies on {device}"):
        view_of(torch.Tensor(0, (2,), (1,), torch.float32, ordinal=ordinal, device=device), "a")


def test_a_tensor_without_storage_is_refused(torch: Any) -> None:
    """data_ptr() raises on sparse and fake tensors; the error names the argument and the kind."""
    tensor = torch.Tensor(0, (2,), (1,), torch.float32)
    tensor.layout = "torch.sparse_csr"
    tensor.data_ptr = lambda: (_ for _ in ()).throw(RuntimeError("Cannot access data pointer"))
    with pytest.raises(ArgumentError, match="a is a sparse_csr tensor without plain memory: Cannot access") as caught:
        view_of(tensor, "a")
    assert caught.value.code == "TK-ARRAY-002"


def test_cupy_arrays_are_read_without_their_interface_dictionary(cupy: Any) -> None:
    """A CuPy array gives pointer, byte strides turned into elements, and its device."""
    array = cupy.ndarray(8192, np.zeros((4, 6), ml_dtypes.bfloat16)[:, ::2], ordinal=1)
    view = view_of(array)
    assert (view.address, view.shape, view.strides) == (8192, (4, 3), (6, 2))
    assert (view.dtype, view.device, view.library) == (BF16, ("cuda", 1), "cupy")


def test_views_cost_little(torch: Any, cupy: Any) -> None:
    """Dispatch is one dictionary look-up: no call besides the array's own accessors is made the second time."""
    tensor = torch.Tensor(64, (2, 2), (2, 1), torch.float16)
    array = cupy.ndarray(64, np.zeros((2, 2), np.float16))
    view_of(tensor), view_of(array)
    calls: list[str] = []

    def count(frame: Any, event: str, _argument: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        view_of(tensor)
        view_of(array)
    finally:
        sys.setprofile(None)
    own = {"stride", "data_ptr", "get_device", "is_neg"}
    torch_calls = ["view_of", "_view_torch", "as_dtype", "__init__"]
    cupy_calls = ["view_of", "_view_cupy", "_in_elements", "as_dtype", "__init__"]
    assert [call for call in calls if call not in own] == torch_calls + cupy_calls


class Interface:
    """An object with nothing but ``__cuda_array_interface__``."""

    def __init__(self, **entries: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4, 8), "typestr": "<f2", "data": (1 << 20, False), "version": 3, **entries,
        }  # fmt: skip


@pytest.fixture
def second_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that finds every address on device 1."""
    monkeypatch.setattr("tilekit.runtime.driver.device_of", lambda address: 1)


@pytest.mark.usefixtures("second_device")
class TestCudaArrayInterface:
    """Objects with ``__cuda_array_interface__`` alone."""

    def test_c_order_is_the_default(self) -> None:
        """Strides of None mean C order; the device is the driver's answer."""
        view = view_of(Interface())
        assert (view.address, view.shape, view.strides) == (1 << 20, (4, 8), (8, 1))
        assert (view.dtype, view.device, view.writeable) == (F16, ("cuda", 1), True)

    def test_strides_are_in_bytes(self) -> None:
        """Given strides are bytes and become elements, and read-only memory is marked."""
        view = view_of(Interface(strides=(32, 4), data=(64, True)))
        assert (view.strides, view.writeable) == ((16, 2), False)

    def test_anonymous_bytes_are_explained_by_the_array(self) -> None:
        """bfloat16 travels as raw two-byte items; the array's own dtype says what they are."""
        array = Interface(typestr="<V2")
        with pytest.raises(ArgumentError, match="legal: bf16"):
            view_of(array)
        array.dtype = np.dtype(ml_dtypes.bfloat16)  # type: ignore[attr-defined]
        assert view_of(array).dtype is BF16

    def test_a_mask_is_refused(self) -> None:
        """A mask would be ignored, so it is an error."""
        with pytest.raises(ArgumentError, match="a has a mask"):
            view_of(Interface(mask=SimpleNamespace()), "a")


def test_a_view_is_its_own_view() -> None:
    """Functions that take arrays take views as well, without another look at the array."""
    view = view_of(np.zeros((2, 2), np.float32))
    assert view_of(view) is view


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_host_array_shares_memory(dtype: DType) -> None:
    """The ndarray over a CPU view of another library is the same memory, with the same strides and element type."""
    memory = np.arange(24).reshape(4, 6).astype(dtype.numpy)
    inner = view_of(memory[::2, ::-1])
    foreign = ArrayView(inner.address, inner.shape, inner.strides, inner.dtype, "cpu", "torch", memory)
    seen = host_array(foreign)
    assert seen.dtype == dtype.numpy
    np.testing.assert_array_equal(seen.astype(np.float64), memory[::2, ::-1].astype(np.float64))
    seen[0, 0] = 0
    assert memory[0, 5] == 0


def test_host_array_of_numpy_is_the_array_itself() -> None:
    """A NumPy array is handed back, not wrapped; a device array is refused."""
    array = np.zeros(3, np.float32)
    assert host_array(view_of(array)) is array
    with pytest.raises(ArgumentError, match="cupy on cuda:0"):
        host_array(ArrayView(0, (1,), (1,), F32, ("cuda", 0), "cupy", None))


def test_mixed_places_name_both_arguments(torch: Any, cupy: Any) -> None:
    """Another library and another device are both refused, naming the two arguments and where each lies."""
    a = view_of(torch.Tensor(64, (2, 2), (2, 1), torch.float16))
    b = view_of(cupy.ndarray(64, np.zeros((2, 2), np.float16)))
    far = view_of(torch.Tensor(64, (2, 2), (2, 1), torch.float16, ordinal=1))
    require_same_place([("a", a), ("b", a)])
    with pytest.raises(ArgumentError, match="a is torch on cuda:0 and b is cupy on cuda:0") as caught:
        require_same_place([("a", a), ("b", b)])
    assert caught.value.code == "TK-ARRAY-007"
    with pytest.raises(ArgumentError, match="a is torch on cuda:0 and bias is torch on cuda:1"):
        require_same_place([("a", a), ("b", a), ("bias", far)])
