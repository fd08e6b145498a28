"""Names that never repeat, constants spelled exactly, and register types that stand for each other."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.assembly.errors import TraceError
from tilekit.assembly.names import Names
from tilekit.assembly.numbers import number
from tilekit.assembly.ptx.literals import literal
from tilekit.assembly.types import (
    B16,
    B32,
    DSMEM,
    F32,
    GMEM,
    PRED,
    REGISTER_TYPES,
    S32,
    SMEM,
    U32,
    U64,
    RegisterType,
    accepts,
)

HINTS = st.sampled_from(["a", "a1", "a1_1", "acc", "acc_0", "acc_1", "done", "x2", "x"])


@given(st.lists(st.tuples(HINTS, st.integers(0, 3)), max_size=30))
def test_names_never_repeat(wanted: list[tuple[str, int]]) -> None:
    """Hints that look like numbered names, and tiles whose members look like hints, still give distinct names."""
    names = Names({"done"})
    found = ["done"]
    for hint, members in wanted:
        if members:
            prefix = names.prefix(hint, members)
            found += [f"{prefix}{i}" for i in range(members)]
        else:
            found.append(names.new(hint))
            assert found[-1].startswith(hint)
    assert len(set(found)) == len(found)


def test_first_name_is_the_hint() -> None:
    """Names stay readable: the hint itself, then the hint and a number."""
    names = Names(())
    assert [names.new(h) for h in ("row", "row", "row", "x2", "x2")] == ["row", "row1", "row2", "x2", "x2_1"]


@given(st.floats(width=32, allow_nan=False))
def test_f32_literals_are_exact(value: float) -> None:
    """A float32 is spelled as its eight hexadecimal digits, sign of zero and infinities included."""
    text = literal(number(value, F32))
    assert text.startswith("0f")
    assert len(text) == 10
    back = struct.unpack(">f", bytes.fromhex(text[2:]))[0]
    assert back == value
    assert math.copysign(1, back) == math.copysign(1, value)


def test_f32_literals_round_and_know_nan() -> None:
    """A Python float is rounded to the nearest float32; NaN is one; an int is a number too."""
    assert literal(number(0.1, F32)) == "0f3DCCCCCD"
    assert literal(number(1 + 2**-25, F32)) == "0f3F800000"
    assert literal(number(3, F32)) == "0f40400000"
    assert int(literal(number(math.nan, F32))[2:], 16) & 0x7FC00000 == 0x7FC00000


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        (1.5, U32, "nearest: 2"),
        (1 << 32, U32, "nearest: 4294967295"),
        (-(1 << 31) - 1, S32, "nearest: -2147483648"),
        (1 << 16, B16, "0 to 65535|nearest: 65535"),
        (2, PRED, "0 to 1; nearest: 1"),
        ("8", U32, "write an integer"),
        (None, U64, "write an integer"),
        (math.nan, U32, "write an integer"),
        (1e39, F32, "magnitude"),
        ("x", F32, "write a number"),
    ],
)
def test_numbers_a_type_cannot_hold(value: object, type_: RegisterType, message: str) -> None:
    """A fraction, a number out of range and what is no number are refused, with the nearest that fits."""
    with pytest.raises(TraceError, match=message) as caught:
        number(value, type_)
    assert caught.value.code == "TK-TRACE-005"


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (0, U32, "0"),
        ((1 << 32) - 1, U32, "4294967295"),
        (-1, U32, "-1"),
        (True, PRED, "1"),
        ((1 << 64) - 1, U64, str((1 << 64) - 1)),
    ],
)
def test_numbers_at_the_ends_fit(value: int, type_: RegisterType, text: str) -> None:
    """The smallest and largest numbers of a type are spelled in decimal."""
    assert literal(number(value, type_)) == text


def test_which_types_stand_for_which() -> None:
    """Plain bits take any type of their width; a shared address passes as a cluster address, never back."""
    assert all(accepts(t, t) for t in REGISTER_TYPES.values())
    assert accepts(B32, F32)
    assert accepts(U32, S32)
    assert accepts(DSMEM, SMEM)
    refused = [(SMEM, DSMEM), (SMEM, U32), (GMEM, U64), (F32, U32), (F32, B32), (U32, PRED), (U32, SMEM), (U64, U32)]
    assert not any(accepts(wanted, given) for wanted, given in refused)
    assert all(
        given.bits == wanted.bits
        for wanted in REGISTER_TYPES.values()
        for given in REGISTER_TYPES.values()
        if accepts(wanted, given)
    )
