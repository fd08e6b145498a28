"""Epilogue components: accumulators to global memory, with fused elementwise work.

The package is called, too: ``@tilekit.epilogue`` marks a Python function as an epilogue, and what such a function may
call beside NumPy's functions is found here (``tilekit.epilogue.silu``).
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilekit.epilogue.python import EpilogueFunction


class _Door(ModuleType):
    """The package, as a decorator."""

    def __call__(self, function: Callable[..., Any]) -> EpilogueFunction:
        from tilekit.epilogue.python import epilogue

        return epilogue(function)


_WORDS = frozenset(
    {"absolute", "batch", "clip", "column", "column_max", "column_min", "column_sum", "erf", "exp", "exp2", "gelu"}
    | {"log", "log2", "maximum", "minimum", "relu", "row", "row_max", "row_min", "row_sum", "rsqrt", "sigmoid"}
    | {"silu", "sqrt", "tanh", "uniform", "where"}
)


def __getattr__(name: str) -> Any:
    # Loaded on first use: components import this package for their own sake.
    if name not in _WORDS:
        raise AttributeError(f"module 'tilekit.epilogue' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("tilekit.epilogue.language"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WORDS])


sys.modules[__name__].__class__ = _Door
