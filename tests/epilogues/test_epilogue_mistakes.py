"""What a Python epilogue cannot be is said with a code, file and line, before anything runs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.epilogue import row_sum, silu, uniform
from tilekit.errors import TilekitError

A, B = np.zeros((32, 64), np.float16), np.zeros((64, 48), np.float16)

WRONG_BODIES = {
    "if x > 0: pass": "only known when the kernel runs",
    "x and x": "only known when the kernel runs",
    "x[0]": "neighbours",
    "x[1:]": "neighbours",
    "list(x)": "neighbours",
    "len(x)": "neighbours",
    "float(x)": "a number",
    "import math; math.exp(x)": "a number",
    "x.T": "asks an element for .T",
    "x.sum()": "asks an element for .sum",
    "np.sin(x)": "numpy.sin",
    "np.sum(x)": "numpy.sum",
    "np.roll(x, 1)": "numpy.roll",
    "np.add.reduce(x)": "neighbours",
    "x + np.ones(3)": "operands",
    "x // 2": "//",
    "x & 1": "conditions",
    "x.astype('s8')": "astype",
    "x.astype(3)": "astype(3); legal: bf16",
    "x.astype('bf1')": "nearest: bf16",
    "np.where(x, 1, 2)": "a condition",
    "x[0] = 1": "neighbours",
    "f'{x:.2f}'": "a number",
    "x * 10**400": "numbers of f32",
    "tilekit.epilogue.row_sum(tilekit.epilogue.row_sum(x))": "row_sum, a total",
    "tilekit.epilogue.row_sum(x) + 1": "row_sum, a total",
    "x * tilekit.epilogue.column_max(x)": "column_max",
    "tilekit.epilogue.exp(tilekit.epilogue.row_sum(x))": "row_sum, a total",
    "np.maximum(x, tilekit.epilogue.row_max(x))": "row_max",
    "tilekit.epilogue.row_sum(x)[0]": "row_sum, a total",
    "tilekit.epilogue.gelu(x, approximate='erf')": "nearest: 'tanh'",
}


@pytest.mark.parametrize("body", WRONG_BODIES)
def test_what_no_element_has(body: str) -> None:
    """A neighbour, a branch on data, a number of Python's, an unknown function: found where it is written."""
    text = f"import numpy as np, tilekit\n@tilekit.epilogue\ndef wrong(x):\n    {body}\n    return x\n"
    with pytest.raises(TilekitError) as caught:
        exec(compile(text, "/somewhere/mine.py", "exec"), {})
    assert caught.value.code == "TK-EPI-003"
    assert str(caught.value).startswith("mine.py:4: ")
    assert WRONG_BODIES[body] in str(caught.value)


@pytest.mark.parametrize("returned", ["None", "3.0", "row_sum(x)", "(x, 1)", "()", "(x, row_sum)"])
def test_what_is_no_result(returned: str) -> None:
    """An element comes first, and nothing but elements and totals after it."""
    head = "import tilekit\nfrom tilekit.epilogue import row_sum\n@tilekit.epilogue\ndef wrong(x):\n"
    text = f"{head}    return {returned}\n"
    with pytest.raises(TilekitError, match=re.escape("mine.py:3: wrong returned")) as caught:
        exec(compile(text, "mine.py", "exec"), {})
    assert caught.value.code == "TK-EPI-002"


@tilekit.epilogue
def gated(x, gate):  # type: ignore[no-untyped-def]
    """One operand."""
    return silu(x) * gate


@tilekit.epilogue
def seeded(x, seed: int):  # type: ignore[no-untyped-def]
    """A whole number."""
    return x * (seed + 1)


@tilekit.epilogue
def dropped(x, seed: int):  # type: ignore[no-untyped-def]
    """A seed, of which the bits are asked alone."""
    return np.where(uniform(seed, x) < 0.5, x, 0.0)


@tilekit.epilogue
def summed(x):  # type: ignore[no-untyped-def]
    """Two results."""
    return x, row_sum(x)


WRONG_OPERANDS: dict[str, tuple[dict[str, Any], str]] = {
    "shape": ({"epilogue": gated(np.zeros((31, 48), np.float16))}, "does not broadcast"),
    "rows": ({"epilogue": gated(np.zeros(32, np.float16))}, re.escape("gate[:, None]")),
    "rank": ({"epilogue": gated(np.zeros((1, 1, 32, 48), np.float16))}, "dimensions|does not broadcast"),
    "type": ({"epilogue": gated(np.zeros((32, 48), np.int32))}, "nearest: f32"),
    "strides": ({"epilogue": gated(np.zeros((48, 32), np.float16).T)}, "nearest: a copy"),
    "word": ({"epilogue": gated("half")}, "a number"),
    "fraction": ({"epilogue": seeded(0.5)}, "whole number"),
    "too negative": ({"epilogue": seeded(-(2**31) - 1)}, "nearest legal: -2147483648"),
    "unsigned": (
        {"epilogue": seeded(2**31)},
        "legal: a whole number from -2147483648 to 2147483647.*nearest legal: 2147",
    ),
    "seed": ({"epilogue": dropped(2**32)}, "and is a seed; nearest legal: 4294967295"),
    "bias": ({"epilogue": gated(1.0), "bias": np.zeros(48, np.float16)}, "bias beside epilogue"),
    "activation": ({"epilogue": gated(1.0), "activation": "relu"}, "activation"),
    "uncalled": ({"epilogue": gated}, "called with its operands"),
    "function": ({"epilogue": silu}, "called with its operands"),
    "one": ({"epilogue": summed(), "out": (np.zeros((32, 48), np.float16),) * 3}, "a tuple of 2"),
    "tuple": ({"out": (np.zeros((32, 48), np.float16),)}, "one array"),
}


