"""Element types and their names."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilekit.dtypes import BF16, DTYPES, E4M3, E5M2, F16, F32, S8, S32, DType, as_dtype
from tilekit.emulator.ptx.memory.tensor_map import ELEMENT_TYPES
from tilekit.errors import ArgumentError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("bf16", BF16),
        ("bfloat16", BF16),
        (ml_dtypes.bfloat16, BF16),
        (np.dtype(ml_dtypes.bfloat16), BF16),
        (np.float16, F16),
        ("half", F16),
        (np.dtype("float32"), F32),
        ("fp32", F32),
        (ml_dtypes.float8_e4m3fn, E4M3),
        ("float8_e4m3fn", E4M3),
        ("e5m2", E5M2),
        (np.dtype(ml_dtypes.float8_e5m2), E5M2),
        (BF16, BF16),
        (np.int8, S8),
        ("s32", S32),
    ],
)
def test_every_spelling_finds_its_type(given: Any, expected: DType) -> None:
    """Strings, NumPy types, scalar types and ml_dtypes types all lead to the one object of their type."""
    assert as_dtype(given) is expected


@pytest.mark.parametrize(("given", "nearest"), [("f64", "f32"), ("double", "f32"), ("bfloat", "bf16"), ("f15", "f16")])
def test_the_nearest_type_is_what_was_meant(given: str, nearest: str) -> None:
    """A wider type's nearest is the widest, and a part of a name means the name."""
    with pytest.raises(ArgumentError, match=f"nearest legal: '{nearest}'"):
        as_dtype(given)


@pytest.mark.parametrize("given", [np.float64, np.dtype(np.float64), float, "float64"])
def test_a_class_of_numpy_s_is_said_by_its_name(given: Any) -> None:
    """As the nearest one is found by it: of NumPy's types, of Python's, and of dtypes alike."""
    with pytest.raises(ArgumentError, match=r"given 'float64'.*nearest legal: 'f32'"):
        as_dtype(given)


def test_torch_types_are_found_by_their_printed_name(torch: Any) -> None:
    """A torch.dtype is recognised without importing torch, through its module and its printed name."""
    assert as_dtype(torch.bfloat16) is BF16
    assert as_dtype(torch.float8_e5m2) is E5M2
    with pytest.raises(ArgumentError, match="int64"):
        as_dtype(torch.int64)


@pytest.mark.parametrize(
    "given",
    [
        "float64",
        np.int16,
        None,
        "",
        ml_dtypes.float8_e4m3b11fnuz,
        ml_dtypes.float8_e4m3,
        np.dtype(">f4"),
        [],
        object(),
    ],
)
def test_unknown_types_are_refused(given: Any) -> None:
    """What merely looks like a known type (float8 variants, byte orders) is refused, listing the legal ones."""
    with pytest.raises(ArgumentError, match=r"bf16 \(bfloat16\), f16 \(float16\)") as caught:
        as_dtype(given, "a")
    assert caught.value.code == "TK-DTYPE-001"
    assert str(caught.value).startswith("a: given")


def test_a_misspelling_is_answered_with_the_nearest_type() -> None:
    """The message for a near miss names what was probably meant: of another byte order the same type."""
    with pytest.raises(ArgumentError, match=r"given '>f2'.*nearest legal: 'f16'"):
        as_dtype(np.dtype(">f2"))
    with pytest.raises(ArgumentError, match="nearest legal: 'bf16'"):
        as_dtype("bfloat")


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_the_facts_of_a_type_agree(dtype: DType) -> None:
    """Bits, epsilon and names agree with ml_dtypes and with the emulator's tensor-map types."""
    assert dtype.bits == dtype.numpy.itemsize * 8 == dtype.dlpack[1] == dtype.bytes * 8
    assert float(ml_dtypes.finfo(dtype.numpy).eps) == dtype.epsilon
    assert dtype.ptx == f".{dtype.name}"
    assert ELEMENT_TYPES[dtype.tensor_map].global_bytes == dtype.bytes


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_a_type_stays_one_object(dtype: DType) -> None:
    """Types are compared by identity, so copying and pickling must give the same object back."""
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
