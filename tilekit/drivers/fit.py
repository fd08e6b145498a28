"""Whether a component offers what a driver's protocol asks for: checked when the driver is made, before it traces."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Protocol, Union, get_args, get_origin, get_type_hints

from tilekit.assembly.errors import TraceError

_MISSING = object()


def check_components(driver: Any) -> None:
    """Check every field of a driver, a dataclass, against its annotation: a protocol by its members, else the class.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` naming the driver's field, the component, the protocol and the member that does not fit.
    """
    hints = _hints(type(driver))  # type: ignore[arg-type]  # a class can be hashed
    for field in fields(driver):
        component = getattr(driver, field.name)
        reasons = []
        for expected in sorted(hints[field.name], key=lambda one: one is NoneType):
            reason = _misfit(component, expected)
            if reason is None:
                break
            reasons.append(reason)
        else:
            if reasons:
                raise TraceError(
                    f"{type(driver).__name__}({field.name}=) is given {_named(component)}: {reasons[0]}",
                    code="TK-FIT-001",
                )


@cache
def _hints(driver: type) -> dict[str, tuple[type, ...]]:
    """The classes that each field may be an instance of; none where that cannot be checked."""
    return {name: _classes(hint) for name, hint in get_type_hints(driver).items()}


def _classes(hint: Any) -> tuple[type, ...]:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    classes = tuple(get_origin(option) or option for option in options)
    return classes if all(isinstance(option, type) for option in classes) else ()


def _misfit(component: Any, expected: type) -> str | None:
    """Why a component does not fit; None where it does."""
    if not getattr(expected, "_is_protocol", False):
        return None if isinstance(component, expected) else f"it is no {expected.__name__}"
    for name, wanted in _members(expected):
        offered = inspect.getattr_static(component, name, _MISSING)
        if offered is _MISSING:
            return f"it has no {name}{_spelled(wanted)}, which {expected.__name__} asks for"
        if wanted is not None and inspect.isfunction(offered) and not _takes(offered, wanted):
            return f"its {name}{_spelled(offered)} is not called as {expected.__name__}.{name}{_spelled(wanted)} is"
        if wanted is not None and not callable(getattr(component, name)):
            return f"its {name} is no method, which {expected.__name__} asks for"
    return None


@cache
def _members(protocol: type) -> tuple[tuple[str, Callable[..., Any] | None], ...]:
    """The members that a protocol asks for, with the function where one is a method."""
    return tuple(_each_member(protocol))


def _each_member(protocol: type) -> Iterator[tuple[str, Callable[..., Any] | None]]:
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base is not Protocol:
            for name, member in vars(base).items():
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    yield name, member if inspect.isfunction(member) else None
            yield from ((name, None) for name in inspect.get_annotations(base) if not name.startswith("_"))


@cache
def _takes(offered: Callable[..., Any], wanted: Callable[..., Any]) -> bool:
    """Whether a method can be called as the protocol's is."""
    asked = inspect.signature(wanted).parameters.values()
    by_name = {p.name: None for p in asked if p.kind is p.KEYWORD_ONLY}
    positions = [None for p in asked if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    try:
        inspect.signature(offered).bind(*positions, **by_name)
    except TypeError:
        return False
    return True


def _spelled(method: Callable[..., Any] | None) -> str:
    if method is None:
        return ""
    parameters = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
    return f"({', '.join(f'{p.name}=' if p.kind is p.KEYWORD_ONLY else p.name for p in parameters)})"


def _named(component: Any) -> str:
    return f"{component!r}" if isinstance(component, (int, float, str, NoneType)) else f"a {type(component).__name__}"