@pytest.mark.parametrize("case", WRONG_OPERANDS)
def test_operands_that_do_not_fit(case: str) -> None:
    """Shapes that do not broadcast, types, strides, and what stands beside an epilogue."""
    keywords, words = WRONG_OPERANDS[case]
    with pytest.raises(TilekitError, match=words) as caught:
        tilekit.matmul(A, B, **keywords)
    assert caught.value.code in ("TK-EPI-004", "TK-ARRAY-001")


def test_wrong_counts_of_operands() -> None:
    """Too few, too many, or of unknown names; and parameters that are none."""
    for call in (lambda: gated(), lambda: gated(1, 2), lambda: gated(gates=1)):
        with pytest.raises(TilekitError) as caught:
            call()
        assert caught.value.code == "TK-EPI-004"
    with pytest.raises(TilekitError, match="parameters with names"):
        tilekit.epilogue(lambda *x: x[0])
    with pytest.raises(TilekitError, match="first parameter"):
        tilekit.epilogue(lambda: 1.0)


def test_outputs_apart_from_what_is_read() -> None:
    """A matrix that threads read is not the output; one that the epilogue brings may be."""
    wide = np.zeros((32, 48), np.float32)
    with pytest.raises(TilekitError, match="out overlaps second in memory") as caught:
        tilekit.matmul(A, B, out=wide, epilogue=both(wide, wide))
    assert caught.value.code == "TK-ARRAY-009"


@tilekit.epilogue
def both(x, first, second):  # type: ignore[no-untyped-def]
    """Two matrices, of which threads read one."""
    return x + first + second


def test_outputs_by_the_callers_names() -> None:
    """One of several is `out[1]`, an operand is the function's parameter, and a tuple has as many as are stored."""
    wide, other = np.zeros((32, 48), np.float32), np.zeros((32, 48), np.float32)
    two = tilekit.epilogue(lambda x, gate: (x, x + gate))
    for out, words in (
        ((other, wide), r"out\[1\] overlaps gate in memory.*TK-ARRAY-009"),
        ((other, other), r"out\[1\] overlaps out\[0\] in memory"),
        ((np.zeros((32, 47), np.float32), other), r"out\[0\] is f32 of shape \(32, 47\)"),
        ((other,), "out is a tuple of 1, and.*stores 2; nearest: a tuple of 2.*TK-EPI-004"),
    ):
        with pytest.raises(TilekitError, match=words):
            tilekit.matmul(A, B, out=out, epilogue=two(wide))


def test_kernels_are_found_again() -> None:
    """Equal functions of equal operands' places are one kernel, and a bound kernel refuses another epilogue."""

    def made() -> Any:
        @tilekit.epilogue
        def scaled(x, by):  # type: ignore[no-untyped-def]
            return x * by

        return scaled(2.0)

    kernels = [tilekit.kernel_for(A, B, epilogue=made()) for _ in range(2)]
    assert kernels[0] is kernels[1]
    with pytest.raises(TilekitError) as caught:
        kernels[0].bind(A, B, epilogue=gated(1.0))
    assert caught.value.code == "TK-MM-016"


