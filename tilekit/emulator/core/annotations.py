"""What an argument may be is said once, by its annotation; here it is checked, and brought into the plain type.

An annotation says the type. Which values of it are legal is for rules that know more than one argument: of a
``Literal`` the type is checked here, and the message lists its values.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar

import numpy as np

__all__ = ["Accepts", "Annotations", "Kind", "Misfit", "Number"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Accepts:
    """Beside a type in ``Annotated``: what is legal, in words, and the code of the error for what is not."""

    words: str
    code: str | None = None


_LIMIT: Final = 1 << 63
"""No extent, count or seed has more than 64 bits, and texts of larger numbers cannot always be made."""


class _LeftOut:
    """What `help` shows as the default of a keyword that a TypedDict has, which says no value for it."""

    def __repr__(self) -> str:
        return "..."


_LEFT_OUT: Final = _LeftOut()


class Misfit(Exception):  # noqa: N818  no error yet: another member of a union may fit
    """The value is not of the kind."""


class Kind(ABC):
    """What a value may be."""

    plain: frozenset[type] = frozenset()
    """Types whose values need no further look."""

    whole = False
    """Whether integers are legal, as far as they have no more than 64 bits: so is nearly every one that is given."""

    words: str
    code: str | None = None

    @abstractmethod
    def read(self, value: Any, name: str) -> Any:
        """The value in its plain type; raises `Misfit`."""

    def nearest(self, value: Any) -> Any:
        """A legal value that the given one may have meant; None where there is no such."""
        return None


class _Anything(Kind):
    words = "anything"

    def read(self, value: Any, name: str) -> Any:
        return value


class _Nothing(Kind):
    plain = frozenset({type(None)})
    words = "None"

    def read(self, value: Any, name: str) -> Any:
        raise Misfit


class _Truth(Kind):
    plain = frozenset({bool})
    words = "True or False"

    def read(self, value: Any, name: str) -> bool:
        if not isinstance(value, np.bool_):
            raise Misfit
        return bool(value)

    def nearest(self, value: Any) -> bool | None:
        return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


class _Whole(Kind):
    whole = True
    words = "an integer"

    def read(self, value: Any, name: str) -> int:
        if type(value) is not int:
            if isinstance(value, bool | np.bool_ | np.ndarray):
                raise Misfit
            try:
                value = operator.index(value)
            except Exception:
                raise Misfit from None
        if not -_LIMIT <= value < _LIMIT:
            raise Misfit
        return int(value)

    def nearest(self, value: Any) -> int | None:
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, int):
            return -_LIMIT if value < 0 else _LIMIT - 1
        if isinstance(value, float) and abs(value) < _LIMIT:
            return round(value)
        return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 19 else None


class Number(Kind):
    """A real number, of Python or NumPy, that a float can hold."""

    plain = frozenset({float})
    words = "a number"

    def read(self, value: Any, name: str = "") -> float:
        """The value as a float."""
        if not isinstance(value, int | float | np.floating | np.integer) or isinstance(value, bool):
            raise Misfit
        try:
            return float(value)
        except OverflowError:
            raise Misfit from None

    def nearest(self, value: Any) -> float | None:
        """What a text or a truth may have meant."""
        try:
            return float(value) if isinstance(value, str | bool) else None
        except ValueError:
            return None


class _Text(Kind):
    plain = frozenset({str})
    words = "a string"

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str):
            raise Misfit
        return str.__str__(value)  # of a string that is an enum's member too


class _Word(_Text):
    """One of a few strings, of which rules say which fits."""

    def __init__(self, choices: tuple[Any, ...]) -> None:
        *most, last = map(repr, choices)
        self.words = f"{', '.join(most)} or {last}" if most else last


class _Bytes(Kind):
    plain = frozenset({bytes})
    words = "bytes"

    def read(self, value: Any, name: str) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise Misfit
        return bytes(value)


class _Sequence(Kind):
    """Any number of values, in a list, a tuple or an array."""

    def __init__(self, member: Kind, plain: type = tuple) -> None:
        self._member = member
        self._plain = plain
        self.words = f"a list of {'values' if isinstance(member, _Anything) else member.words}"

    def read(self, value: Any, name: str) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if isinstance(value, str | bytes | bytearray) or not isinstance(value, Sequence):
            raise Misfit
        if isinstance(self._member, _Anything):
            return value
        return self._plain([_read(self._member, part, name) for part in value])


class _Mapping(Kind):
    """Values by their names."""

    def __init__(self, member: Kind) -> None:
        self._member = member
        self.words = f"{member.words} by name"

    def read(self, value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise Misfit
        return {key: _read(self._member, part, name) for key, part in value.items()}


class _Instance(Kind):
    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.words = f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"

    def read(self, value: Any, name: str) -> Any:
        if not issubclass(type(value), self._kind):
            raise Misfit
        return value


class _Call(Kind):
    words = "something to call"

    def read(self, value: Any, name: str) -> Any:
        if not callable(value):
            raise Misfit
        return value


class _Tuple(Kind):
    """So many values, in a tuple or a list."""

    def __init__(self, members: tuple[Kind, ...]) -> None:
        self._members = members
        self.words = f"({', '.join(member.words for member in members)})"

    def read(self, value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) != len(self._members):
            raise Misfit
        if type(value) is tuple:
            for member, part in zip(self._members, value, strict=True):
                if not _fits(member, part):
                    break
            else:
                return value
        return tuple([_read(member, part, name) for member, part in zip(self._members, value, strict=True)])

    def nearest(self, value: Any) -> tuple[Any, ...] | None:
        """A number for all of them; of too few the rest is 1, of too many the first count."""
        count = len(self._members)
        given = list(value) if isinstance(value, tuple | list) else [value] * count
        found = [_meant(member, part) for member, part in zip(self._members, [*given, *[1] * count], strict=False)]
        return None if None in found else tuple(found)


class _Union(Kind):
    def __init__(self, members: tuple[Kind, ...]) -> None:
        self._members = sorted(members, key=lambda member: isinstance(member, _Nothing))
        self.plain = frozenset().union(*(member.plain for member in members))
        self.whole = any(member.whole for member in members)
        self.words = " or ".join(member.words for member in self._members)
        self.code = next((member.code for member in members if member.code), None)

    def read(self, value: Any, name: str) -> Any:
        for member in self._members:
            try:
                return _read(member, value, name)
            except Misfit:
                pass
        raise Misfit

    def nearest(self, value: Any) -> Any:
        return next((guess for member in self._members if (guess := member.nearest(value)) is not None), None)


def _fits(kind: Kind, value: Any) -> bool:
    """Whether a value is in its plain type already: quick, since configs are made by the thousand."""
    its = type(value)
    return its in kind.plain or (its is int and kind.whole and -_LIMIT <= value < _LIMIT)


def _read(kind: Kind, value: Any, name: str) -> Any:
    return value if _fits(kind, value) else kind.read(value, name)


def _meant(kind: Kind, value: Any) -> Any:
    try:
        return _read(kind, value, "")
    except Misfit:
        return kind.nearest(value)


_BASIC: Final[dict[Any, Callable[[], Kind]]] = {
    Any: _Anything,
    object: _Anything,
    type(None): _Nothing,
    bool: _Truth,
    int: _Whole,
    float: Number,
    str: _Text,
    bytes: _Bytes,
}


def _hints(what: Any) -> dict[str, Any]:
    """Annotations of a dataclass's fields, of a TypedDict's keys, or of a function's parameters: not of its result."""
    if typing.is_typeddict(what):
        return typing.get_type_hints(what, include_extras=True)
    if isinstance(what, type):
        hints = typing.get_type_hints(what, include_extras=True)
        return {field.name: hints[field.name] for field in fields(what)}
    function = inspect.unwrap(what)
    written = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    scope = types.SimpleNamespace(__annotations__=written)
    return typing.get_type_hints(scope, globalns=function.__globals__, include_extras=True)


