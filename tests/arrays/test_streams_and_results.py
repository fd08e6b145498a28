"""Streams, new arrays, and the checks of an output that the caller passed in."""

from __future__ import annotations

import itertools
import operator
import sys
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.arrays import (
    ArrayView,
    current_stream,
    empty_like_library,
    hand_over,
    overlap,
    require_output,
    resolve_stream,
    view_of,
)
from tilekit.arrays.checks import overlaps_itself
from tilekit.dtypes import BF16, E4M3, F16, F32
from tilekit.errors import ArgumentError


@pytest.fixture
def tensor(torch: Any) -> ArrayView:
    """The view of a float16 tensor on cuda:2."""
    return view_of(torch.Tensor(64, (2, 2), (2, 1), torch.float16, ordinal=2))


@pytest.fixture
def array(cupy: Any) -> ArrayView:
    """The view of a float16 CuPy array on cuda:1."""
    return view_of(cupy.ndarray(64, np.zeros((2, 2), np.float16), ordinal=1))


def test_the_current_stream_is_the_librarys_own(tensor: ArrayView, array: ArrayView) -> None:
    """torch and CuPy are asked for the stream of the array's device; the CPU has none."""
    assert current_stream(tensor) == 0x102
    assert current_stream(array) == 0x201
    assert current_stream(view_of(np.zeros(2, np.float32))) == 0


def test_the_interfaces_stream_counts_for_other_libraries() -> None:
    """An object of version 3 names its stream; one that names none gets the legacy default stream."""
    for entry, expected in ((7, 7), (None, 1)):
        owner = SimpleNamespace(__cuda_array_interface__={"stream": entry})
        assert current_stream(ArrayView(0, (1,), (1,), F32, ("cuda", 0), "numba", owner)) == expected


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0x102),
        (0, 0),
        (77, 77),
        (SimpleNamespace(cuda_stream=5), 5),
        (SimpleNamespace(ptr=6), 6),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 8)), 8),
        (SimpleNamespace(__cuda_stream__=(0, 9)), 9),
    ],
)
def test_every_kind_of_stream(tensor: ArrayView, stream: Any, handle: int) -> None:
    """None, handles, torch's and CuPy's streams and both forms of the protocol give their handle."""
    assert resolve_stream(stream, tensor) == handle


@pytest.mark.parametrize("stream", [True, -1, "0", 1.5, object(), SimpleNamespace(__cuda_stream__=lambda: (1, 8))])
def test_what_is_no_stream_is_refused(tensor: ArrayView, stream: Any) -> None:
    """Booleans, negative numbers, strings and later versions of the protocol are refused."""
    with pytest.raises(ArgumentError, match="stream") as caught:
        resolve_stream(stream, tensor)
    assert caught.value.code == "TK-ARRAY-005"


def test_a_stream_for_arrays_on_the_cpu_is_refused() -> None:
    """The emulator has no streams, and an ignored argument would mislead."""
    with pytest.raises(ArgumentError, match="numpy on cpu"):
        resolve_stream(0, view_of(np.zeros(2, np.float32)))


def test_new_numpy_arrays() -> None:
    """NumPy gets a NumPy array of the ml_dtypes type."""
    made = empty_like_library(view_of(np.zeros(2, np.float32)), (3, 4), BF16)
    assert isinstance(made, np.ndarray)
    assert (made.shape, made.dtype) == ((3, 4), BF16.numpy)


def test_new_tensors_are_made_on_the_stream_of_the_launch(torch: Any, tensor: ArrayView) -> None:
    """The current stream needs no context; another stream is entered, so that torch's pool orders the memory by it."""
    made = empty_like_library(tensor, (3, 4), E4M3)
    assert (made.dtype, made.shape, made.get_device()) == (torch.float8_e4m3fn, (3, 4), 2)
    empty_like_library(tensor, (3, 4), F16, stream=0x102)
    assert torch.entered == []
    empty_like_library(tensor, (3, 4), F16, stream=5)
    assert torch.entered == [(5, 2)]


def test_new_cupy_arrays_are_made_on_their_device_and_stream(cupy: Any, array: ArrayView) -> None:
    """CuPy allocates on its current device and stream: both are entered, first the device, whose stream it is."""
    made = empty_like_library(array, (3, 4), BF16, stream=5)
    assert (type(made), made.shape, made.dtype) == (cupy.ndarray, (3, 4), BF16.numpy)
    assert cupy.entered == [("device", 1), ("stream", 5), ("device", 1)]


def test_a_type_that_the_library_lacks_names_the_way_out(cupy: Any, array: ArrayView) -> None:
    """CuPy has no 8-bit floats: the error says so and points at out= and out_dtype."""
    with pytest.raises(ArgumentError, match=r"CuPy has no float8_e4m3fn.*out_dtype") as caught:
        empty_like_library(array, (3, 4), E4M3)
    assert caught.value.code == "TK-ARRAY-006"


