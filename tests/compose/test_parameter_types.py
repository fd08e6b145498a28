"""Kernel parameters of every type: launched on both emulators, or refused where they are declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilekit.compose as tk
from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import PARAMETER_TYPES, RegisterType
from tilekit.errors import ArgumentError
from tilekit.kernels.launch import _KINDS

R = tk.registers


@dataclass(frozen=True)
class OneCta:
    """One CTA, whatever the call."""

    def schedule(self, call: tk.Call) -> tk.Schedule:
        return tk.Schedule(clusters=1, tiles=1)


def words_of(w: tk.Writer, value: tk.Value) -> list[tk.Value]:
    """A value's words, those of its half, and whether it is less than 0."""
    if value.type in (R.U64, R.GMEM):
        value = value.retyped(R.U64)
        return [w.isa.convert.low_word(wide=each) for each in (value, value >> 32, value >> 1, value >> 33)]
    if value.type is R.B32:
        return [value]
    if value.type is R.F32:
        return [value, value * 0.5, w.select(value < 0.0, 1, 0)]
    return [value, value >> 1, w.select(value < 0, 1, 0)]


def stored(type_: RegisterType, value: Any, target: str) -> np.ndarray:
    """What a kernel that is given `value` has."""

    @tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.S32, "n"), target=target, threads=64)
    def kernel(w: tk.Writer) -> OneCta:
        before = w.parameter("before", R.B16, lambda call: 0xFFFF)  # at another offset than a word's
        given = w.parameter("given", type_, lambda call: call.address("x") if value is None else value)
        y = w.parameter("y", R.GMEM, lambda call: call.address("y"))
        with w.when(w.thread() == 0):
            if type_ is R.B16:
                for place, bits in enumerate((given, before)):
                    w.isa.memory.store_global_b16(
                        address=(y + 4 * place).retyped(R.GMEM), value=bits, valid=w.thread() == 0
                    )
                return OneCta()
            words = words_of(w, given)
            if type_ is R.GMEM:
                words = [w.isa.memory.load_global_scalar(address=given)]
            for place, word in enumerate(words):
                address = (y + 4 * place).retyped(R.GMEM)
                if word.type is R.F32:
                    w.isa.memory.store_global_f32(address=address, value=word, valid=w.thread() == 0)
                else:
                    w.isa.memory.store_global_b32(address=address, value=word)
        return OneCta()

    y = np.zeros(4, np.int32)
    kernel(np.full(4, 1.5, np.float32), y=y)
    return y.view(np.uint32)


CASES = (
    (R.U32, 0xFFFF_FFFE, [0xFFFF_FFFE, 0x7FFF_FFFF, 0]),
    (R.S32, -7, [2**32 - 7, 2**32 - 4, 1]),
    (R.B32, 0x8000_0001, [0x8000_0001]),
    (R.U64, 0x8765_4321_8000_0002, [0x8000_0002, 0x8765_4321, 0xC000_0001, 0x43B2_A190]),
    (R.F32, -1.5, [0xBFC0_0000, 0xBF40_0000, 1]),
    (R.GMEM, None, [0x3FC0_0000]),
    (R.B16, 0x8001, [0x8001, 0xFFFF]),
)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx950"])
@pytest.mark.parametrize(("type_", "value", "expected"), CASES, ids=[str(case[0]) for case in CASES])
def test_a_parameter_arrives(target: str, type_: RegisterType, value: Any, expected: list[int]) -> None:
    """Its bits, and arithmetic and order of its type."""
    assert stored(type_, value, target).tolist() == [*expected, *[0] * (4 - len(expected))]


def test_every_legal_type_launches() -> None:
    """The cases above are all that `Writer.parameter` takes, and each has its kind of a launch's parameters."""
    assert [case[0] for case in CASES] == [R.U32, R.S32, R.B32, R.U64, R.F32, R.GMEM, R.B16]
    assert set(PARAMETER_TYPES) == set(_KINDS) == {case[0] for case in CASES}


@pytest.mark.parametrize(
    ("type_", "value", "nearest"),
    [
        (R.U32, -1, "0"),
        (R.S32, 2**31, str(2**31 - 1)),
        (R.B32, 2**32, str(2**32 - 1)),
        (R.U64, 2**64, str(2**64 - 1)),
        (R.B16, 0x10000, "65535"),
    ],
    ids=str,
)
def test_a_value_out_of_bounds(type_: RegisterType, value: int, nearest: str) -> None:
    """Names the parameter, the value and the nearest."""
    with pytest.raises(ArgumentError, match=rf"kernel parameter 'given'.*{value}.*nearest legal: {nearest}.*TK-PAR"):
        stored(type_, value, "sm_90a")


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        (R.PRED, "registers.U32"),
        (R.SMEM, "registers.U32"),
        (R.DSMEM, "registers.U32"),
        (R.TMEM, "registers.U32"),
        (R.DESC, "registers.U64"),
        (R.MAP, "w.tensor_map('k', lambda call: ...)"),
        (tk.S32, "registers.S32"),
        (tk.F32, "registers.F32"),
        (tk.BF16, "registers.F32"),
        ("f64", "registers.F32"),
        ("u64", "registers.U64"),
        (np.zeros(3), "registers.U32"),
        (None, "registers.U32"),
    ],
    ids=str,
)
def test_a_type_that_none_has(given: Any, nearest: str) -> None:
    """Is refused where it is declared, with the legal ones and the nearest."""
    w = tk.Writer("k", target="sm_90a", threads=64)
    with pytest.raises(TraceError) as caught:
        w.parameter("k", given, lambda call: call.k)
    message = str(caught.value)
    assert "w.parameter('k')(type_=" in message
    assert "legal: of tilekit.compose.registers: U32, S32, B32, U64, F32, GMEM, B16" in message
    assert f"nearest: {nearest!r}" in message
    assert caught.value.code == "TK-PART-001"