def fault_of_call(name: str, signature: inspect.Signature, given: Sequence[Any], options: Mapping[str, Any]) -> str:
    """What is wrong with how a function is called: a keyword that it does not have, arguments too few or too many.

    Parameters
    ----------
    name, signature
        Of the function.
    given, options
        What it is called with.

    Returns
    -------
    str
        With what is legal, and the keyword that is nearest; empty where nothing is wrong.
    """
    parameters = signature.parameters.values()
    by_name = [
        p.name
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in ("self", "cls")
    ]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for option in options:
            if option not in by_name:
                close = difflib.get_close_matches(option, by_name, n=1)
                nearest = f"; nearest: {close[0]!r}" if close else ""
                return f"{name}() has no keyword {option!r}; legal: {', '.join(by_name)}{nearest}"
    try:
        signature.bind(*given, **options)
    except TypeError as error:
        verb = "is" if str(error).startswith("missing") else "has"
        return f"{name}() {verb} {error}; legal: {', '.join(by_name)}"
    return ""


class Annotations:
    """Checks against annotations, for one family of errors.

    Parameters
    ----------
    refuse
        Makes the error for an argument: from its name, what was given, the kind that it is not of, and the nearest
        legal value, which is None where there is none.
    kinds
        Of types that are not Python's own.
    wrong_call
        Makes the error for a keyword that there is not, and for arguments too few or too many.
    """

    def __init__(
        self,
        refuse: Callable[[str, Any, Kind, Any], Exception],
        kinds: Mapping[Any, Callable[[], Kind]] | None = None,
        wrong_call: Callable[[str], TypeError] = TypeError,
    ) -> None:
        self._refuse = refuse
        self._wrong_call = wrong_call
        self._basic = {**_BASIC, **(kinds or {})}
        self._known: dict[Any, dict[str, Kind]] = {}

    def fields(self, instance: Any) -> None:
        """Check a dataclass's fields, and put their plain types in their place."""
        for name, kind in self._kinds(type(instance)).items():
            value = getattr(instance, name)
            its = type(value)
            if its in kind.plain or (its is int and kind.whole and -_LIMIT <= value < _LIMIT):
                continue  # as `_fits` says, without the call
            plain = self.plain(kind, value, name)
            if plain is not value:
                object.__setattr__(instance, name, plain)

    def values(self, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of a function, or values of a TypedDict, in their plain types."""
        kinds = self._kinds(function)
        return {name: self.plain(kinds[name], value, name) if name in kinds else value for name, value in given.items()}

    def call(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Check the arguments of each call of a function before it is made."""
        positional = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]

        @functools.wraps(function)
        def checked(*arguments: _P.args, **options: _P.kwargs) -> _R:
            first = self.values(function, dict(zip(positional, arguments, strict=False)))
            rest = arguments[len(first) :]
            try:
                return function(*first.values(), *rest, **self.values(function, options))  # type: ignore[arg-type]
            except TypeError:
                self.refuse_call(function, arguments, options)
                raise

        return checked

    def takes(self, keywords: Callable[..., Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
        """Let a function take the keys of a TypedDict as keywords: each call checks them, and `help` lists them."""
        known = typing.get_type_hints(keywords, include_extras=True)

        def wrap(function: Callable[_P, _R]) -> Callable[_P, _R]:
            signature = inspect.signature(function)
            named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]

            @functools.wraps(function)
            def taking(*arguments: _P.args, **options: _P.kwargs) -> _R:
                own = {p.name: options.pop(p.name) for p in named if p.name in options}
                if not options.keys() <= known.keys():
                    self.refuse_call(taking, arguments, own | options)
                try:
                    return function(*arguments, **own, **self.values(keywords, options))  # type: ignore[arg-type]
                except TypeError:
                    self.refuse_call(taking, arguments, own | options)
                    raise

            plain = typing.get_type_hints(keywords)
            more = [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_LEFT_OUT, annotation=plain[name])
                for name in known
            ]
            first = [p for p in named if p.kind is not p.KEYWORD_ONLY]
            last = [p for p in named if p.kind is p.KEYWORD_ONLY]
            taking.__signature__ = signature.replace(parameters=[*first, *more, *last])  # type: ignore[attr-defined]
            return taking

        return wrap

    def refuse_call(
        self, function: Callable[..., Any], given: Sequence[Any], options: Mapping[str, Any], name: str = ""
    ) -> None:
        """Raise the error for a call that a function, or the maker of a class that has `name`, cannot take."""
        name = name or function.__qualname__.rpartition("<locals>.")[2]
        fault = fault_of_call(name, inspect.signature(function), given, options)
        if fault:
            raise self._wrong_call(fault) from None

    def plain(self, kind: Kind, value: Any, name: str) -> Any:
        """A value in the plain type of its kind."""
        try:
            return _read(kind, value, name)
        except Misfit:
            raise self._refuse(name, value, kind, kind.nearest(value)) from None

    def _kinds(self, what: Any) -> dict[str, Kind]:
        """The kinds of a dataclass's fields, or of a function's parameters; what may be anything is left out."""
        if what not in self._known:
            kinds = {name: self._kind(hint) for name, hint in _hints(what).items()}
            self._known[what] = {name: kind for name, kind in kinds.items() if not isinstance(kind, _Anything)}
        return self._known[what]

    def _kind(self, annotation: Any) -> Kind:
        """What an annotation says."""
        if annotation in self._basic:
            return self._basic[annotation]()
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is Annotated:
            kind = self._kind(arguments[0])
            said = next(extra for extra in arguments[1:] if isinstance(extra, Accepts))
            kind.words, kind.code = said.words, said.code
            return kind
        if origin in (typing.Union, types.UnionType):
            return _Union(tuple(map(self._kind, arguments)))
        if origin is Literal:
            return _Word(arguments)
        if origin is tuple:
            return _Tuple(tuple(map(self._kind, arguments)))
        if origin in (Sequence, list):
            return _Sequence(self._kind(arguments[0]), list if origin is list else tuple)
        if origin is dict:
            return _Mapping(self._kind(arguments[1]))
        return _Call() if origin is Callable else _Instance(annotation)
