"""Branches, loops and roles that Python made: one that it does not enter has no body, and what follows runs everywhere.

`entered_by_with` and `entered_by_for` are for generator functions whose first argument is the writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from tilekit.assembly.errors import TraceError
from tilekit.assembly.provenance import Origin, origin

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


@dataclass(eq=False)
class Opening:
    """One that was made: how it is entered, and where Python made it."""

    how: str
    where: Origin


@dataclass
class Openings:
    """Those that wait to be entered, oldest first."""

    waiting: list[Opening] = field(default_factory=list)

    def require_entered(self) -> None:
        """Refuse what was made and is not entered, before anything else is traced.

        Raises
        ------
        TraceError
            ``TK-TRACE-022`` with its line and how it is entered.
        """
        if self.waiting:
            first = self.waiting[0]
            raise TraceError(
                f"what {first.where} makes is not entered, so it has no body, and what follows is traced for every "
                f"thread; write `{first.how}`",
                code="TK-TRACE-022",
            )


class Opens(Protocol):
    """A writer, as far as this file asks for one."""

    openings: Openings


_Writer = TypeVar("_Writer", bound=Opens)
_Traced = Callable[Concatenate[_Writer, _Arguments], Iterator[_Result]]


class _Context(AbstractContextManager[_Result], Generic[_Result]):
    def __init__(self, openings: Openings, opening: Opening, made: AbstractContextManager[_Result]) -> None:
        self._openings, self._opening, self._made = openings, opening, made
        openings.waiting.append(opening)

    def __enter__(self) -> _Result:
        self._openings.waiting.remove(self._opening)
        return self._made.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        return self._made.__exit__(kind, error, where)


class _Rounds(Iterator[_Result]):
    def __init__(self, openings: Openings, opening: Opening, made: Iterator[_Result]) -> None:
        self._openings, self._opening, self._made = openings, opening, made
        openings.waiting.append(opening)

    def __next__(self) -> _Result:
        if self._opening in self._openings.waiting:
            self._openings.waiting.remove(self._opening)
        return next(self._made)


def entered_by_with(
    how: str,
) -> Callable[
    [_Traced[_Writer, _Arguments, _Result]], Callable[Concatenate[_Writer, _Arguments], AbstractContextManager[_Result]]
]:
    """Make a context of a generator function, as `contextmanager` does, and remember it until it is entered."""

    def decorate(
        traced: _Traced[_Writer, _Arguments, _Result],
    ) -> Callable[Concatenate[_Writer, _Arguments], AbstractContextManager[_Result]]:
        make = contextmanager(traced)

        @wraps(traced)
        def opens(
            w: _Writer, /, *arguments: _Arguments.args, **named: _Arguments.kwargs
        ) -> AbstractContextManager[_Result]:
            return _Context(w.openings, Opening(how, origin()), make(w, *arguments, **named))

        return opens

    return decorate


def entered_by_for(
    how: str,
) -> Callable[[_Traced[_Writer, _Arguments, _Result]], Callable[Concatenate[_Writer, _Arguments], Iterator[_Result]]]:
    """Remember what a generator function makes until its first round is asked for."""

    def decorate(
        traced: _Traced[_Writer, _Arguments, _Result],
    ) -> Callable[Concatenate[_Writer, _Arguments], Iterator[_Result]]:
        @wraps(traced)
        def opens(w: _Writer, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> Iterator[_Result]:
            return _Rounds(w.openings, Opening(how, origin()), traced(w, *arguments, **named))

        return opens

    return decorate
