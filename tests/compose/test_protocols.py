"""The protocols of `tilekit.compose`: whole, and met by what offers their members, in whatever way."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Protocol, get_args, get_type_hints

import pytest

import tilekit.compose as tk
from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import require_protocol


def is_protocol(found: object) -> bool:
    """Whether it is a protocol."""
    return isinstance(found, type) and getattr(found, "_is_protocol", False) and found is not Protocol


PUBLIC = [getattr(tk, name) for name in tk.__all__ if is_protocol(getattr(tk, name))]


def mentioned(hint: Any) -> Iterator[Any]:
    """A hint and everything in it."""
    yield hint
    for part in get_args(hint):
        for one in part if isinstance(part, list) else [part]:
            yield from mentioned(one)


@pytest.mark.parametrize("protocol", PUBLIC, ids=lambda one: one.__name__)
def test_what_a_protocol_speaks_of_is_public(protocol: type) -> None:
    """Every protocol that a member takes or returns is in `tilekit.compose`, and every member says what it is."""
    assert not get_type_hints(protocol), "an attribute that help() does not show: make it a property"
    for base in protocol.__mro__:
        for name, member in vars(base).items() if is_protocol(base) else ():
            function = member.fget if isinstance(member, property) else member
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            assert function.__doc__, f"{protocol.__name__}.{name}"
            for hint in get_type_hints(function).values():
                assert all(one in PUBLIC for one in mentioned(hint) if is_protocol(one)), (name, hint)


class Passing:
    """Passes everything on to another component."""

    def __init__(self, component: Any) -> None:
        self._component = component

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)


def test_a_component_that_passes_on_fits() -> None:
    """An object fits by its members, those that `__getattr__` finds too."""
    op = tk.Wgmma(*(tk.OperandTile(name, tk.BF16, 64, "k") for name in "ab"), warpgroups=1)
    require_protocol("Driver", "accumulators", Passing(tk.RegisterAccumulators(op)), tk.Accumulators)


def test_all_that_is_missing_is_said_at_once() -> None:
    """An object without any member of a protocol is told of all of them."""
    with pytest.raises(TraceError, match="TK-FIT-001") as caught:
        require_protocol("StandardLoader", "a", Passing(object()), tk.OperandLoader)
    said = "it has no tile, batched, prefetches, prefetch(w), bind(w, stages, multicast), which OperandLoader asks for"
    assert said in str(caught.value)


def test_a_class_is_no_component() -> None:
    """A class in the place of what is made of it is told so, and not of a method that lacks an argument."""
    with pytest.raises(
        TraceError, match=r"it is the class itself; nearest: one made of it, RegisterAccumulators\(...\)"
    ):
        require_protocol("Driver", "accumulators", tk.RegisterAccumulators, tk.Accumulators)
    w = tk.Writer("fit", target="sm_90a", threads=256)
    rows = w.parameter("rows", tk.registers.U32, lambda call: call.m)
    op = tk.Wgmma(*(tk.OperandTile(name, tk.BF16, 64, "k") for name in "ab"), warpgroups=1)
    with pytest.raises(TraceError, match=r"given the class Elementwise.*Elementwise\(w, ...\).*TK-EPI-001"):
        tk.DirectEpilogue(w, op.layout, tk.Elementwise, out=tk.BF16, rows=rows, columns=rows)  # type: ignore[arg-type]
