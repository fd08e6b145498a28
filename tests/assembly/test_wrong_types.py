"""Register types, counts and lists of registers that a writer cannot take: argument, what is legal, the nearest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.legal import with_article
from tilekit.assembly.types import B32, F32, PRED, U32
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16
from tilekit.errors import TilekitError


def writer(target: str = "sm_90a") -> Any:
    """A writer whose methods take anything, as those do that nobody type-checks."""
    return Writer("mistyped", target=target, threads=64)


TYPES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "new": (lambda w: w.new("f32", "x", uniform=True), "w.new(type_='f32')"),
    "variable": (lambda w: w.variable("f32", 0.0, "s"), "w.variable(type_='f32')"),
    "constant": (lambda w: w.constant("f32", 1), "w.constant(type_='f32')"),
    "tile": (lambda w: w.tile("f32", 4, "p"), "w.tile(type_='f32')"),
    "retyped": (lambda w: w.lane().retyped("f32"), "lane.retyped(type_='f32')"),
    "select": (lambda w: w.select(w.lane() < 3, 1, 0, "f32"), "w.select(type_='f32')"),
    "select of values": (lambda w: w.select(w.lane() < 3, w.lane(), 0, "f32"), "w.select(type_='f32')"),
    "operate": (lambda w: w.operate("add", "f32", F32, 1.0, 2.0), "w.operate(type_='f32')"),
    "operate's result": (lambda w: w.operate("add", F32, "f32", 1.0, 2.0), "w.operate(result_type='f32')"),
    "an element type": (lambda w: w.variable(BF16, 0.0, "s"), "w.variable(type_=bf16)"),
}


@pytest.mark.parametrize("name", TYPES)
def test_what_is_no_register_type(name: str) -> None:
    """A word or an element's type is refused where it is given, with the register types and the nearest."""
    make, said = TYPES[name]
    with pytest.raises(TraceError) as caught:
        make(writer())
    assert caught.value.code == "TK-PART-001"
    message = caught.value.message
    assert message.startswith(f"{said}; legal: of tilekit.compose.registers: PRED, B16, U32, "), message
    assert message.endswith("; nearest: 'registers.F32'"), message


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda w: w.tile(B32, 2.5, "q"), ("w.tile(count=2.5)", "from 1 on", "nearest: 3")),
        (lambda w: w.tile(B32, -1, "q"), ("w.tile(count=-1)", "nearest: 1")),
        (lambda w: w.tile(B32, 0, "q"), ("w.tile(count=0)", "nearest: 1")),
        (lambda w: w.operate("divide", F32, F32, 1.0, 2.0), ("w.operate(name='divide')", "'add', ", "nearest: 'div'")),
        (lambda w: w.operate([], F32, F32, 1.0), ("w.operate(name=[])", "nearest: 'move'")),
        (lambda w: w.operate("add", F32, F32, 1.0), ("w.operate(*operands=(1.0,))", "legal: 2 for 'add': a + b")),
        (lambda w: w.operate("not", U32, U32, 1, 2), ("legal: 1 for 'not'",)),
        (lambda w: w.minimum(1, w.lane()), ("w.minimum(a=1)", "legal: a device value")),
    ],
)
def test_what_is_no_count_or_operation(make: Callable[[Any], Any], parts: tuple[str, ...]) -> None:
    """Refused where it is given: not as a bare exception, nor when the text is made."""
    with pytest.raises(TraceError) as caught:
        make(writer())
    assert caught.value.code == "TK-PART-001"
    assert all(part in caught.value.message for part in parts), caught.value.message


def text_of(target: str, values: Callable[[Any], Any]) -> str:
    """A kernel that stores four words."""
    w = writer(target)
    place = w.shared.allocate("s", size=64)
    w.isa.memory.store_shared_b32x4(address=w.shared_base + place.offset, values=values(w))
    return "\n".join(line.partition("//@")[0].rstrip() for line in w.text().splitlines())


def words(w: Any) -> list[Any]:
    """Four registers that were not made together."""
    return [w.constant(B32, value) for value in range(4)]


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_a_list_of_registers_is_a_tile_of_them(target: str) -> None:
    """A fragment's operand of several registers takes them in a list or a tuple: the text is that of a tile."""
    from tilekit.assembly.values import RegisterTile

    made = text_of(target, lambda w: RegisterTile(words(w)))
    assert text_of(target, words) == made
    assert text_of(target, lambda w: tuple(words(w))) == made


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (lambda w: words(w)[:3], "is b32[4]; given [<b32 c>, <b32 c1>, <b32 c2>]; legal: a list of registers"),
        (lambda w: w.constant(B32, 1), "given <b32 c>; legal: a list of registers, or a tile of them, such as w.tile("),
        (lambda w: "four", "given 'four'; legal: a list of registers, or a tile"),
        (lambda w: w.tile(B32, 2, "t"), "registers.B32, 4, 'values')"),
        (lambda w: [*words(w)[:3], 4], "given a list holding 4; nearest: w.constant(registers.B32, ...)"),
        (lambda w: [*words(w)[:3], None], "given a list holding None"),
        (lambda w: (*words(w)[:3], w.constant(PRED, False)), "given a tuple holding <pred c"),
        (lambda w: np.zeros(4), "legal: a list of registers"),
    ],
)
def test_a_list_of_something_else(values: Callable[[Any], Any], said: str) -> None:
    """Too few registers, one alone, or a list of what is none: the operand, what was given, and what to write."""
    with pytest.raises(FragmentError) as caught:
        text_of("sm_90a", values)
    assert caught.value.code == "TK-FRAG-002"
    assert said in caught.value.message


def test_a_list_that_holds_what_a_branch_made() -> None:
    """A register of a list has to be there, as one of a tile has."""

    def left(w: Any) -> list[Any]:
        with w.when(w.lane() < 3):
            inside = w.constant(B32, 1)
        return [*words(w)[:3], inside]

    with pytest.raises(TilekitError, match="TK-TRACE-021"):
        text_of("sm_90a", left)


def test_articles() -> None:
    """By how the word is spoken."""
    spoken = {"an": ("object", "AtSig", "Epilogue", "f32", "s32", "smem"), "a": ("u32", "b16", "Mine", "pred", "gmem")}
    for article, names in spoken.items():
        for name in names:
            assert with_article(name) == f"{article} {name}"
    with pytest.raises(TraceError, match=r"2\.5 given where a u32 is needed"):
        writer().constant(U32, 2.5)
    with pytest.raises(TraceError, match="<u32 lane> given where an f32 is needed"):
        (w := writer()).constant(F32, w.lane())
