"""What an argument may be, as its annotation says: checked at the call, with tilekit's errors.

A dataclass calls `check_fields` from its ``__post_init__`` and wears `call_checked`, a call that is not made often
wears `checked`, or `takes` where its keywords stand in a TypedDict, and one that is made often calls `checked_values`
where it has not seen its arguments before. Rules that know more than a type stand where they are needed, and have codes
of their own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tilekit.dtypes import DType, as_dtype
from tilekit.emulator.core.annotations import Accepts, Annotations, Kind, Number
from tilekit.errors import ArgumentError, CallError

__all__ = [
    "Accepts",
    "call_checked",
    "check_fields",
    "checked",
    "checked_values",
    "leaves_out_unknown",
    "number",
    "refuse_call",
    "takes",
]

_Called = TypeVar("_Called", bound=Callable[..., Any])


class _ElementType(Kind):
    """Whatever a library calls an element type."""

    plain = frozenset({DType})
    words = "an element type"

    def read(self, value: Any, name: str) -> DType:
        return as_dtype(value, name)


def _refuse(name: str, given: Any, kind: Kind, nearest: Any) -> ArgumentError:
    return ArgumentError.of(name, given, legal=kind.words, nearest=nearest, code=kind.code)


_annotations: Final = Annotations(_refuse, {DType: _ElementType}, CallError)

check_fields = _annotations.fields
"""Check a dataclass's fields; a list becomes a tuple, and NumPy's numbers Python's."""

checked_values = _annotations.values
"""Return arguments of a function, or values of a TypedDict, in their plain types, after checking them."""

checked = _annotations.call
"""Check the arguments of each call of a function before it is made."""

takes = _annotations.takes
"""Let a function take the keywords that a TypedDict names, checked at each call."""


refuse_call = _annotations.refuse_call
"""Raise `CallError` (``TK-ARG-002``) for a call that a function cannot take."""


def call_checked(what: _Called) -> _Called:
    """Have a call that a function, or a class's maker, cannot take be a `CallError`: so `checked` and `takes` do, too.

    A call that it can take costs one more call of Python's. One that is made so often that this counts is a function
    that `leaves_out_unknown`.
    """
    if not isinstance(what, type):
        return _call_checked(what, lambda _: what.__name__)
    what.__init__ = _call_checked(what.__init__, lambda arguments: type(arguments[0]).__name__)  # type: ignore[misc]
    return what


def _call_checked(made: _Called, name: Callable[[tuple[Any, ...]], str]) -> _Called:
    @functools.wraps(made)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            return made(*arguments, **options)
        except TypeError:
            refuse_call(made, arguments, options, name(arguments))
            raise

    return called  # type: ignore[return-value]  # which is called as the function is


def leaves_out_unknown(function: _Called) -> _Called:
    """Leave ``**unknown`` out of a function's signature: what comes there the function gives to `refuse_call`."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return function


def number(value: Any, name: str, *, words: str = Number.words, code: str | None = None) -> float:
    """Return a real number as a float.

    Raises
    ------
    ArgumentError
        With `code`, for anything else; `words` say what is legal.
    """
    kind = Number()
    kind.words, kind.code = words, code
    return _annotations.plain(kind, value, name)  # type: ignore[no-any-return]
