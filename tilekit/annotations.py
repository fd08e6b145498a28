"""What an argument may be is said once, by its annotation; here it is checked, and brought into the plain type.

A dataclass calls `check_fields` from its ``__post_init__``, a call that is not made often wears `checked`, and one that
is calls `checked_values` where it has not seen its arguments before. An annotation says the type. Which values of it
are legal is for rules that know more than one argument, and those have codes of their own: of a ``Literal`` the type is
checked here, and the message lists its values.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, ParamSpec, TypeVar

import numpy as np

from tilekit.dtypes import DType, as_dtype
from tilekit.errors import ArgumentError

__all__ = ["Accepts", "check_fields", "checked", "checked_values", "number"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Accepts:
    """Beside a type in ``Annotated``: what is legal, in words, and the code of the error for a value of another type."""

    words: str
    code: str | None = None


class _Misfit(Exception):  # noqa: N818  no error yet: another member of a union may fit
    """The value is not of the kind."""


class _Kind(ABC):
    """What a value may be."""

    plain: frozenset[type] = frozenset()
    """Types whose values need no further look."""

    words: str
    code: str | None = None

    @abstractmethod
    def read(self, value: Any, name: str) -> Any:
        """The value in its plain type; raises `_Misfit`."""

    def nearest(self, value: Any) -> Any:
        """A legal value that the given one may have meant; None where there is no such."""
        return None


class _Anything(_Kind):
    words = "anything"

    def read(self, value: Any, name: str) -> Any:
        return value


class _Nothing(_Kind):
    plain = frozenset({type(None)})
    words = "None"

    def read(self, value: Any, name: str) -> Any:
        raise _Misfit


class _Truth(_Kind):
    plain = frozenset({bool})
    words = "True or False"

    def read(self, value: Any, name: str) -> bool:
        if not isinstance(value, np.bool_):
            raise _Misfit
        return bool(value)

    def nearest(self, value: Any) -> bool | None:
        return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


class _Whole(_Kind):
    words = "an integer"
    LIMIT: ClassVar = 1 << 63
    """No extent, count or seed has more than 64 bits, and texts of larger numbers cannot always be made."""

    def read(self, value: Any, name: str) -> int:
        if type(value) is not int:
            if isinstance(value, bool | np.bool_ | np.ndarray):
                raise _Misfit
            try:
                value = operator.index(value)
            except Exception:
                raise _Misfit from None
        if not -self.LIMIT <= value < self.LIMIT:
            raise _Misfit
        return int(value)

    def nearest(self, value: Any) -> int | None:
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, int):
            return -self.LIMIT if value < 0 else self.LIMIT - 1
        if isinstance(value, float) and abs(value) < self.LIMIT:
            return round(value)
        return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 19 else None


class _Number(_Kind):
    """A real number, of Python or NumPy, that a float can hold."""

    plain = frozenset({float})
    words = "a number"

    def read(self, value: Any, name: str = "") -> float:
        """The value as a float."""
        if not isinstance(value, int | float | np.floating | np.integer) or isinstance(value, bool):
            raise _Misfit
        try:
            return float(value)
        except OverflowError:
            raise _Misfit from None

    def nearest(self, value: Any) -> float | None:
        """What a text or a truth may have meant."""
        try:
            return float(value) if isinstance(value, str | bool) else None
        except ValueError:
            return None


class _Text(_Kind):
    plain = frozenset({str})
    words = "a string"

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str):
            raise _Misfit
        return str.__str__(value)  # of a string that is an enum's member too


class _Word(_Text):
    """One of a few strings, of which rules say which fits."""

    def __init__(self, choices: tuple[Any, ...]) -> None:
        *most, last = map(repr, choices)
        self.words = f"{', '.join(most)} or {last}" if most else last


class _ElementType(_Kind):
    plain = frozenset({DType})
    words = "an element type"

    def read(self, value: Any, name: str) -> DType:
        return as_dtype(value, name)


class _Instance(_Kind):
    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.words = f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"

    def read(self, value: Any, name: str) -> Any:
        if not issubclass(type(value), self._kind):
            raise _Misfit
        return value


class _Call(_Kind):
    words = "something to call"

    def read(self, value: Any, name: str) -> Any:
        if not callable(value):
            raise _Misfit
        return value


class _Tuple(_Kind):
    """So many values, in a tuple or a list."""

    def __init__(self, members: tuple[_Kind, ...]) -> None:
        self._members = members
        self.words = f"({', '.join(member.words for member in members)})"

    def read(self, value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) != len(self._members):
            raise _Misfit
        return tuple([member.read(part, name) for member, part in zip(self._members, value, strict=True)])

    def nearest(self, value: Any) -> tuple[Any, ...] | None:
        """A number for all of them; of too few the rest is 1, of too many the first count."""
        count = len(self._members)
        given = list(value) if isinstance(value, tuple | list) else [value] * count
        found = [_meant(member, part) for member, part in zip(self._members, [*given, *[1] * count], strict=False)]
        return None if None in found else tuple(found)


class _Union(_Kind):
    def __init__(self, members: tuple[_Kind, ...]) -> None:
        self._members = sorted(members, key=lambda member: isinstance(member, _Nothing))
        self.plain = frozenset().union(*(member.plain for member in members))
        self.words = " or ".join(member.words for member in self._members)
        self.code = next((member.code for member in members if member.code), None)

    def read(self, value: Any, name: str) -> Any:
        for member in self._members:
            try:
                return value if type(value) in member.plain else member.read(value, name)
            except _Misfit:
                pass
        raise _Misfit

    def nearest(self, value: Any) -> Any:
        return next((guess for member in self._members if (guess := member.nearest(value)) is not None), None)


def _meant(kind: _Kind, value: Any) -> Any:
    try:
        return value if type(value) in kind.plain else kind.read(value, "")
    except _Misfit:
        return kind.nearest(value)


_BASIC: Final[dict[Any, Callable[[], _Kind]]] = {
    Any: _Anything,
    object: _Anything,
    inspect.Parameter.empty: _Anything,
    type(None): _Nothing,
    bool: _Truth,
    int: _Whole,
    float: _Number,
    str: _Text,
    DType: _ElementType,
}


def _kind(annotation: Any) -> _Kind:
    """What an annotation says."""
    if annotation in _BASIC:
        return _BASIC[annotation]()
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        kind = _kind(arguments[0])
        said = next(extra for extra in arguments[1:] if isinstance(extra, Accepts))
        kind.words, kind.code = said.words, said.code
        return kind
    if origin in (typing.Union, types.UnionType):
        return _Union(tuple(map(_kind, arguments)))
    if origin is Literal:
        return _Word(arguments)
    if origin is tuple:
        return _Tuple(tuple(map(_kind, arguments)))
    if origin is not None and issubclass(origin, Callable):  # type: ignore[arg-type]  # collections.abc's class
        return _Call()
    return _Instance(annotation)


@functools.cache
def _kinds(what: Any) -> dict[str, _Kind]:
    """The kinds of a dataclass's fields, or of a function's parameters."""
    hints = typing.get_type_hints(what, include_extras=True)
    names = [field.name for field in fields(what)] if isinstance(what, type) else [*inspect.signature(what).parameters]
    return {name: kind for name in names if not isinstance(kind := _kind(hints.get(name, Any)), _Anything)}


def _plain(kind: _Kind, value: Any, name: str) -> Any:
    try:
        return kind.read(value, name)
    except _Misfit:
        raise ArgumentError.of(
            name, value, legal=kind.words, nearest=kind.nearest(value), code=kind.code
        ) from None


def check_fields(instance: Any) -> None:
    """Check a dataclass's fields against their annotations; a list becomes a tuple, and NumPy's numbers Python's.

    Raises
    ------
    ArgumentError
        ``TK-ARG-001``, or the code that the annotation names, for a value of another type.
    """
    for name, kind in _kinds(type(instance)).items():
        value = getattr(instance, name)
        if type(value) not in kind.plain:
            plain = _plain(kind, value, name)
            if plain is not value:
                object.__setattr__(instance, name, plain)


def checked_values(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `function` in their plain types, after checking them against its annotations.

    Raises
    ------
    ArgumentError
        As `check_fields`.
    """
    kinds = _kinds(function)
    return {
        name: value if name not in kinds or type(value) in kinds[name].plain else _plain(kinds[name], value, name)
        for name, value in given.items()
    }


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Check a call's arguments against its annotations before it is made."""
    positional = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]

    @functools.wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _R:
        first = checked_values(function, dict(zip(positional, arguments, strict=False)))
        return function(*first.values(), *arguments[len(first) :], **checked_values(function, options))  # type: ignore[arg-type]

    return call


def number(value: Any, name: str, *, words: str = _Number.words, code: str | None = None) -> float:
    """Return a real number as a float.

    Raises
    ------
    ArgumentError
        With `code`, for anything else; `words` say what is legal.
    """
    kind = _Number()
    kind.words, kind.code = words, code
    return value if type(value) is float else _plain(kind, value, name)  # type: ignore[no-any-return]