def test_other_libraries_get_their_own_arrays_through_dlpack(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result made by CuPy goes through the library's from_dlpack; native arrays are handed back as they are."""
    view = ArrayView(64, (2,), (1,), F16, ("cuda", 1), "other", (None, SimpleNamespace()))
    made = empty_like_library(view, (2,), F16)
    assert type(made) is cupy.ndarray
    assert hand_over(made, view) is made
    library: Any = ModuleType("other")
    library.from_dlpack = lambda array: ("other's", array)
    monkeypatch.setitem(sys.modules, "other", library)
    assert hand_over(made, view) == ("other's", made)
    assert hand_over(made, view_of(made)) is made


def test_without_cupy_the_message_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of a library known by protocol alone need CuPy for new memory; without it the error says so."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ArgumentError, match="through CuPy, which is not installed; pass out="):
        empty_like_library(ArrayView(64, (2,), (1,), F16, ("cuda", 1), "other", None), (2,), F16)


@st.composite
def strided(draw: st.DrawFn) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Offset, shape and strides of a small array inside 128 elements."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(rank))
    strides = tuple(draw(st.integers(-6, 6)) for _ in range(rank))
    return draw(st.integers(40, 80)), shape, strides


def elements(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> set[int]:
    """Every element's place, by walking all coordinates."""
    return {
        offset + sum(index * stride for index, stride in zip(coordinate, strides, strict=True))
        for coordinate in np.ndindex(shape)
    }


@given(strided(), strided())
def test_overlap_is_exact(first: Any, second: Any) -> None:
    """Two strided arrays overlap exactly when walking all their elements meets a common byte."""
    views = [
        ArrayView(4096 + 2 * offset, shape, strides, F16, "cpu", "numpy", None)
        for offset, shape, strides in (first, second)
    ]
    assert overlap(*views) == bool(elements(*first) & elements(*second))


def test_overlap_of_different_widths_and_devices() -> None:
    """Bytes count, not elements; equal addresses on different devices are different memory."""
    wide = ArrayView(4096, (4,), (1,), F32, ("cuda", 0), "cupy", None)
    assert overlap(wide, ArrayView(4096 + 15, (1,), (1,), E4M3, ("cuda", 0), "cupy", None))
    assert not overlap(wide, ArrayView(4096 + 16, (1,), (1,), E4M3, ("cuda", 0), "cupy", None))
    assert not overlap(wide, ArrayView(4096, (4,), (1,), F32, ("cuda", 1), "cupy", None))


def test_column_blocks_of_one_matrix_do_not_overlap() -> None:
    """The usual packed weights: ranges overlap, elements do not, and large strides do not make the answer vague."""
    packed = np.zeros((2048, 3 * 128), np.float16)
    left, middle = view_of(packed[:, :128]), view_of(packed[:, 128:256])
    assert not overlap(left, middle)
    assert overlap(left, view_of(packed[:, 127:255]))


@pytest.mark.parametrize(
    ("out", "words", "code"),
    [
        (np.zeros((4, 3), np.float16), r"f16 of shape \(4, 3\); the result is f16 of shape \(4, 4\)", "TK-ARRAY-008"),
        (np.zeros((4, 4), np.float32), r"out is f32 of shape", "TK-ARRAY-008"),
        (np.broadcast_to(np.zeros(4, np.float16), (4, 4)), "read-only", "TK-ARRAY-008"),
        (np.lib.stride_tricks.as_strided(np.zeros(4, np.float16), (4, 4), (0, 2)), "share one place", "TK-ARRAY-009"),
        (np.lib.stride_tricks.as_strided(np.zeros(16, np.float16), (4, 4), (6, 2)), "share one place", "TK-ARRAY-009"),
    ],
)
def test_unfit_outputs_are_refused(out: Any, words: str, code: str) -> None:
    """Another shape, another type, read-only memory and elements that share memory are refused, saying which."""
    with pytest.raises(ArgumentError, match=words) as caught:
        require_output(view_of(out), (4, 4), F16, [])
    assert caught.value.code == code


@pytest.mark.parametrize("seed", range(4))
def test_whether_elements_share_a_place_is_told_exactly(seed: int) -> None:
    """Of drawn shapes and strides, beside a list of every element's place."""
    random = Random(seed)
    found = 0
    for _ in range(4000):
        axes = [(random.randrange(6), random.choice((0, 1, 2, 3, 4, 6, 8, 10, 12, 20, 30, -1, -4))) for _ in range(4)]
        shape, strides = zip(*axes[: random.randint(1, 4)], strict=True)
        places = [sum(map(operator.mul, index, strides)) for index in itertools.product(*map(range, shape))]
        shared = len(set(places)) < len(places)
        assert overlaps_itself(ArrayView(4096, shape, strides, F16, ("cuda", 0), "cupy", None)) == shared
        found += shared
    assert 400 < found < 3600


def test_an_output_that_overlaps_an_input_is_refused() -> None:
    """Writing over an input that other CTAs still read is a race; the message names both arguments."""
    memory = np.zeros((8, 4), np.float16)
    inputs = [("a", view_of(memory[4:]))]
    require_output(view_of(memory[:4]), (4, 4), F16, inputs)
    with pytest.raises(ArgumentError, match="out overlaps a in memory") as caught:
        require_output(view_of(memory[3:7]), (4, 4), F16, inputs)
    assert caught.value.code == "TK-ARRAY-009"