def test_constants_are_keyword_only() -> None:
    """A keyword-only parameter is part of the kernel: its value may choose what is computed."""

    @tilekit.epilogue
    def power(x, *, by):  # type: ignore[no-untyped-def]
        return x**by if by > 1 else x

    ones = np.full((8, 16), 1, np.float16), np.full((16, 8), 1, np.float16)
    assert tilekit.matmul(*ones, epilogue=power(by=2))[0, 0] == 256
    assert tilekit.matmul(*ones, epilogue=power(by=1))[0, 0] == 16


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("seed * 4294967296", "the whole number int 4294967296; legal: -2147483648 to 2147483647"),
        ("seed * 0x9E3779B1", "to 4294967295 beside .astype('u32') of a whole number"),
        ("seed.astype('u32') + 4294967296", "legal: 0 to 4294967295"),
        ("seed.astype('u32') * -1", "legal: 0 to 4294967295"),
        ("seed < seed.astype('u32')", "nearest: .astype('u32') of both"),
        ("seed << 40", "shifts by int 40 bits; legal: 0 to 31"),
        ("seed >> -1", "shifts by int -1 bits"),
    ],
)
def test_whole_numbers_of_more_than_32_bits(body: str, words: str) -> None:
    """They would be cut off in silence."""
    text = f"import tilekit\n@tilekit.epilogue\ndef wrong(x, seed: int):\n    y = {body}\n    return x\n"
    with pytest.raises(TilekitError) as caught:
        exec(compile(text, "/somewhere/mine.py", "exec"), {})
    assert caught.value.code == "TK-EPI-003"
    assert str(caught.value).startswith("mine.py:4: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_type_that_the_chip_does_not_convert_to(target: str) -> None:
    """A further output of 8 bits is refused by its name, not by an instruction's, where the chip has none for it."""
    a = np.ones((64, 64), np.float16)
    narrow = tilekit.epilogue(lambda x: (x, x.astype("e4m3")))
    with pytest.raises(TilekitError, match=f"output1 is e4m3, and {target} has no conversion to it") as caught:
        tilekit.matmul(a, a, epilogue=narrow(), target=target)
    assert caught.value.code == "TK-EPI-004"


SEEDED = "import numpy as np, tilekit\nfrom tilekit.epilogue import row, row_sum, uniform\n@tilekit.epilogue\n"
WRONG_CALLS = {
    "row_sum(x, axis=1)": "row_sum is called with other arguments: got an unexpected keyword argument 'axis'; legal: "
    "row_sum(x)",
    "uniform(x)": "legal: uniform(seed, like)",
    "row()": "legal: row(like)",
    "row(0)": "row(int 0); legal: an element, or an array; nearest: row(x)",
    "1.5 << row(x)": "<< of f32 and s32; legal: two whole numbers",
    "uniform(keep, x)": "the seed of uniform(seed, x) is an f32 of each element",
    "uniform(x, seed)": "a parameter that is annotated as one (seed: int)",
    "uniform(0.5, x)": "the seed of uniform(seed, x) is float 0.5; legal: a whole number from -2147483648",
    "uniform(2**32, x)": "legal: a whole number from -2147483648 to 4294967295",
    "np.where(x > 0)": "calls numpy.where with 1 argument, which asks for places among neighbours; legal: "
    "where(condition, x, y)",
    "np.exp(x, where=x > 0)": "legal: numpy.exp(x), and where(condition, x, y) for a choice",
    "np.add(x, x, dtype='f2')": "legal: numpy.add(x, y), and .astype(dtype) for a type",
    "np.clip(x, None, None)": "legal: one of them may be None",
    "x.astype('bfloat')": "nearest: bf16",
    "x.astype('f64')": "nearest: f32",
    "row(x).astype('u8')": "legal: bf16, f16, f32, e4m3, e5m2, s32, u32; nearest",
}


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_calls_with_what_a_function_does_not_take(call: str) -> None:
    """Too few arguments, unknown ones, a seed that is none: with file and line, and the form that is legal."""
    text = f"{SEEDED}def wrong(x, seed: int, keep):\n    y = {call}\n    return x\n"
    with pytest.raises(TilekitError) as caught:
        exec(compile(text, "/somewhere/mine.py", "exec"), {})
    assert caught.value.code == "TK-EPI-003"
    assert str(caught.value).startswith("mine.py:5: ")
    assert WRONG_CALLS[call] in str(caught.value)


@pytest.mark.parametrize("given", [3, None, np.tanh, "tanh", int, summed])
def test_what_is_no_function_of_python_s(given: Any) -> None:
    """`tilekit.epilogue` marks functions that can be run with symbols; of NumPy's own it says how to write one."""
    with pytest.raises(TilekitError, match="legal: a function of Python's") as caught:
        tilekit.epilogue(given)
    assert caught.value.code == "TK-EPI-003"
    assert ("lambda x: np.tanh(x)" in str(caught.value)) == (given is np.tanh)


def test_a_reference_s_operands_are_checked() -> None:
    """What a kernel would refuse is refused without one, too."""
    wrong = {
        "does not broadcast to the product": lambda: gated.reference(np.ones((4, 5)), np.ones(64)),
        "does not broadcast to": lambda: gated.reference(np.ones((4, 1)), np.ones((4, 5))),
        "a whole number": lambda: seeded.reference(np.ones((4, 5)), 0.5),
        "nearest legal: 2147483647": lambda: seeded.reference(np.ones((4, 5)), 2**31),
    }
    for words, call in wrong.items():
        with pytest.raises(TilekitError, match=words) as caught:
            call()
        assert caught.value.code == "TK-EPI-004"


def test_shapes_that_a_convolution_does_not_take() -> None:
    """Values of filters or pixels, arrays like the result: what else broadcasts in NumPy is refused for what it is."""
    x, w = np.ones((2, 8, 8, 16), np.float16), np.ones((24, 3, 3, 16), np.float16)
    legal = r"with conv2d legal are .* \(24,\) or \(1, 1, 1, 24\), one a pixel, \(2, 6, 6, 1\)"
    for shape in ((2, 1, 1, 24), (1, 6, 6, 1), (2, 6, 6), (6, 24), (2, 1, 1, 1), (1, 24, 1, 1)):
        with pytest.raises(TilekitError, match=legal) as caught:
            tilekit.conv2d(x, w, epilogue=gated(np.ones(shape, np.float16)))
        assert caught.value.code == "TK-EPI-004"
