"""Arrays in the memory of AMD GPUs: CuPy's and torch's builds for ROCm, and DLPack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.arrays.conftest import FakeCupyArray, FakeTensor
from tests.arrays.test_dlpack import Handmade
from tilekit.arrays.hip import hip_view
from tilekit.arrays.library import current_stream
from tilekit.arrays.view import view_of
from tilekit.dtypes import BF16, F32
from tilekit.errors import ArgumentError


def test_dlpack_on_a_rocm_device() -> None:
    """kDLROCM is 10, and the stream that makes ready is 0: 1 and 2 mean nothing there."""
    producer = Handmade(code=4, bits=16, device=(10, 2))
    view = hip_view(producer)
    assert (view.address, view.shape, view.strides) == ((1 << 20) + 256, (4, 8), (8, 1))
    assert (view.dtype, view.device) == (BF16, ("hip", 2))
    assert producer.asked == {"max_version": (1, 0), "stream": 0}


def test_a_tensor_of_torch_for_rocm(torch: Any) -> None:
    """It says cuda of its device; torch.version.hip says whose it is."""
    torch.version = SimpleNamespace(hip="7.2", cuda=None)
    view = hip_view(FakeTensor(0x1000, (4, 8), (8, 1), torch.bfloat16, ordinal=1), "a")
    assert (view.address, view.dtype, view.device, view.place) == (0x1000, BF16, ("hip", 1), "torch on hip:1")


def test_an_array_of_cupy_for_rocm(cupy: Any) -> None:
    """CuPy's runtime says whether it is HIP."""
    cupy.cuda.runtime = SimpleNamespace(is_hip=True)
    view = hip_view(FakeCupyArray(0x2000, np.zeros((4, 8), np.float32), ordinal=3))
    assert (view.address, view.strides, view.dtype, view.device) == (0x2000, (8, 1), F32, ("hip", 3))


def test_memory_of_others_is_refused(torch: Any, cupy: Any) -> None:
    """CUDA's and the CPU's memory, whichever library says so, and what is no array."""
    torch.version = SimpleNamespace(hip=None, cuda="13.0")
    cupy.cuda.runtime = SimpleNamespace(is_hip=False)
    given = [
        (FakeTensor(0x1000, (4, 8), (8, 1), torch.bfloat16), "a is torch on cuda:0"),
        (FakeTensor(0x1000, (4, 8), (8, 1), torch.bfloat16, ordinal=-1, device="cpu"), "a is torch on cpu"),
        (FakeCupyArray(0x2000, np.zeros(4, np.float32)), "a is cupy on cuda:0"),
        (Handmade(code=4, bits=16), "a is in CUDA"),
        (np.zeros(4), "a is in host memory(?s:.*)are the emulator's"),
    ]
    for array, words in given:
        with pytest.raises(ArgumentError, match=words) as caught:
            hip_view(array, "a")
        assert caught.value.code == "TK-ARRAY-003"
    with pytest.raises(ArgumentError, match=r"a is a builtins\.list; pass a torch.Tensor or cupy.ndarray of a build"):
        hip_view([1], "a")


def test_a_call_takes_them(torch: Any, cupy: Any) -> None:
    """`view_of`, through which all calls go, says whose memory it is, and which stream is the library's."""
    torch.version, cupy.cuda.runtime = SimpleNamespace(hip="7.2"), SimpleNamespace(is_hip=True)
    given = (
        (FakeTensor(0x1000, (4, 8), (8, 1), torch.bfloat16, ordinal=1), ("hip", 1), 0x101),
        (FakeCupyArray(0x2000, np.zeros((4, 8), np.float32), ordinal=3), ("hip", 3), 0x203),
        (Handmade(code=4, bits=16, device=(10, 2)), ("hip", 2), 0),
        (FakeTensor(0x1000, (4, 8), (8, 1), torch.bfloat16, ordinal=-1, device="cpu"), "cpu", 0),
    )
    for array, device, stream in given:
        view = view_of(array, "a")
        assert (view.device, current_stream(view)) == (device, stream)
