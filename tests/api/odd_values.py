"""Values that fit nowhere, or nearly: what is thrown at every argument of every public call."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st


class Word(enum.StrEnum):
    """An enum whose members are strings."""

    FAST = "fast"
    K = "k"


class Count(enum.IntEnum):
    """An enum whose members are integers."""

    ONE = 1
    MANY = 1 << 40


def _fails(*_arguments: Any, **_options: Any) -> Any:
    raise RuntimeError("no")


def _broken(*names: str) -> type:
    return type("Broken", (), dict.fromkeys(names, _fails))


NoText = _broken("__repr__", "__str__")
NoHash = _broken("__hash__", "__eq__", "__bool__", "__len__", "__iter__")
NoNumber = _broken("__index__", "__float__", "__int__", "__lt__", "__add__")
NoAttribute = _broken("__getattr__")
NoArray = _broken("__array__", "__dlpack__", "__dlpack_device__", "__cuda_stream__")
NoInterface = type("NoInterface", (), {"__cuda_array_interface__": property(_fails), "shape": property(_fails)})

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 7, 1 << 31, 1 << 70, -(1 << 70), 10**5000,
    0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 1j,
    "", "k", "fast", "2", "relu", "sm_90a", "bf16", "\0", "ü" * 5000, b"k", bytearray(3),
    (), (1,), (1, 2), (0, 0), (64, 64.0), (1, 2, 3), [], [128, 128], ["k"], {}, {"a": 1}, {1, 2}, range(3),
    (None, None),
    ..., NotImplemented, object(), object, int, len, lambda: None, iter(()), slice(1), Exception("x"),
    Word.FAST, Word.K, Count.ONE, Count.MANY,
    np.int8(1), np.int64(-5), np.uint64(2**64 - 1), np.float16(2), np.float32("nan"), np.float64(1e300), np.bool_(True),
    np.str_("k"), np.bytes_(b"k"), np.complex64(1), np.datetime64("2000-01-01"),
    np.dtype("f4"), np.dtype("V3"), np.dtype([("a", "f4")]), ml_dtypes.bfloat16, ml_dtypes.bfloat16(1),
    np.zeros(()), np.zeros((), np.float32), np.zeros(0), np.zeros((0, 0), ml_dtypes.bfloat16), np.zeros(3),
    np.zeros((64, 64)),
    np.zeros((64, 64), object), np.zeros((2, 2), "U3"), np.zeros((64, 64), ml_dtypes.bfloat16)[::-1, ::-1],
    np.broadcast_to(ml_dtypes.bfloat16(1), (64, 64)), np.zeros((64, 64), ml_dtypes.bfloat16)[::2, ::3],
    np.zeros((64, 64), ">f4"), np.zeros((1,) * 20, np.float16), np.zeros((64, 64), [("a", "f2")]),
    np.ma.masked_array(np.zeros((64, 64), np.float16)), np.zeros((64, 64), np.int32),
    np.zeros(64, bool), np.array(["relu"]), np.array(7), np.array([], np.int32),
    NoText(), NoHash(), NoNumber(), NoAttribute(), NoArray(), NoInterface(), NoText, NoHash,
)  # fmt: skip
"""Each tried at every argument."""


TAME = [value for value in ODD if type(value).__name__ not in ("Broken", "NoInterface")]
"""Without those whose own methods fail: hypothesis asks values for their hash and their text."""


def arrays() -> st.SearchStrategy[Any]:
    """Arrays of odd types, shapes and strides."""
    types = ["f2", "f4", "f8", "i4", "u1", ">f2", "?", "c8", "U2", "O", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
    shapes = st.lists(st.sampled_from([0, 1, 2, 16, 63, 64]), max_size=4).map(tuple)
    steps: list[Callable[[Any], Any]] = [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::-1] if a.ndim else a,
        lambda a: a[..., ::2] if a.ndim else a,
        lambda a: np.broadcast_to(a, (2, *a.shape)),
    ]
    return st.builds(
        lambda kind, shape, step: step(np.zeros(shape, kind)), st.sampled_from(types), shapes, st.sampled_from(steps)
    )


def anything() -> st.SearchStrategy[Any]:
    """Any value at all."""
    scalars = st.one_of(
        st.none(), st.booleans(), st.integers(), st.integers(-9, 300), st.floats(), st.text(max_size=9),
        st.binary(max_size=4), st.sampled_from(TAME), arrays(),
    )  # fmt: skip
    return st.one_of(
        scalars,
        st.lists(scalars, max_size=3),
        st.tuples(scalars, scalars),
        st.tuples(st.integers(-2, 300), st.integers(-2, 300)),
        st.lists(st.integers(-2, 300), max_size=4),
        st.dictionaries(st.text(max_size=3), scalars, max_size=2),
    )
