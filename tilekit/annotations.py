"""What an argument may be, as its annotation says: checked at the call, with tilekit's errors.

A dataclass calls `check_fields` from its ``__post_init__``, a call that is not made often wears `checked`, or `takes`
where its keywords stand in a TypedDict, and one that is made often calls `checked_values` where it has not seen its
arguments before. Rules that know more than a type stand where they
are needed, and have codes of their own.
"""

from __future__ import annotations

from typing import Any, Final

from tilekit.dtypes import DType, as_dtype
from tilekit.emulator.core.annotations import Accepts, Annotations, Kind, Number
from tilekit.errors import ArgumentError

__all__ = ["Accepts", "check_fields", "checked", "checked_values", "number", "takes"]


class _ElementType(Kind):
    """Whatever a library calls an element type."""

    plain = frozenset({DType})
    words = "an element type"

    def read(self, value: Any, name: str) -> DType:
        return as_dtype(value, name)


def _refuse(name: str, given: Any, kind: Kind, nearest: Any) -> ArgumentError:
    return ArgumentError.of(name, given, legal=kind.words, nearest=nearest, code=kind.code)


_annotations: Final = Annotations(_refuse, {DType: _ElementType})

check_fields = _annotations.fields
"""Check a dataclass's fields; a list becomes a tuple, and NumPy's numbers Python's."""

checked_values = _annotations.values
"""Return arguments of a function, or values of a TypedDict, in their plain types, after checking them."""

checked = _annotations.call
"""Check the arguments of each call of a function before it is made."""

takes = _annotations.takes
"""Let a function take the keywords that a TypedDict names, checked at each call."""


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
