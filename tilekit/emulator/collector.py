"""Python's cyclic garbage collector, held back while a launch runs.

A launch makes many small objects that live for a moment beside many that live long (instructions, code, shadows); the
collector would look through the long-lived ones again and again. Clusters refer to themselves, so those that have
finished are collected now and then.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

CLUSTERS_BETWEEN_COLLECTIONS = 256


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Disable automatic collection inside the block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def cluster_finished(number: int) -> None:
    """Collect what finished clusters leave, every so many clusters."""
    if number % CLUSTERS_BETWEEN_COLLECTIONS == CLUSTERS_BETWEEN_COLLECTIONS - 1:
        gc.collect(0)
        gc.collect(1)
