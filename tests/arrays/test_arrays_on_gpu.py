"""Real arrays on a real GPU: torch, CuPy, and CuPy arrays disguised as another library's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.arrays import current_stream, empty_like_library, hand_over, overlap, resolve_stream, view_of
from tilekit.dtypes import BF16, DTYPES, E4M3, F16, F32, DType
from tilekit.errors import ArgumentError

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch() -> Any:
    """torch with a GPU."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return module


@pytest.fixture
def cupy() -> Any:
    """CuPy with a GPU."""
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_torch_views_and_new_tensors(torch: Any, dtype: DType) -> None:
    """A transposed CUDA tensor of each type is described as torch does, and a new one lies on the same device."""
    tensor = torch.zeros(6, 10, device="cuda", dtype=getattr(torch, dtype.long_name)).T
    view = view_of(tensor)
    assert (view.address, tuple(view.shape), view.strides) == (tensor.data_ptr(), (10, 6), (1, 10))
    assert (view.dtype, view.device, view.library) == (dtype, ("cuda", tensor.get_device()), "torch")
    made = empty_like_library(view, (3, 4), dtype)
    assert (made.dtype, made.device, tuple(made.shape)) == (tensor.dtype, tensor.device, (3, 4))


def test_torch_streams(torch: Any) -> None:
    """The current stream is torch's, inside and outside of a context, and stream objects give their handles."""
    view = view_of(torch.zeros(2, device="cuda"))
    stream = torch.cuda.Stream()
    assert current_stream(view) == torch.cuda.current_stream().cuda_stream
    with torch.cuda.stream(stream):
        assert current_stream(view) == stream.cuda_stream
    assert resolve_stream(stream, view) == stream.cuda_stream
    made = empty_like_library(view, (2, 2), F32, stream.cuda_stream)
    assert made.is_cuda


def test_cupy_views_streams_and_new_arrays(cupy: Any) -> None:
    """CuPy arrays, bfloat16 included, are described as CuPy does; 8-bit floats are refused with the way out."""
    array = cupy.zeros((6, 10), BF16.numpy)[:, ::2]
    view = view_of(array)
    assert (view.address, view.shape, view.strides) == (array.data.ptr, (6, 5), (10, 2))
    assert (view.dtype, view.library) == (BF16, "cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        assert current_stream(view) == stream.ptr
    assert resolve_stream(stream, view) == stream.ptr
    made = empty_like_library(view, (3, 4), BF16, stream.ptr)
    assert (made.dtype, made.shape) == (BF16.numpy, (3, 4))
    with pytest.raises(ArgumentError, match="TK-ARRAY-006"):
        empty_like_library(view, (3, 4), E4M3)


class ThroughDlpack:
    """A CuPy array seen through DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class ThroughInterface:
    """A CuPy array seen through the CUDA array interface alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


@pytest.mark.parametrize("disguise", [ThroughDlpack, ThroughInterface])
def test_protocols_agree_with_cupy(cupy: Any, disguise: Any) -> None:
    """Address, shape, strides, type and device through either protocol are those of the array itself."""
    array = cupy.zeros((6, 10), np.float16)[1:, ::2]
    direct, view = view_of(array), view_of(disguise(array))
    assert (view.address, view.shape, view.strides) == (direct.address, direct.shape, direct.strides)
    assert (view.dtype, view.device) == (F16, direct.device)
    assert overlap(view, direct)
    made = hand_over(empty_like_library(view, (2, 2), F16), view)
    assert isinstance(made, cupy.ndarray)
