"""What a component has in a role alone: its `bind` makes that, and asked of the component itself it is an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, get_type_hints

from tilekit.assembly.errors import UnboundError

NEAREST = "; nearest: what its bind returns, in a role"


def binds(cls: type, *names: str) -> bool:
    """Whether what a class's `bind` returns has such members."""
    bind = inspect.getattr_static(cls, "bind", None)
    made = _result(bind) if inspect.isfunction(bind) else None
    return isinstance(made, type) and all(hasattr(made, name) for name in names)


@cache
def _result(function: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(function).get("return")
    except NameError:
        return None  # a class of the caller's may be annotated with what is there for a type checker alone


def not_bound(component: Any, name: str) -> NoReturn:
    """The `__getattr__` of components.

    Raises
    ------
    UnboundError
        ``TK-FIT-001`` for what the component has in a role; for all else it lacks an `AttributeError` as ever.
    """
    kind = type(component)
    said = f"{kind.__name__!r} object has no attribute {name!r}"
    if name.startswith("_") or not binds(kind, name):
        raise AttributeError(said, name=name, obj=component)
    raise UnboundError(said + NEAREST, code="TK-FIT-001")
