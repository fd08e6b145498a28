"""Whether an argument of a component is what its annotation asks for: checked when the component is made.

A class decorated with `component` has each argument checked: a number against its bounds (`Whole`), a word against
those that are legal, another component against its class or, member by member, its protocol.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import cache, wraps
from types import FunctionType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tilekit.annotations import refuse_call
from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import Whole, illegal, require_whole, require_word, with_article
from tilekit.assembly.unbound import NEAREST, binds, not_bound
from tilekit.dtypes import DTYPES, DType
from tilekit.emulator.core.errors import shown

_MISSING = object()
_Component = TypeVar("_Component", bound=type)
_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")


def component(cls: _Component) -> _Component:
    """Have every argument of a component's constructor checked against its annotation before it is used."""
    made = cls.__init__  # type: ignore[misc]  # it is the class's own
    signature = inspect.signature(made)
    names = tuple(signature.parameters)
    plain = all(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values())

    @wraps(made)
    def checked(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            # A picker makes thousands of payloads: `bind` alone would double its time.
            by_name = dict(zip(names[1:], arguments, strict=False)) | named
            given = by_name if plain else signature.bind(self, *arguments, **named).arguments
            for name, hint in _parameter_hints(made).items():
                if name in given:
                    _require(cls.__name__, name, given[name], hint)
            made(self, *arguments, **named)
        except TypeError:
            refuse_call(made, (self, *arguments), named, type(self).__name__)
            raise

    cls.__init__ = checked  # type: ignore[misc]
    if hasattr(cls, "bind") and not hasattr(cls, "__getattr__"):
        cls.__getattr__ = not_bound  # type: ignore[attr-defined]
    return cls


def checked(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Have every argument of a function, or of a class's way to make one, checked against its annotation.

    So are those of methods that a role's body calls, which anyone may write.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checks(*arguments: _Given.args, **named: _Given.kwargs) -> _Result:
        try:
            given = signature.bind(*arguments, **named).arguments
        except TypeError:
            refuse_call(function, arguments, named)
            raise
        hints = _parameter_hints(function)
        for name, hint in hints.items():
            if name in given:
                try:
                    _require(function.__qualname__, name, given[name], hint)
                except TraceError as error:
                    other = _exchanged(name, given, hints)
                    if other is None:
                        raise
                    said = f"{error.message}; nearest: {name} and {other} exchanged"
                    raise TraceError(said, code=error.code) from None
        return function(*arguments, **named)

    return checks


def _exchanged(name: str, given: Mapping[str, Any], hints: Mapping[str, Any]) -> str | None:
    """The argument that has changed places with one that does not fit, if there is one."""
    for other in hints:
        if other != name and other in given and _fits(given[other], hints[name]) and _fits(given[name], hints[other]):
            return other
    return None


def _fits(given: Any, hint: Any) -> bool:
    try:
        _require("", "", given, hint)
    except TraceError:
        return False
    return True


def checked_once(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """The same, what the function makes of some arguments being kept: they are checked the first time."""
    checks = checked(function)
    kept = cache(checks)

    @wraps(function)
    def makes(*arguments: Any, **named: Any) -> _Result:
        try:
            return kept(*arguments, **named)
        except TypeError:
            return checks(*arguments, **named)  # what cannot be hashed is no legal argument

    return makes


@cache
def _parameter_hints(function: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(function, include_extras=True)
    return {name: hint for name, hint in hints.items() if name != "return"}


def _require(owner: str, name: str, given: Any, hint: Any) -> None:
    """Check one argument; the first thing that is legal decides what a message says."""
    first: TraceError | None = None
    for option in _options(hint):
        try:
            _require_one(owner, name, given, option)
        except TraceError as error:
            first = first or error
        else:
            return
    assert first is not None
    raise first


@cache
def _options(hint: Any) -> tuple[Any, ...]:
    """What an annotation allows, None last."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(sorted(options, key=lambda one: one is NoneType))


_DTYPES: Final = [dtype.name for dtype in DTYPES]

_WORDS: Final = {bool: "True or False", int: "an integer", float: "a number", str: "a string", NoneType: "None"}


def _require_one(owner: str, name: str, given: Any, hint: Any) -> None:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = next((part for part in parts[1:] if isinstance(part, Whole)), None)
        if bounds is not None:  # else a rule of the component's own checks it
            require_whole(owner, name, given, bounds)
    elif origin is Literal:
        require_word(owner, name, given, parts)
    elif hint in _WORDS:
        wanted = (int, float) if hint is float else (hint,)
        if not isinstance(given, wanted) or (isinstance(given, bool) and hint is not bool):
            raise illegal(owner, name, given, _WORDS[hint])
    elif hint is Any or isinstance(hint, TypeVar):
        return
    elif origin is Callable or hint is Callable:
        if not callable(given):
            raise illegal(owner, name, given, "something to call")
    elif origin in (tuple, Sequence):
        if not isinstance(given, (tuple, list)):
            raise illegal(owner, name, given, f"a tuple of {_name(parts[0])}")
        wanted = (parts[0],) * len(given) if origin is Sequence or parts[-1] is Ellipsis else parts
        if len(given) != len(wanted):
            raise illegal(owner, name, given, f"a tuple of {', '.join(map(_name, wanted))}")
        for index, (member, part) in enumerate(zip(given, wanted, strict=True)):
            _require(owner, f"{name}[{index}]", member, part)
    elif origin in (dict, Mapping):
        if not isinstance(given, Mapping):
            raise illegal(owner, name, given, f"{_name(parts[1])} by name")
        for key, member in given.items():
            _require(owner, f"{name}[{shown(key)}]", member, parts[1])
    elif hint is DType:
        if not isinstance(given, DType):
            words = difflib.get_close_matches(given.lower(), _DTYPES, 1, 0.0) if isinstance(given, str) else _DTYPES[:1]
            said = (
                f"{owner}({name}={shown(given)}); legal: an element type; nearest: tilekit.compose.{words[0].upper()}"
            )
            raise TraceError(said, code="TK-PART-001")
    elif isinstance(hint, type) and (reason := _misfit(given, hint)) is not None:
        raise TraceError(f"{owner}({name}=) is given {_named(given)}: {reason}", code="TK-FIT-001")


def _name(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return getattr(hint, "__name__", str(hint))


def require_protocol(owner: str, name: str, component: object, protocol: type, *, verb: str = "is given") -> None:
    """Check that a component offers what a protocol asks for; `verb` is what the owner does with it.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` naming both, and the member that does not fit.
    """
    reason = _misfit(component, protocol)
    if reason is not None:
        raise TraceError(f"{owner}({name}=) {verb} {_named(component)}: {reason}", code="TK-FIT-001")


def handed(component: object, method: str, made: _Result, protocol: type) -> _Result:
    """What a component's method returned, where it fits the protocol of what the method returns.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` naming the component, the method, and the member that does not fit.
    """
    reason = _misfit(made, protocol)
    if reason is not None:
        said = f"{type(component).__name__}.{method} returned {_named(made)}: {reason}"
        raise TraceError(said, code="TK-FIT-001")
    return made


def require_call(owner: str, name: str, function: Callable[..., Any], *positions: str, **named: Any) -> None:
    """Check that a function of the caller's takes what it will be called with: names of what comes in order, and more.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` with how it is called, and how it can be; for what is no function.
    """
    called = ", ".join([*positions, *(f"{one}=" for one in named)])
    if not callable(function):
        raise TraceError(
            f"{owner}({name}=) is given {shown(function)}, which cannot be called; nearest: lambda {called}: "
            f"{shown(function)}",
            code="TK-FIT-001",
        )
    if type(function) is FunctionType and not named and not vars(function):
        code = function.__code__  # of most, such as lambdas for parameters, this says it, and a signature takes long
        if code.co_argcount == len(positions) and not code.co_kwonlyargcount:
            return
    signature = _signature(function)
    if signature is None:
        return
    try:
        signature.bind(*positions, **named)
    except TypeError as error:
        given = getattr(function, "__qualname__", type(function).__name__).rpartition(".")[2]
        said = f"{owner}({name}=) is given {given}{signature}, but is called with ({called}): {error}"
        raise TraceError(said, code="TK-FIT-001") from None


def said(component: object, name: str, method: str) -> Any:
    """What a component's member `name` says of what its `method` does.

    None where it says nothing, or where a class derived from the one that does has another such method.
    """
    for cls in type(component).__mro__:
        if name in vars(cls):
            return getattr(component, name)
        if method in vars(cls):
            return None
    return None


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
    if isinstance(component, type) and expected is not type:
        return f"it is the class itself; nearest: one made of it, {component.__name__}(...)"
    if _class_fits(type(component), expected):  # type: ignore[arg-type]  # classes can be hashed
        return None
    if not getattr(expected, "_is_protocol", False):
        if isinstance(component, expected):
            return None
        entered = isinstance(component, AbstractContextManager)
        return f"it is no {expected.__name__}" + ("; nearest: what `with` enters it as" if entered else "")
    missing = {name: _spelled(wanted) for name, wanted in _members(expected) if not _has(component, name)}
    if missing:
        reason = f"it has no {', '.join(map(''.join, missing.items()))}, which {expected.__name__} asks for"
        return reason + (NEAREST if binds(type(component), *missing) else "")
    for name, wanted in _members(expected):
        if wanted is None:
            continue
        offered = getattr(component, name)
        if not callable(offered):
            return f"its {name} is no method, which {expected.__name__} asks for"
        if not _takes(offered, wanted, bound=True):
            return f"its {name}{_spelled(offered)} is not called as {expected.__name__}.{name}{_spelled(wanted)} is"
    return None


def _has(component: Any, name: str) -> bool:
    """Whether there is a member, without asking a property for its value; `__getattr__` may pass one on."""
    return inspect.getattr_static(component, name, _MISSING) is not _MISSING or hasattr(component, name)


@cache
def _class_fits(offered: type, expected: type) -> bool:
    """Whether every instance of a class fits, whatever it holds."""
    if not getattr(expected, "_is_protocol", False):
        return issubclass(offered, expected)
    kept = getattr(offered, "__dataclass_fields__", {})
    for name, wanted in _members(expected):
        member = inspect.getattr_static(offered, name, _MISSING)
        if wanted is None:
            if member is _MISSING and name not in kept:
                return False
        elif name in kept or not inspect.isfunction(member) or not _function_takes(member, wanted):
            return False
    return True


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


def _takes(offered: Callable[..., Any], wanted: Callable[..., Any], *, bound: bool = False) -> bool:
    """Whether a method, or one that is `bound` to its object, can be called as the protocol's is."""
    if bound and inspect.ismethod(offered) and inspect.isfunction(offered.__func__):
        return _function_takes(offered.__func__, wanted)
    asked = inspect.signature(wanted).parameters.values()
    by_name = {p.name: None for p in asked if p.kind is p.KEYWORD_ONLY}
    positions = [None for p in asked if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][bound:]
    signature = _signature(offered)
    if signature is None:
        return True
    try:
        signature.bind(*positions, **by_name)
    except TypeError:
        return False
    return True


@cache
def _function_takes(offered: Callable[..., Any], wanted: Callable[..., Any]) -> bool:
    """The same of a class's function, of which objects are many."""
    return _takes(offered, wanted)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """How a function is called; a function written in C need not say."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _spelled(method: Callable[..., Any] | None) -> str:
    signature = None if method is None else _signature(method)
    if signature is None:
        return ""
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    return f"({', '.join(f'{p.name}=' if p.kind is p.KEYWORD_ONLY else p.name for p in parameters)})"


def _named(component: Any) -> str:
    if isinstance(component, (int, float, str, NoneType)):
        return f"{component!r}"
    return with_article(type(component).__name__)
