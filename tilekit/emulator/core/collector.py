"""Python's cyclic garbage collector, held back while a launch runs.

A launch makes many small objects that live for a moment beside many that live long (instructions, code, shadows); the
collector would look through the long-lived ones again and again. It has nothing to find: clusters refer to themselves,
but let go of everything when they have finished (see `Cluster.dissolve`).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


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
