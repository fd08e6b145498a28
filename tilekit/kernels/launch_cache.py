"""Launches that are found again: the second call with the same arrays costs a look-up instead of checks and binding."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

from tilekit.arrays import NewArrays
from tilekit.runtime.prepared import PreparedLaunch

__all__ = ["CachedLaunch", "LaunchCache"]

_KEPT = 1024
"""Launches, and layouts of results, that a thread keeps: a launch is some kilobytes."""

_Value = TypeVar("_Value")


class CachedLaunch(NamedTuple):
    """A launch whose arguments are bound, and how to ask for the stream that the arrays' library is working on."""

    launch: PreparedLaunch
    current_stream: Callable[[], int]


class LaunchCache(threading.local):
    """Bound launches of a thread, by everything they depend on; the oldest goes first.

    They hold no array: memory that its owner frees and gets again, with the same layout, finds its launch here again.

    Attributes
    ----------
    launches
        By a call's arguments, addresses included. Where the call makes its own output, by the maker of such outputs
        and the address that the new one got: libraries hand the same few blocks out again and again.
    outputs
        The maker of outputs, by the arguments of a call that passes none.
    """

    def __init__(self) -> None:
        self.launches: dict[Hashable, CachedLaunch] = {}
        self.outputs: dict[Hashable, NewArrays] = {}

    def keep_launch(self, key: Hashable, launch: CachedLaunch) -> None:
        """Remember a launch."""
        _keep(self.launches, key, launch)

    def keep_output(self, key: Hashable, new: NewArrays) -> None:
        """Remember how the output of a call is made."""
        _keep(self.outputs, key, new)


def _keep(kept: dict[Hashable, _Value], key: Hashable, value: _Value) -> None:
    if len(kept) >= _KEPT:
        del kept[next(iter(kept))]
    kept[key] = value
